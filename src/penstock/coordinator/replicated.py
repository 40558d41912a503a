"""What a coordinator asks of the other replicas before it appends.

What it says is true once its records are committed. Where there are too few in-sync replicas, nothing is: then it
appends nothing either, so that whoever is refused can come again without finding it half done.
"""

from __future__ import annotations

from penstock.coordinator.machine import ProducerStamp
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import HEADER_SIZE, read_header
from penstock.replication.partition import Partition
from penstock.storage.aborted import Marker


def lacks_replicas(partition: Partition) -> bool:
    return partition.in_sync is not None and not partition.in_sync.enough


def append_marker(partition: Partition, producer: ProducerStamp, marker: Marker, now_ms: int, *, bumped: bool) -> int:
    """The offset that the high watermark must reach. `bumped` says that the end of the transaction has brought the
    marker's epoch (KIP-890): what is open here in that epoch came later, and the marker is late, or came twice."""
    if not partition.leads:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if lacks_replicas(partition):
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    if bumped and _began_in_epoch(partition, producer):
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, "the marker ends an earlier transaction than the open one")
    return partition.append_marker(*producer, marker, now_ms)


def _began_in_epoch(partition: Partition, producer: ProducerStamp) -> bool:
    """Whether the producer has a transaction open that began in this very epoch. One whose marker was lost again (by a
    write that failed, by a truncation) is open too, and the producer known by the marker's epoch: then its first batch
    tells."""
    log = partition.log
    if not log.producers.is_open(*producer):
        return False
    first_offset = log.producers.entries[producer.producer_id].current_transaction_first_offset
    if first_offset >= log.end_offset:
        return True  # staged in this turn
    found = log.read(first_offset, HEADER_SIZE, log.end) if first_offset >= log.start_offset else None
    if found is None:
        return False
    first = read_header(found.file.read(HEADER_SIZE, found.position))
    return (first.producer_id, first.producer_epoch) == producer
