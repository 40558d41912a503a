"""A follower's appends: the leader's batches, byte for byte, at the leader's offsets.

What a follower checks is what a broken leader or a broken wire could do to its log: that batches are whole, sound, in
order, and of no epoch that is yet to come. What a batch means to producers and transactions is noted as the leader
noted it, because this replica may lead next.
"""

from __future__ import annotations

from penstock.protocol.errors import CorruptBatch
from penstock.protocol.record_batch import HEADER_SIZE
from penstock.protocol.short import open_batch
from penstock.replication.batches import CONTROL, TRANSACTIONAL
from penstock.replication.partition import Partition
from penstock.storage.aborted import read_marker


def copy(partition: Partition, records: memoryview, now_ms: int) -> None:
    """Stages all whole batches; the bytes must stay until the turn ends. Raises CorruptBatch at one that can't be, and
    ApiError if it can't be written; those before it stay."""
    store, at, size = partition.log, 0, len(records)
    while size - at >= HEADER_SIZE:
        (
            sound, base_offset, length, epoch, magic, attributes, last_delta, max_timestamp, producer_id,
            producer_epoch, sequence, _,
        ) = open_batch(records, at)  # fmt: skip
        end = at + 12 + length
        if end > size and length >= HEADER_SIZE - 12:
            return  # the leader had room for no more
        if length < HEADER_SIZE - 12 or magic != 2 or last_delta < 0:
            raise CorruptBatch(f"{partition.name}: no batch at offset {store.next_offset}")
        if base_offset < store.next_offset:
            raise CorruptBatch(f"{partition.name}: a batch at offset {base_offset}, below {store.next_offset}")
        if not store.epochs.latest <= epoch <= partition.leader_epoch:
            raise CorruptBatch(f"{partition.name}: a batch of epoch {epoch} at offset {base_offset}")
        if not sound:
            raise CorruptBatch(f"{partition.name}: the batch at offset {base_offset} is corrupt")
        batch = records[at:end]
        last_offset = base_offset + last_delta
        partition.stage_copy(batch, end - at, base_offset, last_offset, max_timestamp, epoch, now_ms)
        if producer_id >= 0:
            if attributes & CONTROL:
                marker = read_marker(batch)
                if marker is not None:
                    store.end_transaction(producer_id, producer_epoch, marker, base_offset, max_timestamp)
            elif sequence >= 0 or attributes & TRANSACTIONAL:
                store.producers.add(
                    producer_id, producer_epoch, sequence, base_offset, last_offset, max_timestamp,
                    attributes & TRANSACTIONAL != 0,
                )  # fmt: skip
        at = end
