"""A segment: a file of whole record batches in offset order, and its index.

Batches lie end to end, exactly as producers sent them but for the stamped offset, leader epoch and, where the topic
asks for it, timestamp. The file is named by the offset it begins at. The last segment of a log is active and grows;
the others are sealed and never change until they are deleted or replaced by compaction.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.protocol.record_batch import CONTROL_BIT, HEADER, HEADER_SIZE
from penstock.storage import aborted as aborted_transactions
from penstock.storage import index as indexes
from penstock.storage.aborted import AbortedTransaction, Marker
from penstock.storage.disk import Disk, File
from penstock.storage.index import Entry, Footer, Index

NO_TIMESTAMP: Final = -1
WALK_CHUNK_FIRST: Final = 4 * 1024  # a walk from an index entry mostly ends within the index interval
WALK_CHUNK: Final = 64 * 1024
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
LOG_OVERHEAD: Final = 12  # base offset and length, the two fields that the length does not count
INDEX_POSITION_MAX: Final = 2**32 - 1


class Batch(NamedTuple):
    """Where a batch lies, and what its header says."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    crc: int

    @property
    def end(self) -> int:
        return self.position + self.size


class CorruptSegment(Exception):
    """What stands at a position is not a batch, or not the one that belongs there."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}.{suffix}"


class Segment:
    __slots__ = (
        "_aborted", "_file", "_index", "base_offset", "checked_from", "checked_to", "created_ms", "directory", "disk",
        "first_timestamp_ms", "indexed_to", "is_elsewhere", "max_timestamp_ms", "max_timestamp_offset",
        "name_is_durable", "sealed_to", "size", "trusted_from", "was_used",
    )  # fmt: skip

    def __init__(self, disk: Disk, directory: Path, base_offset: int, *, size: int, created_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size  # what was written; a batch that is only staged does not count
        self.created_ms = created_ms
        self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset  # of the batch that holds it
        self.indexed_to = 0  # the next index entry is due at this position
        self.name_is_durable = True
        self.was_used = False  # since somebody last looked for what may be closed
        # What was written by this process needs no check; of what it found, the part that was checked lately.
        self.trusted_from = size
        self.checked_from = self.checked_to = 0
        self.is_elsewhere = False  # the files do not have their names yet
        self.sealed_to = 0  # so much of it is on the device and covered by the index file
        self._file: File | None = None
        self._index: Index | None = None
        self._aborted: list[AbortedTransaction] | None = None

    @classmethod
    def create(cls, disk: Disk, directory: Path, base_offset: int, now_ms: int) -> Segment:
        segment = cls(disk, directory, base_offset, size=0, created_ms=now_ms)
        segment._file = disk.open(segment.path("log"), create=True)
        if segment._file.size:  # a log that was not opened the right way must not cost anyone their data
            raise FileExistsError(errno.EEXIST, "a segment is here already", str(segment.path("log")))
        segment._index = Index()
        segment._aborted = []
        segment.name_is_durable = False
        return segment

    def path(self, suffix: str) -> Path:
        return self.directory / file_name(self.base_offset, suffix)

    @property
    def file(self) -> File:
        self.was_used = True
        if self._file is None:
            self._file = self.disk.open(self.path("log"))
        return self._file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def sync(self) -> None:
        """In a thread: the data, and the names that lead to it if they are new."""
        if self.sealed_to == self.size and self.name_is_durable:
            return  # sealed before, or removed
        self.file.sync()
        if not self.name_is_durable:
            self.disk.sync_directory(self.directory)
            self.disk.sync_directory(self.directory.parent)
            self.name_is_durable = True

    def close(self) -> None:
        """Lets go of the descriptor and the index; they come back when they are needed."""
        if not self.is_elsewhere:
            self._file = None
            self._index = None
            if self.sealed_to == self.size and self._aborted:  # that there are none is worth keeping: readers ask often
                self._aborted = None

    def open_elsewhere(self, log: Path, index: Path) -> None:
        """Files that are still to take this segment's names: until they have, nothing is opened by name."""
        found = indexes.load(self.disk.map(index))
        self._file = self.disk.open(log)
        self.is_elsewhere = True
        if found is not None:
            self._index = found[0]
        else:
            self.rebuild_index()

    @property
    def index(self) -> Index:
        index = self._index
        if index is None:
            found = indexes.load(self.disk.map(self.path("index")))
            if found is None or found[1].segment_size != self.size:
                return self.rebuild_index()
            index = self._index = found[0]
            if self._aborted is None:  # the footer speaks of the segment as it is now: soon it may grow
                self._aborted = self.saved_aborted(found[1])
        return index

    @index.setter
    def index(self, index: Index) -> None:
        self._index = index

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The transactions whose abort marker is here. Raises CorruptSegment if that must be learnt again."""
        if self._aborted is None:
            footer = indexes.read_footer(self.disk.map(self.path("index")) or b"")
            found = None
            if footer is not None and footer.segment_size == self.size:
                found = self.saved_aborted(footer)
            if found is None:
                raise CorruptSegment(f"{self.path('aborted')}: what was aborted is not known")
            self._aborted = found
        return self._aborted

    @aborted.setter
    def aborted(self, aborted: list[AbortedTransaction]) -> None:
        self._aborted = aborted

    def saved_aborted(self, footer: Footer) -> list[AbortedTransaction] | None:
        """Those that the footer vouches for."""
        if not footer.aborted:
            return []
        return aborted_transactions.load(self.disk.read(self.path("aborted")), footer.aborted, footer.aborted_crc)

    def read_marker(self, batch: Batch) -> Marker | None:
        if batch.size > aborted_transactions.MARKER_BYTES_MAX:
            return None
        return aborted_transactions.read_marker(self.file.read(batch.size, batch.position))

    def rebuild_index(self, interval_bytes: int = 4096) -> Index:
        """From the batches themselves: an index that is lost or lies costs time, never data."""
        index, due, newest = Index(), 0, NO_TIMESTAMP
        has_markers = False
        for batch in self.batches(0):
            has_markers = has_markers or batch.attributes & CONTROL_BIT != 0
            if batch.position >= due:
                index.add(batch.base_offset - self.base_offset, batch.position, newest)
                due = batch.position + interval_bytes
            newest = max(newest, batch.max_timestamp)
        self._index = index
        if self._aborted is None and not has_markers:
            self._aborted = []
        return index

    def seal(self) -> None:
        """In a thread, once the segment has stopped growing: all of it on the device, then the index that says so."""
        self.sync()
        self.save_index(self.size)
        self._index = None  # from here on it is mapped

    def save_index(self, covered: int) -> None:
        """In a thread, while the segment may grow: call it only after the first `covered` bytes were synced."""
        end_offset = self._end_offset(covered)
        try:
            aborted = aborted_transactions.dump(each for each in self.aborted if each.last_offset < end_offset)
        except CorruptSegment:
            return  # until the log has learnt it again, nothing may vouch for this segment
        if aborted:
            self.disk.replace(self.path("aborted"), aborted, durable=True)
        footer = Footer(
            covered, end_offset, self.created_ms, self.first_timestamp_ms, self.max_timestamp_ms,
            self.max_timestamp_offset, len(aborted) // aborted_transactions.ENTRY.size, crc32c(aborted),
        )  # fmt: skip
        self.disk.replace(self.path("index"), self.index.dump(footer), durable=False)
        self.sealed_to = covered
        if self.size < covered:  # cut meanwhile: the index must not vouch for what is written there next
            self.sealed_to = 0
            self.disk.remove(self.path("index"))

    def _end_offset(self, position: int) -> int:
        """Behind the last batch before the position; the base offset if there is none."""
        entry = self.index.last_within(position - 1) if position else None
        end = self.base_offset
        for batch in self.batches(entry.position if entry else 0, position):
            end = batch.last_offset + 1
        return end

    def cut(self, position: int) -> None:
        """Takes away the batches at the position and behind it. Durable on return, as is what else went before."""
        index, file, aborted = self.index, self.file, self.aborted
        self.disk.remove(self.path("index"))  # it vouches for bytes that will be others
        self.disk.sync_directory(self.directory)
        file.truncate(position)
        file.sync()
        index.truncate(position)
        self._index = index
        self.size = self.indexed_to = position
        end_offset = self._end_offset(position)
        self._aborted = [each for each in aborted if each.last_offset < end_offset]
        self.trusted_from = min(self.trusted_from, position)
        self.sealed_to = 0
        self._find_times()

    def _find_times(self) -> None:
        self.first_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        for batch in self.batches(0):
            self.note_times(batch.base_offset, batch.max_timestamp)

    def note_times(self, base_offset: int, max_timestamp_ms: int) -> None:
        """What a batch that is already in the segment says about time."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = base_offset
            if self.first_timestamp_ms < 0:
                self.first_timestamp_ms = max_timestamp_ms

    def batches(self, position: int, end: int | None = None) -> Iterator[Batch]:
        """The batches from a position that one begins at, by their headers; raises where there is none."""
        end = self.size if end is None else end
        file = self.file
        chunk, chunk_at, chunk_size = b"", position, WALK_CHUNK_FIRST
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = file.read(min(chunk_size, end - position), position), position, 0
                chunk_size = min(chunk_size * 4, WALK_CHUNK)
            batch = parse(chunk, at, position)
            if batch.end > end:
                raise CorruptSegment(f"{self.path('log')}: the batch at {position} runs past the end")
            yield batch
            position = batch.end

    def find(self, offset: int) -> Batch | None:
        """The batch that holds the offset, or the first one behind it."""
        entry = self.index.at_or_before(offset - self.base_offset)
        if entry is None:
            found = self.batches(0)
        elif entry.position >= self.size:
            return None  # a batch that is only staged
        else:
            following = self._batches_from(entry)
            if following is None:
                self.rebuild_index()
                return self.find(offset)
            found = following
        return next((batch for batch in found if batch.last_offset >= offset), None)

    def _batches_from(self, entry: Entry) -> Iterator[Batch] | None:
        """None if the entry does not point to the batch that it names."""
        batches = self.batches(entry.position)
        try:
            first = next(batches)
        except CorruptSegment:
            return None
        return chain((first,), batches) if first.base_offset == self.base_offset + entry.relative_offset else None

    def remove(self, suffixes: tuple[str, ...] = ("log", "index", "snapshot", "aborted")) -> None:
        self.close()
        self.sealed_to, self.name_is_durable = self.size, True
        for suffix in suffixes:
            self.disk.remove(self.path(suffix))


def parse(buffer: bytes | memoryview, at: int, position: int) -> Batch:
    if at + HEADER_SIZE > len(buffer):
        raise CorruptSegment(f"only {len(buffer) - at} bytes at {position}")
    (
        base_offset, length, leader_epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(buffer, at)  # fmt: skip
    if magic != 2 or length < HEADER_SIZE - LOG_OVERHEAD or last_delta < 0 or base_offset < 0:
        raise CorruptSegment(f"no record batch at {position}")
    return Batch(
        position, length + LOG_OVERHEAD, base_offset, base_offset + last_delta, leader_epoch, attributes,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count, crc,
    )  # fmt: skip
