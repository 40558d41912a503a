"""Compaction: of all records with a key, only the last is kept. Three steps, in three places:

    plan                 on the event loop: whether a log is worth it, and how far it may go
    run                  in the worker process: writes cleaned segments beside the old ones
    take_over, settle    on the event loop, then in a thread: puts them in their place

The log has a clean section, which earlier runs have seen, and a dirty one behind it. A run learns the last offset of
every key in the dirty section, as far as memory allows, then rewrites all segments up to there without the records
that were overtaken, several small ones into one. `cleaner-offset` says where the dirty section begins; if the file is
lost, all of the log is dirty again, which costs time only. The active segment, what is not committed or part of an open
transaction, and what is younger than `min.compaction.lag.ms` are never touched.
"""

from __future__ import annotations

from penstock.storage import checkpoint, snapshots, swap
from penstock.storage.cleaning import Horizon
from penstock.storage.log import Log
from penstock.storage.rewriting import CompactionPlan, CompactionResult, NewSegment, OldSegment, run
from penstock.storage.segment import Segment, file_name

__all__ = ["CompactionPlan", "CompactionResult", "install", "plan", "run", "settle", "take_over"]


def plan(log: Log, now_ms: int, last_stable_offset: int) -> CompactionPlan | None:
    """None if the log need not be compacted now."""
    settings = log.settings
    if not settings.compact or len(log.segments) < 2:
        return None
    first_dirty = _first_dirty_offset(log)
    segments: list[OldSegment] = []
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms = now_ms
    for segment, following in zip(log.segments, log.segments[1:]):
        end = following.base_offset
        is_dirty = end > first_dirty
        if end > last_stable_offset or segment.sealed_to != segment.size or segment.is_elsewhere:
            break
        lag_ms = settings.min_compaction_lag_ms
        if is_dirty and lag_ms > 0 and segment.max_timestamp_ms > now_ms - lag_ms:
            break
        if is_dirty:
            dirty_bytes += segment.size
            if 0 < segment.first_timestamp_ms < oldest_dirty_ms:
                oldest_dirty_ms = segment.first_timestamp_ms
        else:
            clean_bytes += segment.size
        segments.append(OldSegment(segment.base_offset, end, segment.size, segment.created_ms))
    overdue = oldest_dirty_ms < now_ms - settings.max_compaction_lag_ms
    if not dirty_bytes or not (
        overdue or dirty_bytes / (clean_bytes + dirty_bytes) > settings.min_cleanable_dirty_ratio
    ):
        return None
    last_offsets = {e.producer_id: e.batches[-1].last_offset for e in log.producers.active() if e.batches}
    return CompactionPlan(
        str(log.directory), tuple(segments), first_dirty, last_offsets, Horizon(now_ms, settings.delete_retention_ms),
        settings.segment_bytes, settings.index_interval_bytes,
        tuple(log.aborted_between(segments[0].base_offset, segments[-1].end_offset)),
    )  # fmt: skip


def _first_dirty_offset(log: Log) -> int:
    if log.cleaner_offset is None:
        log.cleaner_offset = checkpoint.load(log.disk, log.directory / checkpoint.CLEANER_OFFSET) or 0
    # Beyond the end, the log has been cut since: then nothing is known to be clean.
    return max(log.cleaner_offset, log.start_offset) if log.cleaner_offset <= log.end_offset else log.start_offset


def install(log: Log, result: CompactionResult) -> None:
    """Both halves of the last step, where it does not matter that the second one waits for the device."""
    settle(log, result, take_over(log, result))


def take_over(log: Log, result: CompactionResult) -> list[NewSegment]:
    """On the event loop: from now on the log consists of the new segments. Their files have no final names yet, so call
    `settle` before anything else changes the segments of this log. Whoever reads from an old file goes on doing so.

    A new segment whose old ones have changed meanwhile (deleted by retention, say) is left out.
    """
    present = [(segment.base_offset, segment.size) for segment in log.segments[:-1]]
    taken: list[tuple[int, NewSegment, Segment]] = []
    for new in result.segments:
        at = present.index(new.replaces[0]) if new.replaces[0] in present else 0
        if tuple(present[at : at + len(new.replaces)]) == new.replaces:
            taken.append((at, new, _segment(log, new)))
    for at, new, segment in reversed(taken):
        log.segments[at : at + len(new.replaces)] = [segment]
    log.forget_positions()
    if len(taken) == len(result.segments) and log.active is not None:
        log.cleaner_offset = min(result.first_dirty_offset, log.active.base_offset)
    return [new for _, new, _ in taken]


def _segment(log: Log, new: NewSegment) -> Segment:
    footer = new.footer
    segment = Segment(log.disk, log.directory, new.range.base, size=footer.segment_size, created_ms=footer.created_ms)
    segment.first_timestamp_ms, segment.max_timestamp_ms = footer.first_timestamp_ms, footer.max_timestamp_ms
    segment.max_timestamp_offset = footer.max_timestamp_offset
    segment.sealed_to = segment.size
    segment.aborted = list(new.aborted)
    segment.open_elsewhere(new.range.path(log.directory, "log.cleaned"), new.range.path(log.directory, "index.cleaned"))
    return segment


def settle(log: Log, result: CompactionResult, taken: list[NewSegment]) -> None:
    """In a thread: gives the new files their names and removes the old ones, so that a crash finds either."""
    for new in result.segments:
        if new not in taken:
            swap.remove(log.disk, log.directory, new.range)
    if taken:
        # A snapshot from before may call a transaction open whose marker is gone now: nothing would ever end it.
        end = max(new.range.end for new in taken)
        for offset in snapshots.offsets(log.disk, log.directory):
            if offset < end:
                log.disk.remove(log.directory / file_name(offset, "snapshot"))
        log.disk.sync_directory(log.directory)
        swap.replace_segments(log.disk, log.directory, [new.range for new in taken])
    bases = {new.range.base for new in taken}
    for segment in log.segments:
        if segment.base_offset in bases:
            segment.is_elsewhere = False
    if log.cleaner_offset is not None:
        checkpoint.save(log.disk, log.directory / checkpoint.CLEANER_OFFSET, log.cleaner_offset, durable=False)
