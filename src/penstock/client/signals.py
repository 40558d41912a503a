"""SIGTERM and SIGINT end the reading after the message in hand, instead of in the midst of it.

A process has one handler of each signal, and may have many that read: tasks of a loop, or a queue within a loop over
messages, and they end in any order. So there is one handler for all of them, from the first until the last is over.
It only sets what those that read look at a few times a second; asyncio's loop need not be woken for that.

A transaction that only writes has nothing to stop. There a signal that would end the program is held until the
transaction is decided, and ends it then; a handler of the program's own is left to decide what is done.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ENDING = (signal.SIG_DFL, signal.default_int_handler)  # the program, wherever it is

Stop = Callable[[], object]


class _Ending:
    """Who is told of a signal, and what the signals did before."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []
        self._before: dict[int, Any] = {}
        self._holding: list[object] = []  # those that a signal has to wait for
        self._held: int | None = None
        self._held_for: list[object] = []  # those of them that had begun when it came

    def add(self, stop: Stop) -> None:
        if self._held is not None:  # it is told now what it has missed
            self._held, self._held_for = None, []
            stop()
            return
        self._stops.append(stop)
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if previous is None or previous is signal.SIG_IGN or previous == self._handle:
                continue  # None: not set from Python, so not ours to restore
            self._take(number, previous)

    def _take(self, number: int, previous: Any) -> None:
        self._before[number] = previous
        signal.signal(number, self._handle)

    def remove(self, stop: Stop) -> None:
        if stop in self._stops:  # a signal has told it, otherwise
            self._stops.remove(stop)
        self._let_go()

    def hold(self, holder: object) -> None:
        self._holding.append(holder)
        for number in SIGNALS:
            if self._held is None and (previous := signal.getsignal(number)) in ENDING:
                self._take(number, previous)

    def release(self, holder: object) -> None:
        self._holding.remove(holder)
        if holder in self._held_for:
            self._held_for.remove(holder)
        self._let_go()
        if not self._held_for and self._held is not None:
            held, self._held = self._held, None
            signal.raise_signal(held)

    def _let_go(self) -> None:
        if not self._stops and not self._holding and threading.current_thread() is threading.main_thread():
            self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        told, self._stops = self._stops, []
        for stop in told:
            stop()
        if self._holding and not told:
            self._held, self._held_for = number, list(self._holding)
        elif not told:  # the last one ended in another thread, which can't restore
            signal.raise_signal(number)


_ending = _Ending()


@contextmanager
def ending_on_signals(stop: Stop) -> Iterator[None]:
    """While this lasts, the first signal calls `stop`, and a second one does what it did before.

    Only the main thread can have handlers: in another one, nothing changes. The old handlers come back in the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _ending.add(stop)
    try:
        yield
    finally:
        _ending.remove(stop)


@contextmanager
def holding_signals() -> Iterator[None]:
    """While this lasts, a first signal that would end the program does not, and then it does, unless something that
    reads was told to stop instead; a second one is not held. In the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    holder = object()
    _ending.hold(holder)
    try:
        yield
    finally:
        _ending.release(holder)
