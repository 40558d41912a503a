"""Small files merged into larger ones, without a moment in which a record is in no file that counts.

    merge    write the merged files, and put them among our own: they count, and what they were made of does not
    clear    an hour later, put copies of them where everybody looks
             change the generation: a listing that began before is made again
             delete what was merged
    clear    an hour after that, delete those among our own

Whoever reads an archive through layout.py sees every record once, whenever this stops, and a file that it found there
stays for an hour at least. Others see what was merged, and then the merged files; both for the moment between the first
and the last step of a clearing. Nobody waits: a clearing is the beginning of the next compaction, or of the next job.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.archive import publishing
from penstock.pipeline.archive.layout import OURS, Archive, Piece, Resolved, coverage_of, file_name, uncovered
from penstock.pipeline.problem import PipelineError

if TYPE_CHECKING:
    from penstock.pipeline.archive.parquet import RangeFiles

TARGET_BYTES = 256 << 20
DAYS_MAX = 256  # in one merge: as many files are open
ROWS_PER_READ = 10_000
GRACE_S = 3600.0  # for whoever reads files that were merged


class Busy(PipelineError):
    """Another process compacts the archive."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Adjacent pieces of one partition that become one."""

    topic: str
    pieces: tuple[Piece, ...]

    @property
    def partition(self) -> int:
        return self.pieces[0].partition

    @property
    def start(self) -> int:
        return self.pieces[0].start

    @property
    def stop(self) -> int:
        return self.pieces[-1].stop

    @property
    def size(self) -> int:
        return sum(each.size for each in self.pieces)

    @property
    def files(self) -> int:
        return sum(len(each.files) for each in self.pieces)

    @property
    def days(self) -> list[str]:
        return sorted({day for each in self.pieces for day in each.days})

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.stop})"


def plan(topic: str, pieces: Sequence[Piece], target_bytes: int = TARGET_BYTES) -> list[Merge]:
    """Pieces are in order. One that is half as large as wanted already stays as it is.

    So does one that was merged a moment ago: merged again and again, it would never be old enough to be cleared up.
    """
    found: list[Merge] = []
    run: list[Piece] = []
    for piece in pieces:
        if run and not _fits(run, piece, target_bytes):
            _close(topic, run, found)
            run = []
        if piece.size < target_bytes // 2 and not piece.is_ours:
            run.append(piece)
        else:
            _close(topic, run, found)
            run = []
    _close(topic, run, found)
    return found


def _fits(run: list[Piece], piece: Piece, target_bytes: int) -> bool:
    last = run[-1]
    if piece.partition != last.partition or piece.start != last.stop:
        return False
    if sum(each.size for each in run) + piece.size > target_bytes:
        return False
    days = {day for each in run for day in each.days}
    # A merge of pieces that have no day in common would make no file larger.
    if days and piece.days and days.isdisjoint(piece.days):
        return False
    return len(days.union(piece.days)) <= DAYS_MAX


def _close(topic: str, run: list[Piece], found: list[Merge]) -> None:
    if len(run) > 1:
        merge = Merge(topic, tuple(run))
        if merge.files > len(merge.days) or merge.files == 0:  # else there would be as many files as before
            found.append(merge)


@contextmanager
def alone(archive: Archive) -> Iterator[None]:
    """One compaction at a time, as far as one machine can see to it."""
    if not archive.location.is_local:
        yield
        return
    folder = archive.path(OURS)
    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(f"{folder}/compact.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(archive, descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(archive: Archive, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"{archive.location.given} is being compacted by another process") from None


def execute(
    archive: Archive, merge: Merge, compression: str, advance: Callable[[int], None] = lambda size: None
) -> list[str]:
    """The paths of the new files; none where the range has no records."""
    from penstock.pipeline.archive.parquet import RangeFiles

    files = RangeFiles(archive, merge.topic, merge.partition, compression)
    try:
        expected = _read_into(archive, merge, files, advance)
        if files.rows != expected:
            raise PipelineError(f"{merge}: {files.rows} rows were read, and the files are said to have {expected}")
        files.publish(merge.start, merge.stop, is_ours=True)
    finally:
        files.abandon()
    written = _names(archive, merge)
    for path in written:
        if not publishing.exists(archive, path):
            raise PipelineError(f"{merge}: {path} was written, and is not there")
    return written


def _read_into(archive: Archive, merge: Merge, files: RangeFiles, advance: Callable[[int], None]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = 0
    for piece in merge.pieces:
        for each in piece.files:
            try:
                with archive.open(each) as stream:
                    opened = pq.ParquetFile(stream)
                    expected += opened.metadata.num_rows
                    for rows in opened.iter_batches(ROWS_PER_READ, use_threads=False):
                        files.add(rows)
            except pa.ArrowInvalid as error:
                raise PipelineError(f"{each.path} can't be read: {error}") from error
            advance(each.size)
    return expected


def _names(archive: Archive, merge: Merge) -> list[str]:
    days = merge.days
    return [
        f"{archive.day_folder(merge.topic, day, is_ours=True)}/"
        + file_name(merge.topic, merge.partition, merge.start, merge.stop, part, len(days), is_ours=True)
        for part, day in enumerate(days, 1)
    ]


# ---- what is not needed any more


def clear(archive: Archive, topic: str, grace_s: float = GRACE_S) -> int:
    """What was merged so long ago, and what merges and jobs that were killed left behind; the number of files."""
    now_s = time.time()
    found = archive.resolved(topic)
    due: dict[tuple[int, int, int], list[str]] = {}
    for each in found.superseded:
        if each.since_s <= now_s - grace_s:
            due.setdefault((each.partition, *each.by), []).append(each.path)
    for piece in found.pieces:
        if piece.is_ours and piece.since_s <= now_s - grace_s:
            _show(archive, topic, piece)
        _discard(archive, topic, due.get((piece.partition, piece.start, piece.stop), []))
    leftover = _leftover(found, now_s)
    _discard(archive, topic, leftover)
    return sum(map(len, due.values())) + len(leftover) + publishing.clear_temporary(archive, topic, now_s)


def _show(archive: Archive, topic: str, piece: Piece) -> None:
    """Puts a merged piece where everybody looks."""
    for each in piece.files:
        folder = archive.day_folder(topic, each.day)
        name = file_name(topic, each.partition, each.start, each.stop, each.part, each.parts)
        publishing.publish_copy(archive, topic, each.path, folder, name)


def _leftover(found: Resolved, now_s: float) -> list[str]:
    """A set that lacks files, of a range that is covered, was a merge. A young one may be somebody's who is at it.

    One whose range is covered by a piece among our own is the half of its copy, which is made whole in its time.
    """
    covered = coverage_of(found.pieces)
    ours = {(each.partition, each.start, each.stop) for each in found.pieces if each.is_ours}
    return [
        each.path
        for each in found.incomplete
        if not uncovered(each.start, each.stop, covered.get(each.partition, []))
        and (each.partition, each.start, each.stop) not in ours
        and each.modified_s < now_s - publishing.LEFT_BEHIND_S
    ]


def _discard(archive: Archive, topic: str, paths: list[str]) -> None:
    """A listing that is being made, and has seen some of them, is made again."""
    if paths:
        archive.set_generation(topic, uuid.uuid4().hex.encode())
    for path in paths:
        publishing.discard(archive, path)
