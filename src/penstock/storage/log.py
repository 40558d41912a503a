"""One partition's log: segments in offset order, the last of them growing.

Appending has two steps, so that all batches of a loop turn cost one write: `stage` gives a batch its place and keeps a
view of the caller's memory, `write_staged` writes what was staged. Until then the memory must not change. What could
not be written is taken back whole: offsets, index and producer state are as before.

Invariants: offsets only rise; `start_offset <= end_offset <= next_offset`; `end_offset` is behind the last batch in
the file, `next_offset` behind the last one staged.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.storage import leader_epochs, producer_state
from penstock.storage.disk import Buffer, Disk, File
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producer_state import Producers
from penstock.storage.segment import Batch, Segment, file_name

POSITIONS_REMEMBERED = 256
RELATIVE_OFFSET_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What storage needs to know of a topic's settings, under Kafka's names."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    retention_ms: int = 14 * 24 * 3600 * 1000
    retention_bytes: int = -1
    compact: bool = False
    delete: bool = True
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    producer_expiration_ms: int = 24 * 3600 * 1000


class LogPosition(NamedTuple):
    """An offset that a batch begins at (or the log's end), and where that is."""

    offset: int
    segment: Segment | None
    position: int


class FileRange:
    """Bytes of a log, not read yet. It keeps the file open."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read(self.size, self.position)

    def after(self, sent: int) -> FileRange:
        return FileRange(self.file, self.position + sent, self.size - sent)


class Log:
    __slots__ = (
        "_epochs", "_positions", "_producers", "active", "directory", "disk", "end_offset", "next_offset", "segments",
        "settings", "staged", "staged_bytes", "start_offset",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, directory: Path, settings: LogSettings, segments: list[Segment], start: int, end: int
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.segments = segments
        self.active: Segment | None = segments[-1] if segments else None
        self.start_offset = start
        self.end_offset = end
        self.next_offset = end
        self.staged: list[Buffer] = []
        self.staged_bytes = 0
        self._positions: dict[int, tuple[Segment, int]] = {}  # where a fetch that ended at an offset goes on
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None

    # ---- appending

    def stage(self, batch: Buffer, size: int, base_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        """The batch's bytes must already carry `base_offset`, which is at least `next_offset`."""
        segment = self.active
        if segment is None or self._is_full(segment, size, last_offset, now_ms):
            segment = self.roll(base_offset, now_ms)
        position = segment.size + self.staged_bytes
        if position >= segment.indexed_to:
            segment.index.add(base_offset - segment.base_offset, position, segment.max_timestamp_ms)
            segment.indexed_to = position + self.settings.index_interval_bytes
        if max_timestamp_ms > segment.max_timestamp_ms:
            segment.max_timestamp_ms = max_timestamp_ms
            segment.max_timestamp_offset = base_offset
            if segment.first_timestamp_ms < 0:
                segment.first_timestamp_ms = max_timestamp_ms
        self.staged.append(batch)
        self.staged_bytes += size
        self.next_offset = last_offset + 1

    def _is_full(self, segment: Segment, size: int, last_offset: int, now_ms: int) -> bool:
        held = segment.size + self.staged_bytes
        return held > 0 and (
            held + size > self.settings.segment_bytes
            or now_ms - segment.created_ms > self.settings.segment_ms
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        )

    def write_staged(self) -> None:
        """Raises OSError with nothing of it in the log."""
        segment = self.active
        assert segment is not None
        staged, size = self.staged, self.staged_bytes
        self.staged, self.staged_bytes = [], 0
        try:
            segment.file.append(staged, size)
        except OSError:
            self._forget_from(segment, segment.size, self.end_offset)
            raise
        segment.size += size
        self.end_offset = self.next_offset

    def _forget_from(self, segment: Segment, position: int, offset: int) -> None:
        segment.index.truncate(position)
        segment.indexed_to = position
        self.next_offset = self.end_offset = offset
        self._producers = None  # read again from the last snapshot and the log

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begins a new active segment at the offset. The caller seals the former one when it has time to sync."""
        if self.staged:
            self.write_staged()
        if self.active is None:
            self.disk.make_directory(self.directory)
        elif self._producers is not None and self._producers.entries:
            self.disk.replace(self.directory / file_name(base_offset, "snapshot"), self._producers.dump(), durable=False)
        segment = Segment.create(self.disk, self.directory, base_offset, now_ms)
        self.segments.append(segment)
        self.active = segment
        return segment

    # ---- reading

    @property
    def end(self) -> LogPosition:
        return LogPosition(self.end_offset, self.active, self.active.size if self.active else 0)

    def segment_of(self, offset: int) -> int:
        """The index of the segment that holds the offset, or would."""
        segments = self.segments
        last = len(segments) - 1
        if last <= 0 or offset >= segments[last].base_offset:
            return last
        return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)

    def read(self, offset: int, max_bytes: int, until: LogPosition, at_least_one: bool = True) -> FileRange | None:
        """Whole batches from the one that holds the offset, up to `until`, and up to `max_bytes` unless the first
        batch alone is larger (KIP-74). None if there is nothing to read or it does not fit."""
        if offset >= until.offset:
            return None
        known = self._positions.get(offset)
        if known is not None:
            segment, position = known
        else:
            found = self._locate(offset)
            if found is None:
                return None
            segment, position = found
        return self._range(segment, position, max_bytes, until, at_least_one)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        for segment in self.segments[self.segment_of(offset) :]:
            batch = segment.find(offset) if segment.size else None
            if batch is not None:
                return segment, batch.position
        return None

    def _range(
        self, segment: Segment, position: int, max_bytes: int, until: LogPosition, at_least_one: bool
    ) -> FileRange | None:
        end, next_offset = segment.size, -1
        if segment is until.segment:
            end, next_offset = until.position, until.offset
        if end - position > max_bytes:
            entry = segment.index.last_within(position + max_bytes)
            if entry is not None and entry.position > position:
                end, next_offset = entry.position, segment.base_offset + entry.relative_offset
            else:
                end, next_offset = self._walk(segment, position, end, max_bytes)
                if end - position > max_bytes and not at_least_one:
                    return None
        if end <= position:
            return None
        if next_offset >= 0:
            positions = self._positions
            if len(positions) >= POSITIONS_REMEMBERED:
                positions.clear()
            positions[next_offset] = (segment, end)
        return FileRange(segment.file, position, end - position)

    def _walk(self, segment: Segment, position: int, end: int, max_bytes: int) -> tuple[int, int]:
        """Behind the last batch that fits, but at least behind the first one."""
        stop, next_offset = position, -1
        for batch in segment.batches(position, end):
            if batch.end - position > max_bytes and stop > position:
                break
            stop, next_offset = batch.end, batch.last_offset + 1
        return stop, next_offset

    def batch_at(self, offset: int) -> Batch | None:
        """The batch that holds the offset, or the next one."""
        found = self._locate(offset)
        return next(found[0].batches(found[1]), None) if found else None

    def forget_positions(self) -> None:
        """After anything but an append changed the segments."""
        self._positions.clear()

    # ---- what goes with the log

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            self._producers = self._load_producers()
        return self._producers

    def _load_producers(self) -> Producers:
        snapshots = sorted(
            (int(n[:-9]) for n in self.disk.names(self.directory) if n.endswith(".snapshot") and n[:-9].isdigit()),
            reverse=True,
        )
        for offset in snapshots:
            data = self.disk.read(self.directory / file_name(offset, "snapshot")) if offset <= self.end_offset else None
            if data is not None and (producers := producer_state.load(data)) is not None:
                return self._replay_producers(producers, offset)
        return self._replay_producers(Producers(), self.start_offset)

    def _replay_producers(self, producers: Producers, offset: int) -> Producers:
        if not self.segments:
            return producers
        for segment in self.segments[self.segment_of(offset) :]:
            for batch in segment.batches(0) if segment.size else ():
                if batch.base_offset >= offset and batch.producer_id >= 0 and batch.base_sequence >= 0:
                    producers.add(
                        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base_offset,
                        batch.last_offset, batch.max_timestamp,
                    )  # fmt: skip
        return producers

    def save_producers(self) -> None:
        """A snapshot at the end of the log: with it, opening the log reads no batch."""
        if self._producers is not None and (self._producers.entries or self._has_snapshots()):
            path = self.directory / file_name(self.end_offset, "snapshot")
            self.disk.replace(path, self._producers.dump(), durable=False)

    def _has_snapshots(self) -> bool:
        return any(name.endswith(".snapshot") for name in self.disk.names(self.directory))

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = leader_epochs.load(self.disk, self.directory)
        return self._epochs

    def begin_epoch(self, epoch: int) -> None:
        if self.epochs.begin(epoch, self.next_offset):
            self.disk.make_directory(self.directory)
            self.epochs.save(self.disk, self.directory)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
