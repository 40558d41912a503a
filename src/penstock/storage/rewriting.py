"""The middle step of compaction, in the worker process: cleaned segments, written beside the old ones.

First the last offset of every key in the dirty section is learnt, as far as memory allows; then each group of segments
that fit into one is written again without what was overtaken. Nothing in the log changes here: a run that fails leaves
files that nobody believes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from penstock.protocol.record_batch import ATTRIBUTES_AT, CONTROL_BIT, HEADER_SIZE, MAX_TIMESTAMP_AT, TRANSACTIONAL_BIT
from penstock.storage import aborted as aborted_transactions
from penstock.storage import cleaning, swap
from penstock.storage.aborted import AbortedTransaction
from penstock.storage.cleaning import DIGEST_SIZE, Horizon
from penstock.storage.disk import Buffer, Disk, File
from penstock.storage.index import Footer, Index
from penstock.storage.segment import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, Batch, CorruptSegment, file_name, parse
from penstock.storage.swap import OffsetRange

KEYS_MAX = 500_000  # of one run: about 100 MB in the worker process
READ_CHUNK = 4 * 1024 * 1024
WRITE_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class OldSegment:
    base_offset: int
    end_offset: int  # the next segment's base
    size: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    directory: str
    segments: tuple[OldSegment, ...]  # all that may be rewritten, from the beginning of the log
    first_dirty_offset: int
    last_offsets: dict[int, int]  # of each producer that is still remembered
    horizon: Horizon
    segment_bytes: int
    index_interval_bytes: int
    aborted: tuple[AbortedTransaction, ...] = ()  # of all segments
    keys_max: int = KEYS_MAX

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset


@dataclass(frozen=True, slots=True)
class NewSegment:
    range: OffsetRange
    replaces: tuple[tuple[int, int], ...]  # base offsets and sizes
    footer: Footer
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(slots=True)
class CompactionResult:
    first_dirty_offset: int
    segments: list[NewSegment] = field(default_factory=list)
    bytes_read: int = 0
    bytes_written: int = 0


def run(plan: CompactionPlan, disk: Disk | None = None) -> CompactionResult:
    disk = disk or Disk()
    directory = Path(plan.directory)
    for name in disk.names(directory):
        if name.endswith(".cleaned"):  # of a run that did not come to its end
            disk.remove(directory / name)
    newest, end = _newest_offsets(plan, disk, directory)
    result = CompactionResult(first_dirty_offset=end)
    transactions = _Transactions(plan.aborted)
    for group in _groups([segment for segment in plan.segments if segment.base_offset < end], plan.segment_bytes):
        new = _Rewrite(plan, disk, directory, group, newest, end, transactions)
        try:
            new.run()
        except BaseException:
            swap.remove(disk, directory, new.range)
            raise
        result.bytes_read += sum(segment.size for segment in group)
        if new.changed:
            result.bytes_written += new.file.size
            replaces = tuple((s.base_offset, s.size) for s in group)
            result.segments.append(NewSegment(new.range, replaces, new.footer, tuple(new.aborted)))
        else:
            swap.remove(disk, directory, new.range)
    disk.sync_directory(directory)
    return result


def _newest_offsets(plan: CompactionPlan, disk: Disk, directory: Path) -> tuple[dict[bytes, int], int]:
    """The last offset of every key in the dirty section, and the offset up to which that holds."""
    newest: dict[bytes, int] = {}
    key_of = cleaning.key_of
    end = plan.first_dirty_offset
    transactions = _Transactions(plan.aborted)
    for segment in plan.segments:
        if segment.end_offset <= plan.first_dirty_offset:
            continue
        for batch, data in _batches(disk, directory, segment):
            if batch.last_offset < plan.first_dirty_offset:
                continue
            if len(newest) >= plan.keys_max:
                return newest, end
            opened = None if transactions.is_aborted(batch) else cleaning.open_batch(batch, data)
            base_offset = batch.base_offset
            for _, _, _, offset_delta, key, _ in opened[1] if opened else ():
                if key is not None:
                    newest[key if len(key) < DIGEST_SIZE else key_of(key)] = base_offset + offset_delta
            end = batch.last_offset + 1
        end = segment.end_offset
    return newest, end


def _batches(disk: Disk, directory: Path, segment: OldSegment) -> Iterator[tuple[Batch, memoryview]]:
    """Whole batches, read in large pieces."""
    file = disk.open(directory / file_name(segment.base_offset, "log"), writable=False)
    position, chunk, chunk_at = 0, memoryview(b""), 0

    def read(size: int) -> memoryview:
        return memoryview(file.read(min(size, segment.size - position), position))

    while position < segment.size:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = read(READ_CHUNK), position, 0
        batch = parse(chunk, at, position)
        if at + batch.size > len(chunk):
            chunk, chunk_at, at = read(max(READ_CHUNK, batch.size)), position, 0
            if batch.size > len(chunk):
                raise CorruptSegment(f"{file.path}: the batch at {position} runs past the end")
        yield batch, chunk[at : at + batch.size]
        position = batch.end


def _groups(segments: list[OldSegment], segment_bytes: int) -> list[list[OldSegment]]:
    """Neighbours that fit into one segment together."""
    groups: list[list[OldSegment]] = []
    held = 0
    for segment in segments:
        fits = groups and held + segment.size <= segment_bytes
        if fits and segment.end_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX:
            groups[-1].append(segment)
            held += segment.size
        else:
            groups.append([segment])
            held = segment.size
    return groups


class _Transactions:
    """Which batches were aborted, and which transactions have left something. Batches are met in offset order."""

    def __init__(self, aborted: tuple[AbortedTransaction, ...]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._markers = {each.last_offset: each for each in aborted}
        self._with_data: set[int] = set()
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)

    def is_aborted(self, batch: Batch) -> bool:
        if not batch.attributes & TRANSACTIONAL_BIT or batch.attributes & CONTROL_BIT:
            return False
        of_producer = self._aborted.get(batch.producer_id)
        if of_producer is None:
            return False
        at = bisect_right(of_producer, batch.base_offset, key=lambda each: each.first_offset) - 1
        return at >= 0 and batch.base_offset < of_producer[at].last_offset

    def has_stayed(self, batch: Batch, data: Buffer) -> None:
        if data[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
            self._with_data.add(batch.producer_id)

    def ends(self, batch: Batch) -> bool:
        """At a marker: whether anything of the transaction that it ends was kept."""
        had_data = batch.producer_id in self._with_data
        self._with_data.discard(batch.producer_id)
        return had_data

    def aborted_by(self, batch: Batch) -> AbortedTransaction | None:
        return self._markers.get(batch.last_offset)


class _Rewrite:
    """One new segment from one or more old ones."""

    def __init__(
        self, plan: CompactionPlan, disk: Disk, directory: Path, group: list[OldSegment], newest: dict[bytes, int],
        end: int, transactions: _Transactions,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.disk = disk
        self.directory = directory
        self.group = group
        self.newest = newest
        self.end = end
        self.transactions = transactions
        self.aborted: list[AbortedTransaction] = []
        self.range = OffsetRange(group[0].base_offset, group[-1].end_offset)
        self.file: File = disk.open(self.range.path(directory, "log.cleaned"), create=True)
        self.index = Index()
        self.changed = False
        self._position = 0  # behind the last batch that stays, written or not
        self._indexed_to = 0
        self._parts: list[bytes] = []
        self._held = 0
        self._first_ms = self._max_ms = NO_TIMESTAMP
        self._max_offset = self.range.base

    def run(self) -> None:
        """As long as nothing changes, nothing is written: a segment that stays as it is costs no space."""
        if len(self.group) > 1:
            self._differs()
        for segment in self.group:
            for batch, data in _batches(self.disk, self.directory, segment):
                kept = self._kept(batch, data)
                if kept is not data and not self.changed:
                    self._differs()
                if kept is not None:
                    self._add(batch, kept)
        if self.changed:
            self._write()
            self.file.sync()
            if self.aborted:
                entries = aborted_transactions.dump(self.aborted)
                self.disk.replace(self.range.path(self.directory, "aborted.cleaned"), entries)
            self.disk.replace(self.range.path(self.directory, "index.cleaned"), self.index.dump(self.footer))

    def _kept(self, batch: Batch, data: memoryview) -> Buffer | None:
        transactions, horizon, must_stay = self.transactions, self.plan.horizon, self._must_stay(batch)
        is_new = batch.last_offset >= self.end
        kept: Buffer | None
        if batch.attributes & CONTROL_BIT:
            is_needed = transactions.ends(batch) or must_stay or is_new
            kept = cleaning.clean_marker(batch, data, horizon, is_needed=is_needed)
            aborted = transactions.aborted_by(batch)
            if kept is not None and aborted is not None:
                self.aborted.append(aborted)
            return kept
        if is_new:
            kept = data
        elif transactions.is_aborted(batch):
            kept = cleaning.without_records(batch) if must_stay else None
        else:
            kept = cleaning.clean(batch, data, self.newest, horizon, keep_empty=must_stay)
        if kept is not None:
            transactions.has_stayed(batch, kept)
        return kept

    def _differs(self) -> None:
        """What has stayed the same so far is the beginning of the first old segment."""
        self.changed = True
        old = self.disk.open(self.directory / file_name(self.range.base, "log"), writable=False)
        while self.file.size < self._position:
            piece = old.read(min(READ_CHUNK, self._position - self.file.size), self.file.size)
            self.file.append([piece], len(piece))

    def _must_stay(self, batch: Batch) -> bool:
        """It holds the last sequence of its producer, or the last offset of what compaction has seen."""
        return batch.last_offset + 1 == self.plan.end_offset or (
            batch.producer_id >= 0 and self.plan.last_offsets.get(batch.producer_id) == batch.last_offset
        )

    def _add(self, batch: Batch, data: Buffer) -> None:
        if self._position >= self._indexed_to:
            self.index.add(batch.base_offset - self.range.base, self._position, self._max_ms)
            self._indexed_to = self._position + self.plan.index_interval_bytes
        max_timestamp = int.from_bytes(data[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8], "big", signed=True)
        if max_timestamp > self._max_ms:
            self._max_ms, self._max_offset = max_timestamp, batch.base_offset
            if self._first_ms < 0:
                self._first_ms = max_timestamp
        self._position += len(data)
        if self.changed:
            self._parts.append(bytes(data))  # a view would keep all of what was read with it
            self._held += len(data)
            if self._held >= WRITE_CHUNK:
                self._write()

    def _write(self) -> None:
        self.file.append(self._parts, self._held)
        self._parts, self._held = [], 0

    @property
    def footer(self) -> Footer:
        return Footer(
            self.file.size, self.range.end, self.group[-1].created_ms, self._first_ms, self._max_ms, self._max_offset,
            len(self.aborted), crc32c(aborted_transactions.dump(self.aborted)),
        )  # fmt: skip
