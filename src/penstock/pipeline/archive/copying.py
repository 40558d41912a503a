"""One range from the log to its files: what a task does."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.archive.parquet import RangeFiles
from penstock.pipeline.archive.settings import DEFAULT_COMPRESSION
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.columns import RowDecoder
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import PipelineError

CHUNK_BYTES = 16 << 20  # of rows that are handed on together
CHUNK_ROWS_MAX = 1 << 20
FILE_BYTES = 1 << 30  # of rows, before they are compressed


@dataclass(frozen=True)
class Copied:
    """What became of a range."""

    rows: int = 0
    files: int = 0
    log_bytes: int = 0  # as they came from the broker


def copy_range(
    brokers: Brokers,
    archive: Archive,
    wanted: OffsetRange,
    compression: str = DEFAULT_COMPRESSION,
    file_bytes: int = FILE_BYTES,
) -> Copied:
    """A range with more than a file should hold becomes several, cut at the same offsets whenever it is done again."""
    copy = _Copy(archive, wanted, compression, file_bytes)
    try:
        fetcher = RangeFetcher(brokers, wanted)
        for batch in fetcher.batches():
            copy.add(batch)
        return copy.finish()
    except OSError as error:
        raise PipelineError(f"{wanted} can't be written to {archive.location.given}: {error}") from error
    finally:
        copy.close()


class _Copy:
    def __init__(self, archive: Archive, wanted: OffsetRange, compression: str, file_bytes: int) -> None:
        self._archive = archive
        self._wanted = wanted
        self._compression = compression
        self._file_bytes = file_bytes
        topic, partition = wanted.place
        self._decoder = RowDecoder(topic, partition, headers=True, leader_epochs=True)
        self._start = wanted.start
        self._files = self._new_files()
        self._in_files = 0
        self._rows = self._published = self._log_bytes = 0

    def _new_files(self) -> RangeFiles:
        return RangeFiles(self._archive, *self._wanted.place, self._compression)

    def add(self, batch: memoryview) -> None:
        self._log_bytes += len(batch)
        self._decoder.add(batch, self._wanted.start, self._wanted.stop)
        if self._decoder.size >= CHUNK_BYTES:
            self._hand_on()

    def _hand_on(self) -> None:
        self._in_files += self._decoder.size
        while (rows := self._decoder.take(CHUNK_ROWS_MAX)) is not None:
            while (fit := self._files.room(rows)) < rows.num_rows:
                self._files.add(rows.slice(0, fit))
                rows = rows.slice(fit)
                self._publish(rows.column("offset")[0].as_py())
            self._files.add(rows)
            last = rows.column("offset")[-1].as_py() + 1
        if self._in_files >= self._file_bytes and last < self._wanted.stop:
            self._publish(last)

    def _publish(self, stop: int) -> None:
        self._published += self._files.publish(self._start, stop)
        self._rows += self._files.rows
        self._start, self._files, self._in_files = stop, self._new_files(), 0

    def finish(self) -> Copied:
        if self._decoder.rows:
            self._hand_on()
        if self._start < self._wanted.stop:
            self._publish(self._wanted.stop)
        return Copied(self._rows, self._published, self._log_bytes)

    def close(self) -> None:
        self._files.abandon()
