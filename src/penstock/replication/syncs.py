"""What of a partition is written and not on the device yet, and the one sync that is under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.replication.commit import Commits, Syncable
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogPosition
from penstock.storage.segment import Segment

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


class Syncs:
    __slots__ = ("_again", "_committer", "_files", "_log", "_quiet", "_synced", "under_way")

    def __init__(self, log: Log, committer: Commits, synced: Synced) -> None:
        """`synced` is told where the log ended when a sync began, once it has ended."""
        self._log = log
        self._committer = committer
        self._synced = synced
        self._files: list[Syncable] = []
        self._again = False  # something was written since the one under way began
        self._quiet: list[Callable[[], None]] = []
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
