"""Making logs, appending to them and reading them whole, for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import Record, build_batch, read_batches, read_records
from penstock.storage.aborted import Marker, build_marker
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogSettings
from penstock.storage.recovery import Recovery, recover

NOW_MS = 1_700_000_000_000
SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=200)
DECOMPRESS_MAX = 1 << 24


def new_log(directory: Path, settings: LogSettings = SMALL, disk: Disk | None = None, epoch: int | None = 0) -> Log:
    log = Log(disk or Disk(), directory, settings, [], 0, 0)
    if epoch is not None:
        log.begin_epoch(epoch)
    return log


def record(offset: int, key: str | None = None, value: str | None = "value", timestamp_ms: int = NOW_MS) -> Record:
    return Record(
        offset, timestamp_ms, None if key is None else key.encode(), None if value is None else value.encode()
    )


def batch_at(
    offset: int,
    count: int = 1,
    *,
    size: int = 10,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[str | None] | None = None,
    values: Sequence[str | None] | None = None,
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: Compression = Compression.NONE,
    transactional: bool = False,
) -> bytes:
    records = [
        record(
            offset + slot,
            keys[slot] if keys else None,
            values[slot] if values else f"{offset + slot}".ljust(size, "."),
            timestamps[slot] if timestamps else NOW_MS,
        )
        for slot in range(count)
    ]
    return build_batch(
        records, base_offset=offset, partition_leader_epoch=epoch, compression=compression, producer_id=producer[0],
        producer_epoch=producer[1], base_sequence=producer[2], transactional=transactional,
    )  # fmt: skip


def stage(log: Log, batch: bytes, now_ms: int = NOW_MS) -> None:
    """As a partition does: first the log, then what it remembers of the producer."""
    for header, data in read_batches(batch):
        log.stage(data, len(data), header.base_offset, header.last_offset, header.max_timestamp, now_ms)
        if header.producer_id >= 0:
            log.producers.add(
                header.producer_id, header.producer_epoch, header.base_sequence, header.base_offset,
                header.last_offset, header.max_timestamp, header.is_transactional,
            )  # fmt: skip


def end_transaction(log: Log, producer_id: int, epoch: int = 0, *, committed: bool, now_ms: int = NOW_MS) -> None:
    """The marker, staged and written."""
    marker = Marker(committed, coordinator_epoch=0)
    batch, offset = build_marker(producer_id, epoch, marker, now_ms), log.next_offset
    batch[:8] = offset.to_bytes(8, "big")
    batch[12:16] = (0).to_bytes(4, "big")
    log.stage(memoryview(batch), len(batch), offset, offset, now_ms, now_ms)
    log.end_transaction(producer_id, epoch, marker, offset, now_ms)
    log.write_staged()


def append(log: Log, *batches: bytes, now_ms: int = NOW_MS) -> None:
    for batch in batches:
        stage(log, batch, now_ms)
    log.write_staged()


def fill(log: Log, batches: int, count: int = 2, size: int = 10, epoch: int = 0) -> None:
    """So many batches behind the end, each written by itself."""
    for _ in range(batches):
        append(log, batch_at(log.next_offset, count, size=size, epoch=epoch))


def sync(log: Log) -> None:
    for segment in log.segments:
        segment.sync()


def seal_all(log: Log) -> None:
    for segment in log.segments[:-1]:
        if segment.sealed_to != segment.size:
            segment.seal()


def read_all(log: Log, max_bytes: int = 1 << 20, start: int | None = None) -> list[Record]:
    """Every record from the start to the end, fetched as a consumer does; batches must match their checksums."""
    records: list[Record] = []
    offset = log.start_offset if start is None else start
    while (found := log.read(offset, max_bytes, log.end)) is not None:
        for header, data in read_batches(found.read()):
            records += [
                r for r in read_records(data, DECOMPRESS_MAX, check_crc=True, compacted=True) if r.offset >= offset
            ]
            next_offset = header.last_offset + 1
        assert next_offset > offset
        offset = next_offset
    return records


def offsets(log: Log) -> list[int]:
    return [r.offset for r in read_all(log)]


def recovered(directory: Path, settings: LogSettings = SMALL, disk: Disk | None = None) -> Recovery:
    return recover(disk or Disk(), directory, settings, NOW_MS)


def describe(records: Iterable[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for r in records]
