"""What of a partition is written and not on the device yet, and the one sync that is under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.replication.commit import Commits, Syncable
from penstock.storage.disk import Disk, File
from penstock.storage.log import Log, LogPosition
from penstock.storage.segment import Segment

PIECE_BYTES: Final = 2 * 1024 * 1024
PIECES_MAX: Final = 8

Synced = Callable[[LogPosition, OSError | None], None]


class SmallFile:
    """A file that was replaced whole and not synced yet, nor its name."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        """In a thread."""
        self._disk.open(self.path, writable=False).sync()
        self._disk.sync_directory(self.path.parent)


class Piece:
    """A part of a file whose memory goes to others once it is on the device. Synced before it, in the same thread."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def sync(self) -> None:
        self._file.forget(self._position, self._size)


class Syncs:
    __slots__ = (
        "_again", "_committer", "_files", "_log", "_quiet", "_synced", "_written_back", "piece_bytes", "pieces_max",
        "under_way",
    )  # fmt: skip

    def __init__(self, log: Log, committer: Commits, synced: Synced) -> None:
        """`synced` is told where the log ended when a sync began, once it has ended."""
        self._log = log
        self._committer = committer
        self._synced = synced
        self._files: list[Syncable] = []
        self._again = False  # something was written since the one under way began
        self._quiet: list[Callable[[], None]] = []
        self._written_back: tuple[Segment, int] | None = None  # up to here, since the log was copied from afar
        self.piece_bytes = PIECE_BYTES  # of what is written back because nobody reads it soon
        self.pieces_max = PIECES_MAX  # on their way at once
        self.under_way = False

    def add(self, file: Syncable) -> None:
        """It goes with the next sync."""
        if file not in self._files:
            self._files.append(file)

    def begin(self) -> None:
        """All that was written so far goes to the device: now, or when the sync that is under way has ended."""
        active = self._log.active
        assert active is not None
        self.add(active)
        if self.under_way:
            self._again = True
            return
        self.under_way = True
        files, self._files = self._files, []
        end = self._log.end
        self._committer.sync(files, lambda error: self._ended(end, error))

    def write_back(self) -> bool:
        """Called between copies of what nobody reads soon: brings it to the device a piece at a time, and gives its
        memory back. Kept, it would push out what is read, and gigabytes that wait to be written hold up everyone who
        writes. What comes next is written gently. False while so much is on its way that no more should come."""
        active = self._log.active
        if active is None:
            return True
        active.file.gently = True
        if self._written_back is None:
            self._written_back = active, active.size
            return True
        segment, position = self._written_back
        if segment is not active:
            self._give_back(segment, position)
            segment, position = active, 0
            self.begin()  # or pieces of short segments would wait for a sync that nobody begins
        position = min(position, segment.size)  # which was cut, perhaps
        if segment.size - position >= self.piece_bytes:
            self._give_back(segment, position)
            position = segment.size
            self.begin()
        self._written_back = segment, position
        return sum(isinstance(file, Piece) for file in self._files) < self.pieces_max

    def _give_back(self, segment: Segment, position: int) -> None:
        if segment.size > position:
            self.add(segment)
            self._files.append(Piece(segment.file, position, segment.size - position))

    def keep(self) -> None:
        """What is copied from now on is likely to be read, and waited for."""
        if self._written_back is not None:
            self._written_back = None
            if self._log.active is not None:
                self._log.active.file.gently = False

    def _ended(self, end: LogPosition, error: OSError | None) -> None:
        self.under_way = False
        quiet, self._quiet = self._quiet, []
        for wake in quiet:
            wake()
        self._synced(end, error)

    def go_on(self) -> None:
        """With what had to wait for the last one."""
        if self._again:
            self._again = False
            self.begin()

    def when_quiet(self, wake: Callable[[], None]) -> None:
        """Calls back when no sync is under way, for the moment."""
        if self.under_way:
            self._quiet.append(wake)
        else:
            wake()

    def sync_rest(self) -> None:
        """At a clean stop, in a thread: what nobody has waited for."""
        for file in self._files:
            file.sync()
        self._files = []

    def was_cut(self, held: list[Segment]) -> None:
        """Segments that are no part of the log any more need no sync."""
        self._files = [file for file in self._files if not isinstance(file, Segment) or file in held]
