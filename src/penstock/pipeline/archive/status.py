"""How far an archive reaches: what is covered of each partition, and what is not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.pipeline.archive.layout import Archive, ArchivedFile, Piece, Range, Resolved, coverage_of, uncovered
from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, TopicPartition
from penstock.pipeline.problem import PipelineError

READERS = 16  # of footers, which are small and far away
Ends = dict[TopicPartition, tuple[int, int]]  # where each log begins and ends


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    topic: str
    partition: int
    start: int | None  # nothing is covered where it is None
    stop: int | None
    files: int
    size: int
    rows: int | None
    gaps: list[Range]
    lost: list[Range]  # the gaps that the log can't fill any more
    lag: int | None  # offsets that are not covered yet, where the log's end is known

    def as_document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.start,
            "to": self.stop,
            "files": self.files,
            "bytes": self.size,
            "rows": self.rows,
            "gaps": [list(each) for each in self.gaps],
            "lost": [list(each) for each in self.lost],
            "lag": self.lag,
        }


@dataclass(frozen=True, slots=True)
class TopicStatus:
    topic: str
    partitions: list[PartitionStatus]
    superseded: int  # files that a compaction has merged, and not deleted yet
    incomplete: int  # files of ranges that lack others
    overlaps: list[tuple[Piece, Piece]]


def log_ends(brokers: Brokers, topic: str) -> Ends:
    known = brokers.topics([topic])
    places = known[topic].partitions if topic in known else []
    starts = brokers.offsets(dict.fromkeys(places, EARLIEST))
    stops = brokers.offsets(dict.fromkeys(places, LATEST))
    return {place: (starts[place], stops[place]) for place in places if place in starts and place in stops}


def status(archive: Archive, topic: str, ends: Ends | None, *, count_rows: bool = True) -> TopicStatus:
    found = archive.resolved(topic)
    rows = _rows(archive, found) if count_rows else None
    covered = coverage_of(found.pieces)
    partitions = sorted(covered.keys() | {place.partition for place in ends or ()})
    statuses = [
        _partition(topic, number, found, covered.get(number, []), (ends or {}).get(TopicPartition(topic, number)), rows)
        for number in partitions
    ]
    return TopicStatus(topic, statuses, len(found.superseded), len(found.incomplete), found.overlaps)


def _partition(
    topic: str,
    number: int,
    found: Resolved,
    covered: list[Range],
    log: tuple[int, int] | None,
    rows: dict[int, int] | None,
) -> PartitionStatus:
    files = [file for piece in found.pieces if piece.partition == number for file in piece.files]
    gaps = gaps_of(covered, log)
    return PartitionStatus(
        topic=topic,
        partition=number,
        start=covered[0][0] if covered else None,
        stop=covered[-1][1] if covered else None,
        files=len(files),
        size=sum(each.size for each in files),
        rows=None if rows is None else rows.get(number, 0),
        gaps=gaps,
        lost=[each for each in gaps if log is not None and each[0] < log[0]],
        lag=None if log is None else _lag(covered, log),
    )


def gaps_of(covered: list[Range], log: tuple[int, int] | None) -> list[Range]:
    """What lies before the end of the coverage and is in no file."""
    if not covered:
        return []
    start = min(covered[0][0], log[0]) if log is not None else covered[0][0]
    return uncovered(start, covered[-1][1], covered)


def _lag(covered: list[Range], log: tuple[int, int]) -> int:
    return sum(stop - start for start, stop in uncovered(*log, covered)) if log[0] < log[1] else 0


def _rows(archive: Archive, found: Resolved) -> dict[int, int]:
    """By partition, as the files' footers say."""
    files = [file for piece in found.pieces for file in piece.files]
    counted: dict[int, int] = {}
    with ThreadPoolExecutor(READERS) as readers:
        for file, rows in zip(files, readers.map(lambda each: row_count(archive, each), files), strict=True):
            counted[file.partition] = counted.get(file.partition, 0) + rows
    return counted


def row_count(archive: Archive, file: ArchivedFile) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with archive.open(file) as stream:
            return int(pq.ParquetFile(stream).metadata.num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        if archive.is_gone(file):
            return 0  # merged into another meanwhile
        raise PipelineError(f"{file.path} can't be read: {error}") from error
