"""SIGTERM and SIGINT end the reading after the message in hand, instead of in the midst of it.

A process has one handler of each signal, and may have many that read: tasks of a loop, or a queue within a loop over
messages, and they end in any order. So there is one handler for all of them, from the first until the last is over.
It only sets what those that read look at a few times a second; asyncio's loop need not be woken for that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Stop = Callable[[], object]


class _Ending:
    """Who is told of a signal, and what the signals did before."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []
        self._before: dict[int, Any] = {}

    def add(self, stop: Stop) -> None:
        self._stops.append(stop)
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if previous is None or previous is signal.SIG_IGN or previous == self._handle:
                continue  # None: not set from Python, so not ours to restore
            self._before[number] = previous
            signal.signal(number, self._handle)

    def remove(self, stop: Stop) -> None:
        if stop in self._stops:  # a signal has told it, otherwise
            self._stops.remove(stop)
        if not self._stops and threading.current_thread() is threading.main_thread():
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
        if not told:  # the last one ended in another thread, which can't restore
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
