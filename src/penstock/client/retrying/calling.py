"""Calling a handler: here, in a thread that may be given up, or on an event loop.

A thread can't be ended from outside. A handler that hangs past its limit is left to itself, another thread takes the
next message, and a few that are stuck at once are as many as we let be; a coroutine is cancelled for good.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol

from penstock.client.deliveries import Delivery
from penstock.client.errors import HandlerTimedOut, UsageError
from penstock.client.message import Message
from penstock.client.retrying.policy import spoken

STUCK_MAX = 8

AnyMessage = Message[Any, Any]
Handler = Callable[[AnyMessage], Any]


class Call(Protocol):
    def __call__(self, message: AnyMessage) -> None:
        """Returns when the message was handled, and raises what the handler raised, or HandlerTimedOut."""

    def close(self) -> None: ...


def _late(timeout_ms: int) -> HandlerTimedOut:
    return HandlerTimedOut(
        f"the handler had not returned after {spoken(timeout_ms)}.", "Make it quicker, or give it a longer timeout."
    )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether what it returns is to be awaited, as far as it shows: partials and objects that are called also tell."""
    return _is_some(inspect.iscoroutinefunction, function)


def is_generating(function: Callable[..., Any]) -> bool:
    """Whether a call of it runs nothing, but gives something to iterate over."""
    return _is_some(inspect.isgeneratorfunction, function) or _is_some(inspect.isasyncgenfunction, function)


def _is_some(kind: Callable[[Any], bool], function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(type(function).__call__)


def _is_to_be_awaited(result: object) -> bool:
    """A delivery is on its way whether anybody waits for it or not, so that a handler may well return one."""
    return isinstance(result, Awaitable) and not isinstance(result, Delivery)


class End(BaseException):
    """No failure of a message, but the end, with this error: no Exception, so that nobody takes it for one."""

    def __init__(self, error: UsageError) -> None:
        super().__init__(error)
        self.error = error


def check_run(result: object) -> None:
    """Of what a plain handler returned: if it would have to be run, and nobody does so, its message was not handled."""
    if not isinstance(result, Generator | AsyncGenerator) and not _is_to_be_awaited(result):
        return
    if isinstance(result, Coroutine):
        result.close()  # or Python would say that it was never awaited
    raise End(
        UsageError(
            f"the handler returned a {type(result).__name__}, which nobody runs: the message was not handled.",
            "Coroutines are for an AsyncConsumer, and 'await consumer.run()'. A handler does not yield.",
        )
    )


def _all_stuck() -> End:
    return End(
        UsageError(
            f"{STUCK_MAX} calls of the handler hang, and none of them can be ended.",
            "Give what the handler waits for a time-out of its own, or use an async handler, which is cancelled.",
        )
    )


class Cancelled(BaseException):
    """The task of a handler was, mostly because its loop ends. Its message has not failed, and goes back."""


class Direct:
    """Whoever calls `function` itself, which is quicker, gives what is not None to `finish`."""

    def __init__(self, function: Handler, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.function = function
        self._loop = loop

    def __call__(self, message: AnyMessage) -> None:
        if (result := self.function(message)) is not None:
            self.finish(result)

    def finish(self, result: object) -> None:
        finish(result, self._loop, None)

    def close(self) -> None:
        pass


class InThread:
    """With a limit. The thread lives as long as its handlers return in time."""

    def __init__(self, function: Handler, timeout_ms: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._function = function
        self._timeout_ms = timeout_ms
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[AnyMessage, Future[Any]] | None] | None = None
        self._stuck: list[threading.Thread] = []
        self._thread: threading.Thread | None = None

    def __call__(self, message: AnyMessage) -> None:
        if self._jobs is None:
            self._begin()
        assert self._jobs is not None
        done: Future[Any] = Future()
        self._jobs.put((message, done))
        try:
            failure = done.exception(self._timeout_ms / 1000)
        except TimeoutError:
            self._give_up()
            raise _late(self._timeout_ms) from None
        except BaseException:  # a second Ctrl-C: who is in such a hurry does not wait for the handler
            self._give_up()
            raise
        if failure is not None:
            raise failure
        if (result := done.result()) is not None:
            finish(result, self._loop, self._timeout_ms)

    def _begin(self) -> None:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= STUCK_MAX:
            raise _all_stuck()
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_work, args=(self._function, self._jobs), name="penstock-handler", daemon=True
        )
        self._thread.start()

    def _give_up(self) -> None:
        assert self._jobs is not None
        assert self._thread is not None
        self._jobs.put(None)  # should it ever return, it ends
        self._stuck.append(self._thread)
        self._jobs = self._thread = None

    def close(self) -> None:
        if self._jobs is not None and self._thread is not None:
            self._jobs.put(None)
            self._thread.join()


def _work(function: Handler, jobs: queue.SimpleQueue[tuple[AnyMessage, Future[Any]] | None]) -> None:
    while (job := jobs.get()) is not None:
        message, done = job
        try:
            result = function(message)
        except BaseException as failure:
            done.set_exception(failure)
        else:
            done.set_result(result)


class OnLoop:
    """A coroutine function, called from the thread below an event loop."""

    def __init__(
        self,
        function: Callable[[Any], Awaitable[Any]],
        loop: asyncio.AbstractEventLoop,
        timeout_ms: int | None,
    ) -> None:
        self._function = function
        self._loop = loop
        self._timeout_ms = timeout_ms

    def __call__(self, message: Any) -> None:
        failed: list[BaseException] = []
        coroutine = self._until_cancelled(message, failed)
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise Cancelled from None
        try:
            running.result()
        except CancelledError:
            if failed:
                raise
            raise Cancelled from None

    async def _until_cancelled(self, message: Any, failed: list[BaseException]) -> None:
        try:
            await self._limited(message)
        except BaseException as failure:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            failed.append(failure)  # also if it was cancelled: what the handler waited for was, and not itself
            raise

    async def _limited(self, message: Any) -> None:
        if self._timeout_ms is None:
            await self._awaited(message)
            return
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as limit:
                await self._awaited(message)
        except TimeoutError:
            if limit.expired():
                raise _late(self._timeout_ms) from None
            raise

    async def _awaited(self, message: Any) -> None:
        result = await self._function(message)
        while result is not None and _is_to_be_awaited(result):
            result = await result
        if result is not None:
            check_run(result)

    def close(self) -> None:
        pass


def finish(result: object, loop: asyncio.AbstractEventLoop | None, timeout_ms: int | None) -> None:
    """What a plain handler returned is awaited where there is a loop for that, as if it were a coroutine function's."""
    if loop is not None and _is_to_be_awaited(result):
        OnLoop(_itself, loop, timeout_ms)(result)
    else:
        check_run(result)


def _itself(result: Awaitable[Any]) -> Awaitable[Any]:
    return result
