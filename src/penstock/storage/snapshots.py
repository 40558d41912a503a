"""The files `<offset>.snapshot`: what the log remembered of its producers when it ended at that offset.

One is written whenever a segment begins and at every clean stop, so that finding out about producers never means
reading more than the active segment. A snapshot that can't be trusted is passed over for an older one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.storage import producer_state
from penstock.storage.disk import Disk
from penstock.storage.producer_state import Producers
from penstock.storage.retention import stale_snapshots
from penstock.storage.segment import file_name

SUFFIX = ".snapshot"


def offsets(disk: Disk, directory: Path) -> list[int]:
    """Of all snapshots in the folder, oldest first."""
    stems = (name.removesuffix(SUFFIX) for name in disk.names(directory) if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def save(disk: Disk, directory: Path, offset: int, producers: Producers) -> None:
    """Not synced: one that is lost costs time at the next start, never data."""
    disk.replace(directory / file_name(offset, "snapshot"), producers.dump(), durable=False)


def sync(disk: Disk, directory: Path, offset: int) -> None:
    """Before batches are deleted that the snapshot remembers: from then on it can't be made again."""
    try:
        disk.open(directory / file_name(offset, "snapshot")).sync()
    except FileNotFoundError:
        pass


def read(disk: Disk, directory: Path, offset: int) -> Producers | None:
    data = disk.read(directory / file_name(offset, "snapshot"))
    return None if data is None else producer_state.load(data)


def newest(disk: Disk, directory: Path, offset_max: int) -> tuple[Producers, int] | None:
    for offset in reversed(offsets(disk, directory)):
        if offset <= offset_max and (producers := read(disk, directory, offset)) is not None:
            return producers, offset
    return None


def remove_behind(disk: Disk, directory: Path, end_offset: int) -> None:
    """The log was cut: what stood for more of it would be wrong once the log has grown again."""
    for offset in offsets(disk, directory):
        if offset > end_offset:
            disk.remove(directory / file_name(offset, "snapshot"))


def prune(disk: Disk, directory: Path, segment_bases: Iterable[int]) -> None:
    for offset in stale_snapshots(offsets(disk, directory), segment_bases):
        disk.remove(directory / file_name(offset, "snapshot"))
