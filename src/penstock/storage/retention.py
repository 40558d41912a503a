"""What may be deleted of a log, and why: decisions only, no files.

Segments go whole and oldest first. A segment goes when every record in it lies below the log's start offset; or, where
the cleanup policy has `delete`, when the log would still hold `retention.bytes` without it, or when its largest
timestamp is older than `retention.ms`. A timestamp from the future keeps its segment, and all behind it, until that
time has passed, as in Kafka. Nothing at or above the high watermark goes. What a group holds back of all this is
decided in `hold`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.storage.hold import Piece

if TYPE_CHECKING:
    from penstock.storage.log import Log
    from penstock.storage.segment import Segment

SNAPSHOTS_KEPT = 2


def start_offset(log: Log, now_ms: int, high_watermark: int) -> int:
    """Where the log may begin from now on: an offset for `Log.delete_before`, the present one if nothing may go."""
    going = past_retention(log, now_ms, high_watermark)
    return max(log.start_offset, going[-1].end_offset) if going else log.start_offset


def past_retention(log: Log, now_ms: int, high_watermark: int) -> list[Piece]:
    """The segments that may go, oldest first."""
    segments, settings = log.segments, log.settings
    ends = [segment.base_offset for segment in segments[1:]] + [log.end_offset]
    last = len(segments) - 1
    gone = 0

    def may_go() -> bool:
        """Committed, and not an empty active segment, which there is nothing to delete of."""
        return gone <= last and ends[gone] <= high_watermark and (gone < last or segments[gone].size > 0)

    while gone < last and ends[gone] <= log.start_offset:
        gone += 1
    if settings.delete and settings.retention_bytes >= 0:
        surplus = sum(segment.size for segment in segments[gone:]) - settings.retention_bytes
        while may_go() and surplus >= segments[gone].size:
            surplus -= segments[gone].size
            gone += 1
    if settings.delete and settings.retention_ms >= 0:
        while may_go() and now_ms - _newest_ms(segments[gone]) > settings.retention_ms:
            gone += 1
    return [Piece(ends[at], segments[at].size) for at in range(gone)]


def _newest_ms(segment: Segment) -> int:
    return segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.created_ms


def stale_snapshots(offsets: Sequence[int], segment_bases: Iterable[int]) -> list[int]:
    """Snapshots that no restart will need: all but those at a segment's beginning and the newest two."""
    needed = {*segment_bases, *sorted(offsets)[-SNAPSHOTS_KEPT:]}
    return [offset for offset in offsets if offset not in needed]
