"""Brings what lies on the device into the page cache, in threads, so that it can be sent without waiting for it.

`sendfile` waits for the device wherever it must, and everyone whom the loop serves would wait with it: one consumer
that reads old data would be felt by all producers (Kafka has that: KAFKA-7504).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

THREADS = 4


class Bringable(Protocol):
    def bring(self, size: int) -> None:
        """Waits until so much of its beginning is in the page cache."""


class ColdReads:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="read")

    def bring(self, part: Bringable, size: int, done: Callable[[], None]) -> None:
        """Calls back when it was tried. What went wrong meets whoever reads it next, too."""
        reading = self._loop.run_in_executor(self._threads, _try_to_bring, part, size)
        reading.add_done_callback(lambda _: done())

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


def _try_to_bring(part: Bringable, size: int) -> None:
    with contextlib.suppress(OSError):
        part.bring(size)
