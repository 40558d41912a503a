"""Reading messages from asyncio: the same consumer, with one thread below it that waits for librdkafka.

Messages are handed out in the loop's thread, from the batch that the other one has taken; so there is a change of
threads for each batch, not for each message. Everything that asks a broker runs in that one thread, one after another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from penstock.client.arguments import check_count, check_flag
from penstock.client.async_producer import AsyncProducer
from penstock.client.consumer import Consumer, handling
from penstock.client.deliveries import Delivery
from penstock.client.errors import UsageError
from penstock.client.finishing import in_some_thread, last_in, to_the_end
from penstock.client.kinds import K, V
from penstock.client.listeners import Listener
from penstock.client.message import Message, Place
from penstock.client.names import check_timeout
from penstock.client.options import ConsumerOptions, HandlerOptions, SendOptions
from penstock.client.reader import POLL_SLICE_S
from penstock.client.settings import Settings
from penstock.client.signals import ending_on_signals
from penstock.client.transactions import Transaction

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


_handled: ContextVar[Consumer[Any, Any] | None] = ContextVar("_handled", default=None)  # whose handler this is in


class AsyncConsumer(Generic[K, V]):
    """As `Consumer`, with the same arguments: `async for message in consumer`, `await consumer.poll()`.

    One task at a time may read.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        group: str = "",
        topics: str | Iterable[str] = (),
        *,
        handle_signals: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.consumer: Consumer[K, V] = Consumer(bootstrap, group, topics, handle_signals=False, **options)
        self._handle_signals = check_flag(handle_signals, "handle_signals")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-consumer")
        self._is_closed = False
        self._runs = False  # its handler, which takes the thread

    def _in_thread(self, call: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        if self._is_closed:
            raise UsageError("the consumer is closed.", "Make another one.")
        if self._runs:  # there it would be done when `run` ends; a handler that awaits it never ends
            return in_some_thread(call, *arguments)
        return asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    # ---- reading

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        return self.messages()

    async def messages(self, count: int | None = None, timeout: float | None = None) -> AsyncIterator[Message[K, V]]:
        """Until `count` messages were handed out, or none came for `timeout` seconds, or `stop()` or a signal."""
        check_timeout(timeout)
        check_count(count)
        self.consumer.check_plain()
        await self._in_thread(self.consumer.begin)
        self.consumer.reader.begin_again()
        try:
            with self.until_signals():
                async for message in self._stream(count, timeout, in_all=False):
                    yield message
        finally:
            self.consumer.reader.note_end()

    async def _stream(self, count: int | None, timeout: float | None, in_all: bool) -> AsyncIterator[Message[K, V]]:
        reader = self.consumer.reader
        wait_until_s = None if timeout is None else time.monotonic() + timeout
        handed = 0
        reader.count_in_hand()
        if reader.stopping:  # who asks on and on must not keep a processor busy
            await asyncio.sleep(POLL_SLICE_S if timeout is None else min(POLL_SLICE_S, timeout))
        while not reader.stopping and (count is None or handed < count):
            if not reader.has_left:
                if not await self._in_thread(reader.refill, wait_until_s):
                    return
                if reader.has_left and timeout is not None and not in_all:
                    wait_until_s = time.monotonic() + timeout
                continue
            message = reader.hand_out()
            if message is not None:
                handed += 1
                yield message
                reader.count_in_hand()
                if reader.is_commit_due and not self._is_closed:
                    await self._in_thread(reader.between)

    async def poll(self, timeout: float = 0.0) -> Message[K, V] | None:
        """The next message, or None if there is none within `timeout` seconds."""
        check_timeout(timeout)
        self.consumer.check_plain()
        with self.until_signals():
            await self._in_thread(self.consumer.begin)
            async for message in self._stream(1, timeout, in_all=True):
                return message
        return None

    async def also_read(self, topics: Iterable[str]) -> None:
        await self._in_thread(self.consumer.also_read, topics)

    def stop(self) -> None:
        self.consumer.stop()

    def until_signals(self) -> AbstractContextManager[None]:
        """While this lasts, a signal stops the consumer; one that comes when it is stopped is not ours."""
        is_ours = self._handle_signals and not self.stopping
        return ending_on_signals(self.consumer.reader.stop_for_good) if is_ours else nullcontext()

    @property
    def stopping(self) -> bool:
        return self.consumer.stopping

    # ---- transactions

    def transaction(self, producer: AsyncProducer) -> AsyncReadingTransaction[K, V]:
        """`async with consumer.transaction(producer) as txn: async for message in txn.messages(): …`."""
        if not isinstance(producer, AsyncProducer):
            raise UsageError(
                f"a transaction of an AsyncConsumer has an AsyncProducer, not {type(producer).__name__}.",
                "With a Producer, read with a Consumer.",
            )
        return AsyncReadingTransaction(self, producer)

    # ---- how far, and where to

    @property
    def group(self) -> str:
        return self.consumer.group

    @property
    def settings(self) -> Settings:
        return self.consumer.settings

    async def commit(self) -> None:
        """As `Consumer.commit`. The message in hand counts as processed, whichever task asks."""
        await self._in_thread(self.consumer.commit)

    @property
    def assignment(self) -> list[Place]:
        return self.consumer.assignment

    async def lag(self) -> int:
        return sum((await self.lags()).values())

    async def lags(self) -> dict[Place, int]:
        return await self._in_thread(lambda: self.consumer.lags)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        await self._in_thread(self.consumer.seek, topic, partition, offset)

    async def seek_to_time(self, moment: datetime, *places: Place) -> None:
        await self._in_thread(self.consumer.seek_to_time, moment, *places)

    async def pause(self, *places: Place) -> None:
        await self._in_thread(self.consumer.pause, *places)

    async def resume(self, *places: Place) -> None:
        await self._in_thread(self.consumer.resume, *places)

    # ---- rebalances: the listeners are called in the thread below

    def on_assign(self, listener: Listener) -> Listener:
        return self.consumer.on_assign(listener)

    def on_revoke(self, listener: Listener) -> Listener:
        return self.consumer.on_revoke(listener)

    def on_lost(self, listener: Listener) -> Listener:
        return self.consumer.on_lost(listener)

    # ---- handlers

    @overload
    def handler(self, function: Function, /) -> Function: ...
    @overload
    def handler(
        self, function: None = None, /, **options: Unpack[HandlerOptions]
    ) -> Callable[[Function], Function]: ...
    def handler(
        self, function: Function | None = None, /, **options: Unpack[HandlerOptions]
    ) -> Function | Callable[[Function], Function]:
        """Registers a function, or a coroutine function, for `run` to call with each message."""
        register = self.consumer.handler(**options)
        return register if function is None else register(function)

    async def run(self) -> None:
        """Calls the handler with messages, until `stop()` or a signal. Coroutine functions run in this loop."""
        loop = asyncio.get_running_loop()
        with ending_on_signals(self.stop) if self._handle_signals else nullcontext():
            running = loop.run_in_executor(self._thread, self._run, loop)
            self._runs = True
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                self.stop()  # the message in hand is finished, and its offset is stored, before the task ends
                await asyncio.shield(running)  # no task, which a loop that ends would cancel as well
                raise
            finally:
                self._runs = False

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        handled = _handled.set(self.consumer)  # for the handler's tasks, too, since they are begun in here
        try:
            with self.consumer.reader.turns.running():
                handling().run(self.consumer, loop)
        finally:
            _handled.reset(handled)

    # ---- the end

    async def close(self) -> None:
        await self._close(self.consumer.close)

    async def _close(self, closing: Callable[..., None], *arguments: Any) -> None:
        """Once."""
        if self._runs and _handled.get() is self.consumer:  # it would wait for the handler, which waits for it
            raise UsageError("the consumer runs its handler.", "Call stop(); it can be closed when run() is over.")
        self.stop()
        if not self._is_closed:
            self._is_closed = True
            await last_in(self._thread, closing, *arguments)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(self.consumer.__exit__, kind, error, trace)


class AsyncReadingTransaction(Generic[K, V]):
    """A transaction of an `AsyncConsumer` and an `AsyncProducer`. A signal ends it in order, not in the midst of it."""

    def __init__(self, consumer: AsyncConsumer[K, V], producer: AsyncProducer) -> None:
        self._consumer = consumer
        self._producer = producer
        self._transaction: Transaction[K, V] | None = None
        self._signals = ExitStack()  # until the transaction is decided

    async def messages(self, count: int | None = None, timeout: float = 1.0) -> AsyncIterator[Message[K, V]]:
        """What is there within `timeout` seconds, up to `count`."""
        assert self._transaction is not None
        check_timeout(timeout)
        check_count(count)
        async for message in self._consumer._stream(count, timeout, in_all=True):
            self._transaction.check_not_lost()
            yield message
        self._transaction.check_not_lost()

    async def send(self, topic: str, value: Any = None, **options: Unpack[SendOptions]) -> Delivery:
        return await self._producer.send(topic, value, **options)

    async def __aenter__(self) -> Self:
        with ExitStack() as signals:
            signals.enter_context(self._consumer.until_signals())
            beginning = self._consumer._thread.submit(self._begin)
            try:
                self._transaction = await asyncio.wrap_future(beginning)
            except asyncio.CancelledError:
                if not beginning.cancel():  # it begins all the same; what is asked of the consumer next waits for this
                    self._consumer._thread.submit(_abandon, beginning)
                raise
            self._signals = signals.pop_all()
        return self

    def _begin(self) -> Transaction[K, V]:
        return self._consumer.consumer.transaction(self._producer.producer).__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transaction is not None
        with self._signals:
            leave = in_some_thread if self._consumer._is_closed else self._consumer._in_thread
            await to_the_end(leave(self._transaction.__exit__, kind, error, trace))


def _abandon(beginning: Future[Transaction[Any, Any]]) -> None:
    """Behind the beginning of a transaction that nobody waits for any more, in its thread."""
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().abandon()
