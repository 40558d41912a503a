"""One partition's log: segments in offset order, the last of them growing.

Appending has two steps, so that all batches of a loop turn cost one write: `stage` gives a batch its place and keeps a
view of the caller's memory, `write_staged` writes what was staged. Until then the memory must not change. What could
not be written is taken back whole: offsets, index and producer state are as before.

Invariants: offsets only rise; `start_offset <= end_offset <= next_offset`; `end_offset` is behind the last batch in
the file, `next_offset` behind the last one staged.
"""

from __future__ import annotations

import errno
import weakref
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from penstock.storage import checkpoint, leader_epochs, scan, snapshots, times
from penstock.storage.aborted import AbortedTransaction, Marker
from penstock.storage.disk import Buffer, Disk, File
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producer_state import Producers
from penstock.storage.segment import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Batch, CorruptSegment, Segment
from penstock.storage.times import TimedOffset

POSITIONS_REMEMBERED: Final = 256
READ_NOW_MAX: Final = 64 * 1024
SENT_AT_ONCE: Final = 512 * 1024
NO_PRODUCERS: Final = -1  # in place of a snapshot's offset: nothing was ever written by a producer that has an id


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
    retention_hold_group: str = ""  # none
    retention_hold_max_bytes: int = -1

    def __post_init__(self) -> None:
        if self.compact:  # what must be compacted by some time can't stay in the active segment for longer (KIP-354)
            object.__setattr__(self, "segment_ms", min(self.segment_ms, max(self.max_compaction_lag_ms, 1)))


class LogPosition(NamedTuple):
    """An offset that a batch begins at (or the log's end), and where that is."""

    offset: int
    segment: Segment | None
    position: int


class FileRange:
    """Bytes of a log, not read yet. It keeps the file open."""

    __slots__ = ("at_once", "end_offset", "file", "position", "size")

    def __init__(self, file: File, position: int, size: int, end_offset: int = -1, at_once: int = SENT_AT_ONCE) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.end_offset = end_offset  # behind the last batch, or more if that is not known
        self.at_once = at_once  # how much may be sent before others have their turn

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read(self.size, self.position)

    def at_hand(self) -> bytes | FileRange:
        """Few bytes are read at once; more go from the page cache to the socket by themselves."""
        return self.file.read(self.size, self.position) if self.size <= READ_NOW_MAX else self

    def is_at_hand(self, size: int) -> bool:
        return self.file.is_at_hand(self.position, size)

    def bring(self, size: int) -> None:
        self.file.bring(self.position, size)

    def after(self, sent: int) -> FileRange:
        return FileRange(self.file, self.position + sent, self.size - sent, self.end_offset, self.at_once)


class Log:
    __slots__ = (
        "_epochs", "_positions", "_producers", "_written_times", "active", "cleaner_offset", "directory", "disk",
        "dropped", "end_offset", "next_offset", "segments", "settings", "snapshot_offset", "staged", "staged_bytes",
        "start_offset",
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
        self.dropped: list[Segment] = []  # no part of the log any more, but their files are not removed yet
        # Where producers were saved last; None: look into the folder.
        self.snapshot_offset: int | None = None if segments or end else NO_PRODUCERS
        self.cleaner_offset: int | None = None  # what compaction has seen; None: look into the folder
        self._positions: dict[int, tuple[Segment, int]] = {}  # where a fetch that ended at an offset goes on
        self._producers: Producers | None = None
        self._epochs: LeaderEpochs | None = None
        self._written_times = _times(self.active)  # of the active segment without what is staged

    # ---- appending

    def stage(
        self, batch: Buffer, size: int, base_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> None:
        """The batch's bytes must already carry `base_offset`, which is at least `next_offset`."""
        segment, settings = self.active, self.settings
        position = segment.size + self.staged_bytes if segment is not None else 0
        if segment is None or (
            position
            and (
                position + size > settings.segment_bytes
                or _age_ms(segment, max_timestamp_ms, now_ms) > settings.segment_ms
                or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            )
        ):
            segment, position = self.roll(base_offset, now_ms), 0
        if position >= segment.indexed_to:
            segment.index.add(base_offset - segment.base_offset, position, segment.max_timestamp_ms)
            segment.indexed_to = position + settings.index_interval_bytes
        if max_timestamp_ms > segment.max_timestamp_ms:
            segment.max_timestamp_ms = max_timestamp_ms
            segment.max_timestamp_offset = base_offset
            if segment.first_timestamp_ms < 0:
                segment.first_timestamp_ms = max_timestamp_ms
        self.staged.append(batch)
        self.staged_bytes += size
        self.next_offset = last_offset + 1

    def write_staged(self) -> None:
        """Raises OSError with nothing of it in the log."""
        segment = self.active
        assert segment is not None
        staged, size = self.staged, self.staged_bytes
        self.staged, self.staged_bytes = [], 0
        try:
            segment.file.append(staged, size)
        except OSError:
            self._forget_staged(segment)
            raise
        self.disk.written += size
        segment.size += size
        self.end_offset = self.next_offset
        self._written_times = (segment.first_timestamp_ms, segment.max_timestamp_ms, segment.max_timestamp_offset)

    def _forget_staged(self, segment: Segment) -> None:
        segment.index.truncate(segment.size)
        segment.indexed_to = segment.size
        segment.first_timestamp_ms, segment.max_timestamp_ms, segment.max_timestamp_offset = self._written_times
        self.next_offset = self.end_offset
        if self._producers is not None:
            self._producers.cut_end(self.end_offset)
            aborted = self._aborted_in(segment)
            while aborted and aborted[-1].last_offset >= self.end_offset:
                aborted.pop()

    def end_transaction(self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp_ms: int) -> None:
        """The marker was staged at the offset."""
        aborted = self.producers.end_transaction(producer_id, epoch, marker, offset, timestamp_ms)
        if aborted is not None and self.active is not None:
            self._aborted_in(self.active).append(aborted)

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begins a new active segment at the offset. The caller seals the former one when it has time to sync."""
        if self.staged:
            self.write_staged()
        if self.active is None:
            self.disk.make_directory(self.directory)
        else:
            self.save_producers(base_offset)
        segment = Segment.create(self.disk, self.directory, base_offset, now_ms)
        self.segments.append(segment)
        self.active = segment
        self._written_times = _times(segment)
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
        if known is not None and known[1] < known[0].size:
            segment, position = known
        else:  # unknown, or the end of a segment that was active when the last fetch ended there
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
        if position < segment.trusted_from:
            scan.check(segment, position, end)
        if next_offset >= 0:
            positions = self._positions
            if len(positions) >= POSITIONS_REMEMBERED:
                positions.clear()
            positions[next_offset] = (segment, end)
        else:
            following = self.segment_of(segment.base_offset) + 1
            next_offset = self.segments[following].base_offset if following < len(self.segments) else self.end_offset
        return FileRange(segment.file, position, end - position, next_offset)

    def _walk(self, segment: Segment, position: int, end: int, max_bytes: int) -> tuple[int, int]:
        """Behind the last batch that fits, but at least behind the first one."""
        stop, next_offset = position, -1
        for batch in segment.batches(position, end):
            if batch.end - position > max_bytes and stop > position:
                break
            stop, next_offset = batch.end, batch.last_offset + 1
        return stop, next_offset

    def position_of(self, offset: int) -> LogPosition:
        """Of an offset that a batch begins at, or the end."""
        found = self._locate(offset)
        return LogPosition(offset, *found) if found is not None else self.end

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have something between the two offsets, or may have."""
        found: list[AbortedTransaction] = []
        for segment in self.segments[self.segment_of(offset) :]:
            for each in self._aborted_in(segment):
                if each.last_offset >= offset and each.first_offset < end_offset:
                    found.append(each)
                if each.last_stable_offset >= end_offset:
                    return found
        return found

    def _aborted_in(self, segment: Segment) -> list[AbortedTransaction]:
        try:
            return segment.aborted
        except CorruptSegment:  # the file is lost, or lies
            return self._learn_aborted(segment)

    def _learn_aborted(self, segment: Segment) -> list[AbortedTransaction]:
        known = snapshots.newest(self.disk, self.directory, segment.base_offset)
        producers, offset = known or (Producers(), self.start_offset)
        for earlier in self.segments[self.segment_of(offset) :]:
            aborted = producers.replay(earlier.batches(0), offset, earlier.read_marker) if earlier.size else []
            if earlier is segment:
                break
        segment.aborted = aborted
        return aborted

    def batch_at(self, offset: int) -> Batch | None:
        """The batch that holds the offset, or the next one."""
        found = self._locate(offset)
        return next(found[0].batches(found[1]), None) if found else None

    def forget_positions(self) -> None:
        """After anything but an append changed the segments."""
        self._positions.clear()

    def offset_for_timestamp(self, timestamp_ms: int) -> TimedOffset | None:
        """The first record that is not older."""
        return times.first_at(self.segments, self.start_offset, timestamp_ms)

    def max_timestamp(self) -> TimedOffset | None:
        """The first record with the largest timestamp (KIP-734)."""
        known = [(segment, *_times(segment)[1:]) for segment in self.segments[:-1]]
        if self.active is not None:
            known.append((self.active, *self._written_times[1:]))
        return times.newest(known, self.start_offset)

    # ---- taking away

    def advance_start(self, offset: int) -> None:
        """Records below the offset are deleted from now on; `save_start` makes it last."""
        assert offset <= self.end_offset
        if offset > self.start_offset:
            self.start_offset = offset
            if self._epochs is not None:
                self._epochs.cut_start(offset)

    def save_start(self) -> None:
        """In a thread."""
        checkpoint.save(self.disk, self.directory / checkpoint.START_OFFSET, self.start_offset, durable=True)

    def delete_before(self, offset: int, now_ms: int | None = None) -> list[Segment]:
        """Drops the segments whose every record lies below; `discard` them then. The active one goes only if all of
        the log lies below and the time is given: a new one takes its place."""
        active = self.active
        if now_ms is not None and active is not None and active.size and offset >= self.next_offset:
            self.roll(self.next_offset, now_ms)
        keep = 0
        while keep + 1 < len(self.segments) and self.segments[keep + 1].base_offset <= offset:
            keep += 1
        dropped = self.segments[:keep]
        if dropped:
            del self.segments[:keep]
            self.dropped += dropped
            self.advance_start(self.segments[0].base_offset)
            self.forget_positions()
        return dropped

    def discard(self, dropped: list[Segment]) -> None:
        """In a thread: removes the files. Two things are made durable first: what is known of the producers of the
        dropped batches, and the start offset. With it, names that vanish in any order leave no hole, and a log without
        segments can't begin at 0 again."""
        bases = [segment.base_offset for segment in self.segments]
        try:
            snapshots.sync(self.disk, self.directory, bases[0] if bases else self.start_offset)
            self.save_start()
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.segments or not dropped:
                raise
            dropped[0].remove()  # the oldest leaves no hole, and makes room on a disk that is full
            self.save_start()
        for segment in dropped:
            segment.remove()
        self.dropped = [segment for segment in self.dropped if segment not in dropped]
        snapshots.prune(self.disk, self.directory, bases)

    def relocate(self, directory: Path) -> None:
        """The folder was renamed."""
        self.directory = directory
        for segment in [*self.segments, *self.dropped]:
            segment.directory = directory

    def let_go(self) -> list[weakref.ref[File]]:
        """Closes all files but those that somebody else holds; the references say who still does."""
        segments = [*self.segments, *self.dropped]
        held = [weakref.ref(segment.file) for segment in segments if segment.is_open]
        for segment in segments:
            segment.close()
        return held

    def cut_end(self, end: int) -> None:
        """After segments were cut: the log ends at the offset, and what goes with it is read again."""
        self.active = self.segments[-1] if self.segments else None
        self._written_times = _times(self.active)
        self.end_offset = self.next_offset = end
        self.forget_positions()
        self._producers = None
        self.snapshot_offset = None if self.segments else NO_PRODUCERS
        self.cleaner_offset = None

    # ---- what goes with the log

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            self._producers = self._load_producers()
        return self._producers

    @producers.setter
    def producers(self, producers: Producers) -> None:
        self._producers = producers

    @property
    def known_producers(self) -> Producers | None:
        """None if nobody has asked yet."""
        return self._producers

    def _load_producers(self) -> Producers:
        if self.snapshot_offset == NO_PRODUCERS:
            return Producers()
        if self.snapshot_offset is not None:
            producers = snapshots.read(self.disk, self.directory, self.snapshot_offset)
            if producers is not None:
                return self._replay(producers, self.snapshot_offset)
        found = snapshots.newest(self.disk, self.directory, self.end_offset)
        return self._replay(*found) if found else self._replay(Producers(), self.start_offset)

    def _replay(self, producers: Producers, offset: int) -> Producers:
        if self.segments and offset < self.end_offset:
            for segment in self.segments[self.segment_of(offset) :]:
                first = segment.find(offset) if segment.size else None
                if first is not None:
                    producers.replay(segment.batches(first.position), offset, segment.read_marker)
        return producers

    def save_producers(self, offset: int) -> None:
        """A snapshot for the log up to the offset, which is its end: behind it, opening the log reads no batch.

        Also of no producers at all, since it says that no batch before it need be read.
        """
        if self.snapshot_offset != offset:
            snapshots.save(self.disk, self.directory, offset, self.producers)
            self.snapshot_offset = offset

    def expire_producers(self, now_ms: int) -> None:
        if self._producers is not None:
            self._producers.expire(now_ms - self.settings.producer_expiration_ms)

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = leader_epochs.load(self.disk, self.directory)
            self._epochs.cut_start(self.start_offset)
        return self._epochs

    @epochs.setter
    def epochs(self, epochs: LeaderEpochs) -> None:
        self._epochs = epochs

    def begin_epoch(self, epoch: int, *, durable: bool = True) -> None:
        """Behind what is staged, which is of the epoch before; the first epoch of a log has all of it."""
        if self.epochs.begin(epoch, self.next_offset if self.epochs.epochs else self.end_offset):
            self.disk.make_directory(self.directory)
            self.epochs.save(self.disk, self.directory, durable=durable)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


def seal(segment: Segment) -> None:
    """In a thread, for a segment that was rolled: see `Segment.seal`."""
    segment.seal()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _times(segment: Segment | None) -> tuple[int, int, int]:
    if segment is None:
        return NO_TIMESTAMP, NO_TIMESTAMP, 0
    return segment.first_timestamp_ms, segment.max_timestamp_ms, segment.max_timestamp_offset


def _age_ms(segment: Segment, timestamp_ms: int, now_ms: int) -> int:
    """By the time of its messages where they have one, as in Kafka: what is filled in later spans its own time."""
    if segment.first_timestamp_ms >= 0:
        return timestamp_ms - segment.first_timestamp_ms
    return now_ms - segment.created_ms
