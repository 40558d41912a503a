"""All that a topic ever held, whoever has it now: a range of offsets from the archive and from the log.

A task is told which files the archive had when the job was planned, and what the log was to give. Between the two
moments the archive goes on and retention deletes. With `retention.hold.group` retention deletes only what the archive's
group has committed, and the archive commits only what its files hold. So an offset that is gone from the log is in a
file by then: the task looks again, finds it, and goes on where it was. Without such a group, or without the archive,
it finds nothing, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.archive.layout import Archive, Piece
from penstock.pipeline.archived_rows import ALWAYS, ROWS_PER_BATCH, Window, piece_rows
from penstock.pipeline.brokers import EARLIEST, Brokers
from penstock.pipeline.columns import RowDecoder
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import DataLost
from penstock.protocol.record_batch import read_header

if TYPE_CHECKING:
    import pyarrow

BYTES_PER_BATCH = 16 << 20
LOOKS_MAX = 100  # at an archive whose files change while one range is read


@dataclass(frozen=True, slots=True)
class History:
    """Where rows are looked for. It can be sent to workers."""

    client: ClientSettings
    topic: str
    archive: Archive | None
    fail_on_data_loss: bool = True
    window: Window = ALWAYS
    topic_id: bytes | None = None  # of the topic that was planned for: the log must be of that one


class RangeReader:
    """One range of a partition, in order, each record once."""

    def __init__(self, history: History, wanted: OffsetRange, pieces: Sequence[Piece] = ()) -> None:
        self._history = history
        self._place = wanted.place
        self._stop = wanted.stop
        self._pieces = list(pieces)  # of this partition, in order
        self._at = wanted.start
        self._looks = 0

    def rows(self) -> Iterator[pyarrow.RecordBatch]:
        """Raises DataLost where neither the archive nor the log has what was to be read."""
        with Brokers(self._history.client) as brokers:
            while self._at < self._stop:
                piece = next((each for each in self._pieces if each.start <= self._at < each.stop), None)
                if piece is not None:
                    yield from self._from_archive(piece)
                else:
                    yield from self._from_log(brokers, self._next_piece())

    def _next_piece(self) -> int:
        return min((each.start for each in self._pieces if each.start > self._at), default=self._stop)

    def _from_archive(self, piece: Piece) -> Iterator[pyarrow.RecordBatch]:
        history = self._history
        assert history.archive is not None
        stop = min(piece.stop, self._stop)
        try:
            for rows in piece_rows(history.archive, piece, self._at, stop, history.window):
                self._at = rows.column("offset")[-1].as_py() + 1  # what was handed out does not come again
                yield rows
            self._at = stop
        except OSError as missing:
            if not any(map(history.archive.is_gone, piece.files)):
                raise
            self._look_again()  # its files were merged into others
            if any(set(piece.files) <= set(each.files) for each in self._pieces):
                raise DataLost(f"{self._place}: a file of the archive is gone: {missing}") from missing

    def _from_log(self, brokers: Brokers, stop: int) -> Iterator[pyarrow.RecordBatch]:
        history, start, stop = self._history, self._at, min(stop, self._stop)
        self._expect_same_topic(brokers)
        decoder = RowDecoder(*self._place, headers=True)
        fetcher = RangeFetcher(brokers, OffsetRange(self._place, start, stop))
        lost: DataLost | None = None
        try:
            for batch in fetcher.batches():
                first_ms = history.window.first_ms
                if first_ms is None or read_header(batch).max_timestamp >= first_ms:
                    decoder.add(batch, start, stop)
                while decoder.rows >= ROWS_PER_BATCH or decoder.size >= BYTES_PER_BATCH:
                    yield from self._taken(decoder)
        except DataLost as error:
            lost = error
        while decoder.rows:
            yield from self._taken(decoder)
        self._at = min(fetcher.position, stop)
        if lost is not None:
            self._after_loss(brokers, lost)

    def _expect_same_topic(self, brokers: Brokers) -> None:
        """A topic that was made anew has the same offsets again, of other records."""
        known = brokers.topics([self._place.topic]).get(self._place.topic)
        if known is not None and self._history.topic_id not in (None, known.topic_id):
            raise DataLost(f"topic {self._place.topic!r} was deleted and made anew after this was planned")

    def _taken(self, decoder: RowDecoder) -> Iterator[pyarrow.RecordBatch]:
        rows = self._history.window.of(decoder.take(ROWS_PER_BATCH))
        if rows.num_rows:
            yield rows

    def _look_again(self) -> None:
        self._looks += 1
        if self._looks > LOOKS_MAX:
            raise DataLost(f"{self._place}: the archive's files change faster than they are read")
        if self._history.archive is not None:
            pieces = self._history.archive.pieces(self._history.topic)
            self._pieces = [each for each in pieces if each.partition == self._place.partition]

    def _after_loss(self, brokers: Brokers, lost: DataLost) -> None:
        """The log has no more what was to be read: either the archive has it by now, or nobody has."""
        self._look_again()
        if any(each.start <= self._at < each.stop for each in self._pieces):
            return
        if self._history.fail_on_data_loss:
            raise DataLost(f"{lost}{self._nor_the_archive()}") from lost
        begins = brokers.offsets({self._place: EARLIEST}, committed=False).get(self._place, self._stop)
        known = [each for each in (begins, self._next_piece()) if each > self._at]
        self._at = min([*known, self._stop])

    def _nor_the_archive(self) -> str:
        archive = self._history.archive
        if archive is None:
            return f" No archive of {self._place.topic!r} is known."
        return f" The archive {archive.location.given} does not have offset {self._at} either."
