"""An event loop whose clock is virtual: when nothing is ready, it jumps to the next timer.

There are no threads: what is given to an executor runs on the loop, a little later. The order in which things run
depends on nothing but the order in which they were scheduled and the seed. When nothing is scheduled any more, those
who still wait would wait for ever: that is an error, and so is a moment that never ends.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVar, TypeVarTuple

from tests.simulation.channel import Channel
from tests.simulation.process import PROCESS, Process, State

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SECONDS_MAX = 7 * 24 * 3600.0
TURNS_AT_ONCE_MAX = 1_000_000
CANCELLED_MAX = 1000
WORK_S = (0.0, 0.002)  # how long it takes until something in an executor is done
EPOCH_NS = 1_700_000_000_000_000_000


class Deadlock(Exception):
    """Somebody waits, and nothing will ever happen."""


class Endless(Exception):
    """The clock has gone further than any scenario should, or does not go on at all."""


class Descriptor(Protocol):
    """Something that can be waited for."""

    @property
    def is_readable(self) -> bool: ...

    @property
    def is_writable(self) -> bool: ...


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, seed: int = 0, seconds_max: float = SECONDS_MAX) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.seconds_max = seconds_max
        self._now = 0.0
        self._turns_now = 0
        self._descriptors: dict[int, Descriptor] = {}
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._executors: dict[Executor, Channel] = {}
        # As the class above has them; they are named here for those who read this.
        self._ready: deque[Any] = deque()
        self._scheduled: list[Any] = []
        self._timer_cancelled_count = 0
        self._stopping = False
        self.set_task_factory(_new_task)

    def time(self) -> float:
        return self._now

    def wall_ns(self, ahead_s: float = 0.0) -> int:
        """The time of day, for a machine whose clock is so far ahead."""
        return EPOCH_NS + round((self._now + ahead_s) * 1e9)

    # ---- a turn

    def _run_once(self) -> None:
        self._forget_cancelled()
        waited_for = self._descriptors_ready()
        if not self._ready and not waited_for and not self._stopping:
            self._jump()
            waited_for = self._descriptors_ready()
        self._count_turn()
        self._ready.extend(waited_for)
        while self._scheduled and self._scheduled[0]._when <= self._now:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._ready.append(handle)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle._cancelled:
                self._run(handle)

    def _run(self, handle: Any) -> None:
        process: Process | None = handle._context.get(PROCESS)
        if process is None or process.state is State.RUNNING:
            handle._run()
        elif process.state is State.PAUSED:
            process.held.append(handle)

    def _forget_cancelled(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        if self._timer_cancelled_count > CANCELLED_MAX:
            for handle in self._scheduled:
                handle._scheduled = not handle._cancelled
            self._scheduled = [handle for handle in self._scheduled if not handle._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0

    def _jump(self) -> None:
        if not self._scheduled:
            raise Deadlock(f"at {self._now:.6f} s nothing is left to happen")
        self._now = max(self._now, self._scheduled[0]._when)
        self._turns_now = 0
        if self._now > self.seconds_max:
            raise Endless(f"the clock has reached {self._now:.0f} s")

    def _count_turn(self) -> None:
        self._turns_now += 1
        if self._turns_now > TURNS_AT_ONCE_MAX:
            raise Endless(f"the clock stands at {self._now:.6f} s, and something is always ready")

    # ---- descriptors

    def register(self, fd: int, descriptor: Descriptor) -> None:
        self._descriptors[fd] = descriptor

    def unregister(self, fd: int) -> None:
        """Before it is closed: the number may be another's soon."""
        self._descriptors.pop(fd, None)
        self.remove_reader(fd)
        self.remove_writer(fd)

    def _descriptors_ready(self) -> list[asyncio.Handle]:
        """Of processes that run: those of others would be ready for ever."""
        readers = [handle for fd, handle in self._readers.items() if self._descriptors[fd].is_readable]
        writers = [handle for fd, handle in self._writers.items() if self._descriptors[fd].is_writable]
        return [handle for handle in (*readers, *writers) if _may_run(handle)]

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        assert fd in self._descriptors, "only what is simulated can be waited for"
        self.remove_reader(fd)
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return _cancel(self._readers.pop(fd, None))

    def add_writer(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        assert fd in self._descriptors, "only what is simulated can be waited for"
        self.remove_writer(fd)
        self._writers[fd] = asyncio.Handle(callback, args, self)

    def remove_writer(self, fd: Any) -> bool:
        return _cancel(self._writers.pop(fd, None))

    # ---- executors

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """One after the other, as in an executor of one thread. The default one has many, so there all may overlap."""
        future: asyncio.Future[T] = self.create_future()
        context = copy_context()
        if executor is None:
            self.call_later(self._work_s(), _work, future, func, args, context=context)
        else:
            if executor not in self._executors:
                self._executors[executor] = Channel(self, self._work_s)
            self._executors[executor].send(_work, future, func, args, context=context)
        return future

    def _work_s(self) -> float:
        return self.random.uniform(*WORK_S)

    def _write_to_self(self) -> None:
        """There is nobody else who could be waiting for a socket while something is posted."""


def _cancel(handle: asyncio.Handle | None) -> bool:
    if handle is None:
        return False
    handle.cancel()
    return True


def _may_run(handle: Any) -> bool:
    process: Process | None = handle._context.get(PROCESS)
    return process is None or process.state is State.RUNNING


def _work(future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        result = func(*args)
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task
