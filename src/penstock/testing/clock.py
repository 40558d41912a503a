"""The clock of brokers under test, and an event loop that lives by it: both can be put forward.

A timer of the loop is due when its clock says so, so moving the clock is all it takes for everything that waits with
`call_later`, `sleep` or `timeout` to happen. The way there is gone in steps, from one timer to the next where they are
far apart, so that what one timer sets going has its own timers seen on the way. Neither clock ever goes back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, TypeVar, TypeVarTuple

from penstock.testing.arguments import BadArgument, check_number

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 100
TURNS_MAX = 10_000  # of a loop that finds something to do again and again
REST_S = 0.0005
QUIET_S_MAX = 2.0  # for work in threads
PARTS_S = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}
ADVANCE_S_MAX = 36_525 * PARTS_S["days"]


class Clock:
    """How far ahead of this machine's clocks it is, and the clocks with that added."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def wall_ns(self) -> int:
        return time.time_ns() + self.ahead_ns

    def steady_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ns


class TravellingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._in_threads = 0
        # As the class above has them; they are named here for those who read this.
        self._ready: deque[Any]
        self._scheduled: list[Any]

    def time(self) -> float:
        return self._clock.steady_ns() / 1e9

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._out_of_thread)
        return future

    def _out_of_thread(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    def until_next_s(self) -> float:
        """Until the next timer is due, 0 if one is overdue; without any, for ever."""
        whens = [handle.when() for handle in self._scheduled if not handle.cancelled()]
        return max(min(whens) - self.time(), 0.0) if whens else float("inf")

    async def settle(self) -> float:
        """Lets everything happen that can happen now; then says when the next timer is due."""
        give_up = time.monotonic() + QUIET_S_MAX
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if self._ready:
                continue
            if not self._in_threads or time.monotonic() > give_up:
                break
            await asyncio.sleep(REST_S)
        return self.until_next_s()


def advance(
    clock: Clock, loops: Sequence[TravellingLoop], seconds: float, before_step: Callable[[float], None] | None = None
) -> None:
    """From another thread than theirs. Returns when what has become due has happened on all of the loops."""
    left = seconds
    next_s = _settled(loops)
    while left > 0:
        step = min(max(next_s, seconds / STEPS_MAX), left)
        if before_step is not None:
            before_step(step)
        clock.ahead_ns += round(step * 1e9)
        left -= step
        next_s = _settled(loops)


def _settled(loops: Sequence[TravellingLoop]) -> float:
    settling: list[Future[float]] = [asyncio.run_coroutine_threadsafe(loop.settle(), loop) for loop in loops]
    return min((each.result() for each in settling), default=float("inf"))


def duration_s(by: timedelta | float | None, **parts: float) -> float:
    """Seconds, from what `advance` was given; raises if that is nothing, or goes back, or beyond what clocks show."""
    given = by.total_seconds() if isinstance(by, timedelta) else check_number(0.0 if by is None else by, "the time")
    seconds = given + sum(check_number(each, name) * PARTS_S[name] for name, each in parts.items())
    if not 0 < seconds <= ADVANCE_S_MAX:
        raise BadArgument(f"time goes forward only, by a century at most, not by {seconds} s: say advance(minutes=10)")
    return seconds
