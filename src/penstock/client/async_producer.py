"""Sending messages from asyncio: the same producer, which never blocks the loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.arguments import check_seconds
from penstock.client.deliveries import Delivery
from penstock.client.errors import no_room
from penstock.client.finishing import in_some_thread, to_the_end
from penstock.client.message import Receipt
from penstock.client.options import ProducerOptions, SendOptions
from penstock.client.producer import ROOM_SLICE_S, Headers, Producer
from penstock.client.settings import Settings
from penstock.client.signals import holding_signals
from penstock.client.transactions import Transaction


class _Full(Exception):
    """There is no room in the local queue now."""

    def __init__(self, headers: Headers | None) -> None:
        super().__init__()
        self.headers = headers  # which can be sent again, as an iterator that was given can not


class _NonBlocking(Producer):
    def wait_for_room(
        self, topic: str, value: Any, key: Any, partition: int, delivery: Delivery, headers: Any = None, *more: Any
    ) -> None:
        raise _Full(headers)


class AsyncProducer:
    """As `Producer`, with the same arguments; `await send(…)` waits for room, and what it returns can be awaited."""

    def __init__(
        self, bootstrap: str | None = None, *, send_timeout_s: float = 60.0, **options: Unpack[ProducerOptions]
    ) -> None:
        self.producer: Producer = _NonBlocking(bootstrap, **options)
        self._send_timeout_s = check_seconds(send_timeout_s, "send_timeout_s")

    @property
    def settings(self) -> Settings:
        """As `Producer.settings`."""
        return self.producer.settings

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Hands a message over, as soon as there is room. Await what it returns to know that it has arrived."""
        if not self.producer.knows(topic):
            await asyncio.to_thread(self.producer.meet, topic)
        options: SendOptions = {
            "key": key,
            "headers": headers,
            "timestamp_ms": timestamp_ms,
            "partition": partition,
        }
        try:
            return self.producer.send(topic, value, **options)
        except _Full as full:
            options["headers"] = full.headers
            return await self._send_with_room(topic, value, options)

    async def _send_with_room(self, topic: str, value: Any, options: SendOptions) -> Delivery:
        """Back-pressure: a thread waits for acknowledgements, which make room."""
        deadline_s = time.monotonic() + self._send_timeout_s
        while time.monotonic() < deadline_s:
            await asyncio.to_thread(self.producer.poll, ROOM_SLICE_S)
            try:
                return self.producer.send(topic, value, **options)
            except _Full:
                continue
        raise no_room(topic, self._send_timeout_s)

    async def send_and_wait(self, topic: str, value: Any = None, **options: Unpack[SendOptions]) -> Receipt:
        """Sends a message, and waits until the brokers have it."""
        return await (await self.send(topic, value, **options))

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until everything is acknowledged, as `Producer.flush` does."""
        await asyncio.to_thread(self.producer.flush, timeout)

    def transaction(self) -> AsyncTransaction:
        """`async with producer.transaction() as txn: await txn.send(…)`."""
        return AsyncTransaction(self, self.producer.transaction())

    async def close(self, timeout: float | None = 30.0) -> None:
        """Sends what is still to be sent, as `Producer.close` does, also if the task is cancelled meanwhile."""
        await asyncio.shield(in_some_thread(self.producer.close, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(in_some_thread(self.producer.__exit__, kind, error, trace))


class AsyncTransaction:
    """A transaction of an `AsyncProducer`. A signal that would end the program does so when it is decided."""

    def __init__(self, producer: AsyncProducer, transaction: Transaction[Any, Any]) -> None:
        self._producer = producer
        self._transaction = transaction
        self._signals = ExitStack()  # until it is decided

    async def send(self, topic: str, value: Any = None, **options: Unpack[SendOptions]) -> Delivery:
        return await self._producer.send(topic, value, **options)

    async def __aenter__(self) -> Self:
        with ExitStack() as signals:
            signals.enter_context(holding_signals())
            beginning = in_some_thread(self._transaction.__enter__)
            try:
                await to_the_end(beginning)
            except asyncio.CancelledError:
                if beginning.exception() is None:  # nobody else would end it
                    await to_the_end(in_some_thread(self._transaction.abandon))
                raise
            self._signals = signals.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._signals:
            await to_the_end(in_some_thread(self._transaction.__exit__, kind, error, trace))
