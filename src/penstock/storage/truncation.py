"""Cutting a log back at its end: what a follower does with batches that the new leader does not have (KIP-101).

Every step leaves a log that a crash may find: segments go newest first and before the cut, so that what remains is the
log as it was, only shorter. Leader epochs, snapshots and the cleaner's offset that point behind the cut go with it.
"""

from __future__ import annotations

from penstock.storage import checkpoint, snapshots
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """Takes away the batches at the offset and behind it, and a batch that reaches over it whole. Durable on return.

    Not while a segment of the log is being sealed or compacted.
    """
    assert not log.staged, "what is staged must be written first"
    if offset >= log.end_offset:
        return
    if offset < log.start_offset:
        restart_at(log, offset)
        return
    keep = log.segment_of(offset)
    segment = log.segments[keep]
    first = segment.find(offset) if segment.size else None
    if first is not None and first.base_offset < log.start_offset:  # nothing of the log is left, and its file has a gap
        restart_at(log, log.start_offset)
        return
    end = min(offset, first.base_offset) if first else offset
    for dropped in reversed(log.segments[keep + 1 :]):
        dropped.remove()
    snapshots.remove_behind(log.disk, log.directory, end)
    segment.cut(first.position if first else segment.size)
    del log.segments[keep + 1 :]
    log.epochs.cut_end(end)
    _ends_at(log, end)


def restart_at(log: Log, offset: int) -> None:
    """Empties the log, which goes on at the offset. Durable on return.

    The start offset is written first: with it, a log that lost all of its segments still knows where it goes on.
    """
    assert not log.staged, "what is staged must be written first"
    log.disk.make_directory(log.directory)
    checkpoint.save(log.disk, log.directory / checkpoint.START_OFFSET, offset, durable=True)
    for segment in reversed(log.segments):
        segment.remove()
    snapshots.remove_behind(log.disk, log.directory, -1)
    log.disk.sync_directory(log.directory)
    log.segments.clear()
    log.start_offset = offset
    log.epochs = LeaderEpochs()
    _ends_at(log, offset)


def set_aside(log: Log, offset: int) -> None:
    """As `restart_at`, but the batches are kept beside the log, as recovery keeps those that it can't use."""
    for segment in log.segments:
        log.disk.rename(segment.path("log"), segment.path("log.cut-0"))
    restart_at(log, offset)


def _ends_at(log: Log, end: int) -> None:
    log.cut_end(end)
    log.epochs.save(log.disk, log.directory)
    path = log.directory / checkpoint.CLEANER_OFFSET
    if (checkpoint.load(log.disk, path) or 0) > end:
        checkpoint.save(log.disk, path, end, durable=True)
