"""Group commit: threads that sync files while the event loop goes on.

A partition has at most one sync under way. What is written meanwhile shares the next one, so the cost of a sync is
spread over everything that arrived during the one before. What could not even be opened, for want of descriptors, is no
failed sync: the device was not asked, so it is asked again, and whoever waits goes on waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

from penstock.storage.disk import NotOpened

log = logging.getLogger("penstock.partition")

OPEN_AGAIN_S: Final = 0.5

Done = Callable[[OSError | None], None]


class Syncable(Protocol):
    """A segment, or a file beside it."""

    def sync(self) -> None: ...


class Commits(Protocol):
    """Whoever syncs files, and says so on the event loop."""

    @property
    def is_busy(self) -> bool: ...
    def sync(self, files: list[Syncable], done: Done) -> None: ...
    def close(self) -> None: ...


Job = tuple[list[Syncable], Done]


class Committer:
    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 4) -> None:
        self._loop = loop
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._ended: deque[tuple[Job, OSError | None]] = deque()  # the loop does not know yet
        self._put_off: list[Job] = []
        self._closed = False

    @property
    def is_busy(self) -> bool:
        return self._busy > 0

    def sync(self, files: list[Syncable], done: Done) -> None:
        """Calls `done` on the loop once the files are on the device, or with the error that says they are not."""
        if self._closed:
            return  # whoever stops the broker syncs what is left, and sees the errors of that
        self._busy += 1
        if self._busy > len(self._threads) and len(self._threads) < self._threads_max:
            thread = threading.Thread(target=self._run, name=f"commit-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((files, done))

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                for file in job[0]:
                    file.sync()
                error = None
            except OSError as failure:
                error = failure
            except Exception as failure:  # whoever waits must learn that nothing is known of the data
                error = OSError(repr(failure))
            self._ended.append((job, error))
            try:
                self._loop.call_soon_threadsafe(self._finish)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _finish(self) -> None:
        if not self._ended:
            return
        job, error = self._ended.popleft()
        if isinstance(error, NotOpened) and not self._closed:
            self._put_off_for_now(job, error)
            return
        self._busy -= 1
        job[1](error)

    def _put_off_for_now(self, job: Job, error: NotOpened) -> None:
        if not self._put_off:
            log.warning("not synced yet, and tried again: %s", error)
        self._put_off.append(job)
        self._loop.call_later(OPEN_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        if self._put_off:
            self._queue.put(self._put_off.pop(0))

    def close(self) -> None:
        """Whoever waits for a sync that is under way is told before this returns: a failure must not be overlooked."""
        self._closed = True
        while self._put_off:
            self._try_again()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        while self._ended:
            self._finish()
