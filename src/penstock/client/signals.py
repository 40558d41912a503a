"""SIGTERM and SIGINT end the reading after the message in hand, instead of in the midst of it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ending_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """While this lasts, the first signal calls `stop`, and a second one does what it did before.

    Only the main thread can have handlers: in another one, nothing changes. The old handlers come back in the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        stop()

    for number in SIGNALS:
        previous = signal.getsignal(number)
        if previous is not None and previous is not signal.SIG_IGN:  # None: not set from Python, so not ours to restore
            before[number] = previous
            signal.signal(number, handle)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            restore()


@contextmanager
def ending_on_signals_of_loop(stop: Callable[[], object]) -> Iterator[None]:
    """The same through the running loop: only there can a signal end its wait."""
    loop = asyncio.get_running_loop()
    before: list[tuple[int, Any]] = []
    for number in SIGNALS:
        previous = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, stop)
        except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or a loop that has no signals
            continue
        before.append((number, previous))
    try:
        yield
    finally:
        for each, handler in before:
            loop.remove_signal_handler(each)
            signal.signal(each, handler)
