"""The folders of deleted topics, on their way out.

They stay for `file.delete.delay.ms`, and longer where a disk has room in plenty, unless new data takes their place
before: what is written frees as much of what was deleted. So the page cache goes on with memory that it has, which is
several times faster where a hypervisor takes free memory back and has to find it again, and a disk need not hold both.
A folder that is still being read stays.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.storage.disk import Disk, File

LOOK_EVERY_S = 0.05
AHEAD = 128 * 1024 * 1024  # freed before it is needed: more than is written between two looks
PIECE = 16 * 1024 * 1024  # less than this is not worth a thread's while
SPARE_BYTES = 2 * 1024**3  # so much in all waits longer for new data,
SPARE_SHARE = 10  # if this many times as much is free,
SPARE_DELAYS = 5  # but no longer than this many times the delay


class Folder(NamedTuple):
    path: Path
    reads: Sequence[weakref.ref[File]]  # the files that were open when it was deleted

    @property
    def is_read(self) -> bool:
        return any(file() is not None for file in self.reads)


class LeavingFolders:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._topics: list[list[Folder]] = []  # those of which something is left
        self._looking = False
        self._written = 0  # what the disk had written when the first of the folders came
        self._freed = 0
        self._spare = 0  # bytes of what stays longer than it must

    def add(self, folders: list[Folder], delay_s: float) -> None:
        """Those of a topic. What is left of them at a stop goes at the next start."""
        loop = asyncio.get_running_loop()
        self._topics.append(folders)
        loop.call_later(delay_s, self._due, loop, folders, delay_s * (SPARE_DELAYS - 1))
        if not self._looking:
            self._looking = True
            self._written, self._freed = self._disk.written, 0
            loop.call_later(LOOK_EVERY_S, self._look, loop)

    def _due(self, loop: asyncio.AbstractEventLoop, folders: list[Folder], longer_s: float) -> None:
        def measured(found: asyncio.Future[tuple[int, int]]) -> None:
            free, held = found.result()
            if loop.is_closed():
                return
            if free < SPARE_SHARE * SPARE_BYTES or self._spare + held > SPARE_BYTES:
                self._remove(loop, folders, 0)
            else:
                self._spare += held
                loop.call_later(longer_s, self._remove, loop, folders, held)

        in_thread(loop, self._measure, folders, then=measured)

    def _measure(self, folders: list[Folder]) -> tuple[int, int]:
        return self._disk.free(folders[0].path.parent), sum(self._disk.held(folder.path) for folder in folders)

    def _remove(self, loop: asyncio.AbstractEventLoop, folders: list[Folder], spare: int) -> None:
        self._spare -= spare
        if folders in self._topics:
            self._topics.remove(folders)
        in_thread(loop, self._remove_now, folders)

    def _remove_now(self, folders: list[Folder]) -> None:
        for folder in folders:
            self._disk.remove_tree(folder.path)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = bool(self._topics)
        if not self._looking:
            return
        written = self._disk.written - self._written
        wanted = written + AHEAD - self._freed
        if written >= PIECE and wanted >= PIECE:
            in_thread(
                loop, self._free, list(self._topics), wanted, then=lambda emptied: self._freed_some(loop, emptied)
            )
        else:
            self._look_later(loop)

    def _freed_some(self, loop: asyncio.AbstractEventLoop, emptied: asyncio.Future[list[list[Folder]]]) -> None:
        """What is empty is not looked at again: its folders may stay for minutes, and there may be hundreds of them."""
        for folders in emptied.result():
            if folders in self._topics:
                self._topics.remove(folders)
        self._look_later(loop)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_later(LOOK_EVERY_S, self._look, loop)

    def _free(self, topics: list[list[Folder]], wanted: int) -> list[list[Folder]]:
        """In a thread, the oldest first, and says which are empty now. All of a topic's partitions alike: they were
        written together, so what is freed of them lies together."""
        emptied = []
        for folders in topics:
            unread = [folder for folder in folders if not folder.is_read]
            left = len(unread) < len(folders)
            for number, folder in enumerate(unread):
                share = -(-wanted // (len(unread) - number))
                freed = self._disk.shrink(folder.path, share) if share > 0 else share
                left = left or freed == share
                self._freed += freed
                wanted -= freed
            if not left:
                emptied.append(folders)
        self._freed += wanted  # what is not there is not looked for again; the next that is written asks for more
        return emptied


def in_thread(
    loop: asyncio.AbstractEventLoop,
    call: Callable[..., Any],
    *arguments: Any,
    then: Callable[[asyncio.Future[Any]], object] | None = None,
) -> None:
    try:
        doing = loop.run_in_executor(None, call, *arguments)
    except RuntimeError:  # the broker stops; what is left goes at the next start
        return
    if then is not None:
        doing.add_done_callback(then)
