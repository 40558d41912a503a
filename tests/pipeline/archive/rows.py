"""Rows of an archive that tests make without a broker."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.archive.parquet import FILE_SCHEMA, RangeFiles

DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2  # 2024-10-04


def rows(offsets: Sequence[int], timestamps_ms: Sequence[int] | None = None, partition: int = 0) -> pa.RecordBatch:
    times = [each * 1000 for each in (timestamps_ms or [NOON_MS] * len(offsets))]
    columns = {
        "key": [f"k{each}".encode() for each in offsets],
        "value": [None if each % 7 == 3 else f"value {each}".encode() * 3 for each in offsets],
        "headers": [[{"key": "h", "value": str(each).encode()}] if each % 2 else None for each in offsets],
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": times,
        "timestampType": [0] * len(offsets),
        "leaderEpoch": [each // 10 for each in offsets],
    }
    return pa.RecordBatch.from_pydict(columns, schema=FILE_SCHEMA)


def archive_range(
    archive: Archive, topic: str, start: int, stop: int, timestamps_ms: Sequence[int] | None = None, partition: int = 0
) -> int:
    """As a job would, every offset a record; the number of files."""
    files = RangeFiles(archive, topic, partition)
    if timestamps_ms != []:
        files.add(rows(range(start, stop), timestamps_ms, partition))
    try:
        return files.publish(start, stop)
    finally:
        files.abandon()


def read_all(archive: Archive, topic: str) -> list[dict[str, object]]:
    """Through the layout: what counts."""
    import pyarrow.parquet as pq

    found: list[dict[str, object]] = []
    for file in archive.files(topic):
        with archive.open(file) as stream:
            found += pq.ParquetFile(stream).read().to_pylist()
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))  # type: ignore[arg-type, return-value]
