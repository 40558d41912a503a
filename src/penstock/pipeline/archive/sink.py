"""The sink of ranges: a task copies its range, the driver tells the archive's group how far it is covered.

A range is done again under the same name, and a commit says the same again, so it does not matter how often.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.pipeline.archive.group import expect_own, metadata_of
from penstock.pipeline.archive.settings import ArchiveOptions, archive_options
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.group_offsets import commit
from penstock.pipeline.options import OF_CLIENTS, Options

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Archived(WriterCommitMessage):
    """What a task reports to the driver."""

    ranges: tuple[OffsetRange, ...]
    rows: int
    files: int
    log_bytes: int


class ArchiveDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_archive"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        archive, others = archive_options(self.options)
        return ArchiveWriter(Options(others, OF_CLIENTS, "archive").client(), archive)


class ArchiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, client: ClientSettings, options: ArchiveOptions) -> None:
        self._client = client
        self._options = options

    # ---- the tasks'

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Archived:
        from penstock.pipeline.archive.copying import copy_range

        ranges = []
        rows = files = log_bytes = 0
        archive = self._options.open()
        with Brokers(self._client) as brokers:
            for batch in iterator:
                for row in batch.to_pylist():
                    wanted = OffsetRange(TopicPartition(row["topic"], row["partition"]), row["start"], row["stop"])
                    if not row["covered"]:
                        copied = copy_range(brokers, archive, wanted, self._options.compression)
                        rows += copied.rows
                        files += copied.files
                        log_bytes += copied.log_bytes
                    ranges.append(wanted)
        return Archived(tuple(ranges), rows, files, log_bytes)

    # ---- the driver's

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Batches come in order, and each begins where the one before ended: up to its end all is covered."""
        archived = [each for each in messages if isinstance(each, Archived)]
        reached: dict[str, dict[TopicPartition, int]] = {}
        for each in archived:
            for place, _, stop in each.ranges:
                offsets = reached.setdefault(self._options.group_of(place.topic), {})
                offsets[place] = max(stop, offsets.get(place, 0))
        location = self._options.open().location
        with Brokers(self._client) as brokers:
            for group, offsets in reached.items():
                expect_own(brokers, group, offsets, location)
                commit(brokers, group, offsets, metadata_of(location))
        if self._options.report:
            _report(self._options.report, BatchReport.of(batchId, archived))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Files that are there stay: the batch is done again, and they need not be."""


@dataclass(frozen=True)
class BatchReport:
    batch: int
    ranges: int
    rows: int
    files: int
    log_bytes: int

    @classmethod
    def of(cls, batch: int, archived: list[Archived]) -> BatchReport:
        return cls(
            batch,
            sum(len(each.ranges) for each in archived),
            sum(each.rows for each in archived),
            sum(each.files for each in archived),
            sum(each.log_bytes for each in archived),
        )


def _report(path: str, report: BatchReport) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(report)) + "\n")
