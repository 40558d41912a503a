"""A message on its way: what `send` returns, to be waited for, awaited, or left alone.

One is made for each message, so it costs no lock, event or future until somebody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from penstock.client.errors import DeliveryTimedOut, PenstockError, delivery_error
from penstock.client.message import Receipt
from penstock.client.names import check_timeout

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from penstock.client.producer import Producer

log = logging.getLogger("penstock.client")

WAIT_SLICE_S = 0.05  # another thread may be told of this delivery while we wait for news of any


class Delivery:
    """A message on its way: pending, then acknowledged or failed, and that for good. It can be awaited."""

    __slots__ = ("_acknowledged", "_callbacks", "_error", "_producer", "topic")

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self.topic = topic
        self._acknowledged: Any = None
        self._error: KafkaError | None = None
        self._callbacks: list[Callable[[Delivery], object]] | None = None

    def settle(self, error: KafkaError | None, message: Any) -> None:
        """librdkafka's word, from within a poll."""
        self._acknowledged = message
        if error is not None:
            self._error = error
            self._producer.note_failure(self)
        if self._callbacks is not None:
            self._call_back(self._callbacks)

    def done(self) -> bool:
        """Whether it is acknowledged or has failed."""
        return self._acknowledged is not None

    def exception(self) -> PenstockError | None:
        """Why it failed; None while it is on its way, and when it has arrived."""
        if self._error is None:
            return None
        self._producer.forget_failure(self)
        return self._producer.explained(delivery_error(self._error, self.topic))

    def result(self, timeout: float | None = None) -> Receipt:
        """Waits for the acknowledgement. Raises why there is none; `DeliveryTimedOut` while one may come."""
        check_timeout(timeout)
        if self._acknowledged is None:
            self._wait(timeout)
        if self._error is not None:
            failed = self.exception()
            assert failed is not None
            raise failed
        return self._receipt()

    def _wait(self, timeout: float | None) -> None:
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while self._acknowledged is None:
            left_s = WAIT_SLICE_S if deadline_s is None else min(WAIT_SLICE_S, deadline_s - time.monotonic())
            if left_s < 0:
                raise DeliveryTimedOut(
                    f"a message to {self.topic!r} was not acknowledged within {timeout} s.",
                    "It is still on its way: wait longer, or see whether the broker runs.",
                )
            self._producer.poll(left_s)

    def _receipt(self) -> Receipt:
        message = self._acknowledged
        return Receipt(message.topic(), message.partition(), message.offset(), message.timestamp()[1])

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Calls it with this delivery once that is settled, in whatever thread is told first; at once if it is."""
        if self._acknowledged is not None:
            callback(self)
            return
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)
        self._producer.keep_polling()
        if self.done():  # since we looked; and who settled it may have seen no callback
            self._call_back(self._callbacks)

    def _call_back(self, callbacks: list[Callable[[Delivery], object]]) -> None:
        """Each once, though two threads may be here."""
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(self)
            except Exception:  # who polls, and is called for others too, has nothing to do with it
                log.exception("a callback of a message to %r failed", self.topic)

    def __await__(self) -> Generator[Any, None, Receipt]:
        if self._acknowledged is None:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: self._producer.wake_ups.add(settled))
            yield from settled
        return self.result()


class WakeUps:
    """Tasks to be woken, in their loops, for what happens in another thread: many of them with one call of a loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called: set[asyncio.AbstractEventLoop] = set()

    def add(self, settled: asyncio.Future[None]) -> None:
        loop = settled.get_loop()
        self._waiting.append(settled)
        if loop not in self._called:
            self._called.add(loop)
            try:
                loop.call_soon_threadsafe(self._wake, loop)
            except RuntimeError:  # the loop was closed, and nobody waits any more
                self._called.discard(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._called.discard(loop)
        for _ in range(len(self._waiting)):
            settled = self._waiting.popleft()
            if settled.get_loop() is not loop:
                self._waiting.append(settled)
            elif not settled.done():
                settled.set_result(None)
