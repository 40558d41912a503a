"""Finding records by their timestamp.

Segments know their largest timestamp and indexes how far it had risen before each entry, so a search opens only the
batches that may hold the answer. Timestamps are the producers' and need not rise: the first record at or after a time
may have younger ones in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.protocol.errors import CorruptBatch
from penstock.protocol.record_batch import Record, read_records
from penstock.storage.segment import NO_TIMESTAMP, Batch, Segment

DECOMPRESS_MAX_BYTES = 64 * 1024 * 1024


class TimedOffset(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


def first_at(segments: Iterable[Segment], start_offset: int, timestamp_ms: int) -> TimedOffset | None:
    """The first record at or behind the start offset that is not older than the time."""
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp_ms < timestamp_ms:
            continue
        entry = segment.index.before_time(timestamp_ms)
        for batch in segment.batches(entry.position if entry else 0):
            if batch.max_timestamp < timestamp_ms:
                continue
            for record in records(segment, batch, start_offset):
                if record.timestamp_ms >= timestamp_ms:
                    return TimedOffset(record.offset, record.timestamp_ms, batch.leader_epoch)
    return None


def newest(known: Sequence[tuple[Segment, int, int]], start_offset: int) -> TimedOffset | None:
    """The first record with the largest timestamp; `known` has, for each segment, its largest timestamp and the base
    offset of the batch that is said to hold it."""
    best: TimedOffset | None = None
    for segment, timestamp_ms, base_offset in sorted(known, key=lambda each: -each[1]):
        if timestamp_ms == NO_TIMESTAMP or (best and best.timestamp_ms >= timestamp_ms):
            break
        batch = segment.find(base_offset)
        found = _newest_in(segment, [batch] if batch else [], start_offset)
        if found is None or found.timestamp_ms != timestamp_ms:
            # The record lies below the start offset, or compaction took it away and left its batch.
            found = _newest_in(segment, segment.batches(0), start_offset)
        if found and (best is None or found.timestamp_ms > best.timestamp_ms):
            best = found
    return best


def _newest_in(segment: Segment, batches: Iterable[Batch], start_offset: int) -> TimedOffset | None:
    best: TimedOffset | None = None
    for batch in sorted(batches, key=lambda batch: -batch.max_timestamp):
        if best and best.timestamp_ms > batch.max_timestamp:
            break
        for record in records(segment, batch, start_offset):
            if best is None or (record.timestamp_ms, -record.offset) > (best.timestamp_ms, -best.offset):
                best = TimedOffset(record.offset, record.timestamp_ms, batch.leader_epoch)
    return best


def records(segment: Segment, batch: Batch, start_offset: int) -> Iterator[Record]:
    """Those at or behind the start offset. A batch that can't be opened counts as one record at its beginning: what a
    client sent must not keep others from finding their way."""
    if batch.last_offset < start_offset or batch.record_count == 0:
        return
    data = segment.file.read(batch.size, batch.position)
    try:
        found = list(read_records(data, DECOMPRESS_MAX_BYTES, compacted=True))
    except CorruptBatch:
        found = [Record(max(batch.base_offset, start_offset), batch.max_timestamp, None, None)]
    for record in found:
        if record.offset >= start_offset:
            yield record
