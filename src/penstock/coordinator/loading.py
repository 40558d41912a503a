"""Reads a partition into its machine: all that is committed when the leadership begins.

What lies above the high watermark then may be committed or cut off, and only the other replicas know: so the load waits
until it is committed. When the leadership ends first, there is nothing to load any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.coordinator.machine import LogRecord, Machine, ProducerStamp
from penstock.protocol.record_batch import BatchHeader, CorruptBatch, read_batches, read_records
from penstock.replication.partition import Partition
from penstock.storage.aborted import read_marker

log = logging.getLogger("penstock.coordinator")

LOAD_CHUNK_BYTES = 1 << 20
LOAD_DECOMPRESSED_MAX = 64 * 1024 * 1024


class LeadershipLost(Exception):
    """Another broker leads the partition, or this one does in another epoch."""


async def load(partition: Partition, machine: Machine, now_ms: Callable[[], int], leads: Callable[[], bool]) -> int:
    """The number of records. Raises what is wrong with the log, which is logged here, or LeadershipLost."""
    await _settled(partition, leads)
    offset, count = partition.log.start_offset, 0
    try:
        while (found := partition.log.read(offset, LOAD_CHUNK_BYTES, partition.committed)) is not None:
            begun = offset
            for header, batch in read_batches(found.read()):
                offset = header.last_offset + 1
                count += _apply_batch(machine, header, batch, now_ms())
            if offset == begun:
                raise CorruptBatch(f"no whole batch at offset {offset}")
            await asyncio.sleep(0)
            if not leads():
                raise LeadershipLost
    except LeadershipLost:
        raise
    except Exception:
        log.exception("load failed", extra={"partition": partition.name, "offset": offset})
        raise
    return count


async def _settled(partition: Partition, leads: Callable[[], bool]) -> None:
    """Batches of a leader or a machine before this one may be on their way to the device and the other replicas."""
    while leads() and partition.high_watermark < (end := partition.log.next_offset):
        settled = asyncio.Event()
        partition.when_committed(end, settled.set)
        await settled.wait()
    if not leads():
        raise LeadershipLost


def _apply_batch(machine: Machine, header: BatchHeader, batch: memoryview, now_ms: int) -> int:
    if header.is_control:
        marker = read_marker(batch)
        if marker is not None:
            machine.end_transaction(header.producer_id, marker.committed, now_ms)
        return 0
    count = 0
    producer = ProducerStamp(header.producer_id, header.producer_epoch)
    for record in read_records(batch, LOAD_DECOMPRESSED_MAX, compacted=True):
        stored = LogRecord(record.key or b"", record.value)
        if header.is_transactional:
            machine.apply_in_transaction(stored, producer, now_ms)
        else:
            machine.apply(stored, now_ms)
        count += 1
    return count
