"""Archive and log side by side, record by record, as far as the log goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.archive.layout import coverage_of
from penstock.pipeline.archive.parquet import FILE_SCHEMA, by_day, day_name
from penstock.pipeline.brokers import EARLIEST, Brokers, TopicPartition
from penstock.pipeline.columns import RowDecoder
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import DataLost, PipelineError
from penstock.pipeline.topics import setting

if TYPE_CHECKING:
    from penstock.pipeline.archive.layout import Archive, ArchivedFile, Piece, Range
    from penstock.pipeline.archive.status import Ends

CHUNK_BYTES = 16 << 20
CHUNK_ROWS_MAX = 100_000
ROWS_PER_READ = 10_000
DIFFERENCES_MAX = 20  # of one piece
SHOWN_BYTES = 40
LOOKS_MAX = 20  # at files that are merged again and again meanwhile
CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Difference:
    place: TopicPartition
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.place} at offset {self.offset}: {self.problem}"


@dataclass(slots=True)
class Compared:
    records: int = 0
    compacted: int = 0  # records that the log does not have any more, of a topic that is compacted
    skipped: int = 0  # offsets of which nothing is known: the log does not have them, or a file can't be read
    differences: list[Difference] = field(default_factory=list)

    def add(self, other: Compared) -> None:
        self.records += other.records
        self.compacted += other.compacted
        self.skipped += other.skipped
        self.differences += other.differences


def compare(
    brokers: Brokers,
    archive: Archive,
    topic: str,
    piece: Piece,
    within: Range,
    *,
    compacted: bool = False,
    advance: Callable[[int], None] = lambda offsets: None,
) -> Compared:
    """A piece, as far as it lies within a range. Raises FileNotFoundError if it was merged into another meanwhile."""
    place = TopicPartition(topic, piece.partition)
    at, stop = max(piece.start, within[0]), min(piece.stop, within[1])
    found = Compared()
    if at >= stop:
        return found
    comparison = _Comparison(place, found, compacted, at)
    try:
        with _Files(archive, piece) as files:
            while comparison.at < stop and not comparison.is_full:
                left = OffsetRange(place, comparison.at, stop)
                files.take_before(left.start)
                try:
                    comparison.run(_log_rows(brokers, left), files, advance)
                except DataLost:
                    comparison.pass_over(_deleted_up_to(brokers, place), stop)
    except _Unreadable as error:
        found.differences.append(Difference(place, error.offset, str(error)))
    found.skipped += stop - comparison.at
    return found


def _deleted_up_to(brokers: Brokers, place: TopicPartition) -> int:
    return brokers.offsets({place: EARLIEST}, committed=False).get(place, 0)


def compare_again(
    brokers: Brokers, archive: Archive, topic: str, piece: Piece, within: Range, *, compacted: bool = False
) -> Compared:
    """The range of a piece whose files are gone: those that they were merged into have it."""
    within = max(piece.start, within[0]), min(piece.stop, within[1])
    for _ in range(LOOKS_MAX):
        found = Compared()
        try:
            for each in archive.pieces(topic):
                if each.partition == piece.partition:
                    found.add(compare(brokers, archive, topic, each, within, compacted=compacted))
        except FileNotFoundError:
            continue
        return found
    raise PipelineError(f"{archive.location.given}: files of {topic!r} change faster than they are compared")


def compare_ends(topic: str, pieces: list[Piece], ends: Ends, *, another: bool) -> Compared:
    """What can be told without a look at records: a log that is another topic's, or shorter, and what is gone of it."""
    found = Compared()
    for partition, covered in coverage_of(pieces).items():
        place = TopicPartition(topic, partition)
        log = ends.get(place, (0, 0))
        last = covered[-1][1]
        if another:
            problem = "the log is of another topic of this name, and the one that is archived was deleted"
            found.differences.append(Difference(place, covered[0][0], problem))
        elif place in ends and log[1] < last:
            problem = f"the archive reaches up to {last}, and the log ends here: was the topic deleted and made anew?"
            found.differences.append(Difference(place, log[1], problem))
        found.skipped += sum(each[1] - each[0] - _overlap(each, log) for each in covered)
    return found


def is_another(brokers: Brokers, archive: Archive, topic: str) -> bool:
    """Whether the topic of this name is not the one that was archived."""
    known = brokers.topics([topic]).get(topic)
    return known is not None and archive.topic_id(topic) not in (b"", known.topic_id)


def _overlap(one: Range, other: Range) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def is_compacted(brokers: Brokers, topic: str) -> bool:
    """Whether the log may lose records that the archive keeps."""
    return "compact" in (setting(brokers, topic, CLEANUP_POLICY) or "")


def _log_rows(brokers: Brokers, wanted: OffsetRange) -> Iterator[tuple[pa.Table, int]]:
    """Rows as they would be archived, and the offset up to which they are all."""
    decoder = RowDecoder(*wanted.place, headers=True, leader_epochs=True)
    at = wanted.start
    for batch in RangeFetcher(brokers, wanted).batches():
        decoder.add(batch, wanted.start, wanted.stop)
        if decoder.size >= CHUNK_BYTES or decoder.rows >= CHUNK_ROWS_MAX:
            rows = _taken(decoder)
            at = rows.column("offset")[-1].as_py() + 1
            yield rows, at
    if at < wanted.stop:
        yield _taken(decoder), wanted.stop


def _taken(decoder: RowDecoder) -> pa.Table:
    batches = []
    while (rows := decoder.take(CHUNK_ROWS_MAX)) is not None:
        batches.append(rows.select(FILE_SCHEMA.names))
    return pa.Table.from_batches(batches, FILE_SCHEMA)


class _Comparison:
    def __init__(self, place: TopicPartition, found: Compared, compacted: bool, at: int) -> None:
        self._place = place
        self._found = found
        self._compacted = compacted
        self.at = at  # all before it is compared, or known to be gone

    @property
    def is_full(self) -> bool:
        return len(self._found.differences) >= DIFFERENCES_MAX

    def run(self, logged: Iterable[tuple[pa.Table, int]], files: _Files, advance: Callable[[int], None]) -> None:
        for rows, reached in logged:
            self._chunk(rows, files.take_before(reached))
            advance(reached - self.at)
            self.at = reached
            if self.is_full:
                break

    def pass_over(self, begins: int, stop: int) -> None:
        """What retention has deleted meanwhile. A log that lacks anything else is not the one that was archived."""
        if begins <= self.at:
            self._differ(self.at, "the log has neither it nor what is behind it: was the topic deleted?")
            begins = stop
        self._found.skipped += min(begins, stop) - self.at
        self.at = min(begins, stop)

    def _chunk(self, logged: pa.Table, archived: pa.Table) -> None:
        self._check_days(archived)
        archived = archived.drop_columns(["day"])
        if logged.equals(archived):
            self._found.records += logged.num_rows
            return
        rows = {each["offset"]: each for each in archived.to_pylist()}
        if len(rows) < archived.num_rows:
            twice = pc.value_counts(archived.column("offset"))
            repeated = next(each["values"].as_py() for each in twice if each["counts"].as_py() > 1)
            self._differ(repeated, "the archive has it more than once")
        for each in logged.to_pylist():
            other = rows.pop(each["offset"], None)
            self._found.records += 1
            if other is None:
                self._differ(each["offset"], "the log has it, the archive does not")
            elif other != each:
                self._differ(each["offset"], _what_differs(each, other))
        for offset in sorted(rows):
            self._only_archived(offset)

    def _only_archived(self, offset: int) -> None:
        if self._compacted:
            self._found.compacted += 1
        else:
            self._differ(offset, "the archive has it, the log does not (or it was aborted)")

    def _check_days(self, archived: pa.Table) -> None:
        """A record in the folder of another day would be missed by whoever asks for its day."""
        for rows in archived.to_batches():
            for day, of_day in by_day(rows) if rows.num_rows else ():
                wrong = of_day.filter(pc.not_equal(of_day.column("day"), day_name(day)))
                if wrong.num_rows:
                    self._differ(
                        wrong.column("offset")[0].as_py(), f"it is of {day_name(day)}, not of its folder's day"
                    )

    def _differ(self, offset: int, problem: str) -> None:
        if len(self._found.differences) < DIFFERENCES_MAX:
            self._found.differences.append(Difference(self._place, offset, problem))


def _what_differs(logged: dict[str, Any], archived: dict[str, Any]) -> str:
    name = next(each for each in logged if logged[each] != archived.get(each))
    return f"its {name} is {_shown(logged[name])} in the log and {_shown(archived.get(name))} in the archive"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "…"


# ---- the archive's side


class _Unreadable(Exception):
    def __init__(self, file: ArchivedFile, problem: str, offset: int) -> None:
        super().__init__(f"{file.path} {problem}")
        self.offset = offset


class _Files:
    """The files of a piece, read side by side in the order of offsets."""

    def __init__(self, archive: Archive, piece: Piece) -> None:
        self._files = [_File(archive, each) for each in piece.files]

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._files:
            each.close()

    def take_before(self, offset: int) -> pa.Table:
        table = pa.concat_tables([_NOTHING, *(each.take_before(offset) for each in self._files)])
        return table.sort_by("offset") if len(self._files) > 1 else table


_NOTHING = FILE_SCHEMA.append(pa.field("day", pa.string())).empty_table()


class _File:
    def __init__(self, archive: Archive, file: ArchivedFile) -> None:
        self._archive = archive
        self._file = file
        self._at = file.start
        try:
            self._stream = archive.open(file)
            opened = pq.ParquetFile(self._stream)
            if not opened.schema_arrow.equals(FILE_SCHEMA):
                raise _Unreadable(file, f"has other columns: {', '.join(opened.schema_arrow.names)}", file.start)
            self._batches = opened.iter_batches(ROWS_PER_READ, use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise self._failed(error) from None
        self._pending: pa.RecordBatch | None = None

    def take_before(self, offset: int) -> pa.Table:
        taken = []
        while (rows := self._next()) is not None:
            offsets = rows.column("offset")
            if rows.num_rows and offsets[-1].as_py() >= offset:
                count = pc.sum(pc.less(offsets, offset)).as_py()
                taken.append(rows.slice(0, count))
                self._pending = rows.slice(count)
                break
            taken.append(rows)
        table = pa.Table.from_batches(taken, FILE_SCHEMA)
        return table.append_column(pa.field("day", pa.string()), pa.repeat(self._file.day, table.num_rows))

    def _next(self) -> pa.RecordBatch | None:
        if self._pending is not None:
            rows, self._pending = self._pending, None
            return rows
        try:
            rows = next(self._batches, None)
        except (pa.ArrowInvalid, OSError) as error:
            raise self._failed(error) from None
        if rows is not None:
            self._check_order(rows)
        return rows

    def _failed(self, error: Exception) -> Exception:
        """A file that was merged and deleted is no difference."""
        if self._archive.is_gone(self._file):
            return FileNotFoundError(self._file.path)
        return _Unreadable(self._file, f"can't be read: {error}", self._at)

    def _check_order(self, rows: pa.RecordBatch) -> None:
        """Every record is behind the one before it, and within the range that the file answers for."""
        if not rows.num_rows:
            return
        offsets = rows.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        ascends = rows.num_rows == 1 or pc.min(pc.subtract(offsets[1:], offsets[:-1])).as_py() > 0
        if first < self._at or last >= self._file.stop or not ascends:
            raise _Unreadable(self._file, "has offsets out of order, or outside of its range", first)
        self._at = last + 1

    def close(self) -> None:
        self._stream.close()
