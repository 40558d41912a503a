"""Markers for partitions that other brokers lead: WriteTxnMarkers, one request at a time to each of them.

Nothing is tried twice here: whoever wants a marker written looks for the leader anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.coordinator.machine import ProducerStamp
from penstock.coordinator.shard import Done
from penstock.protocol.errors import ApiError, ErrorCode, code_of
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.storage.aborted import Marker
from penstock.transactions.transaction import BUMPING_VERSION, TopicPartition
from penstock.transport.outboxes import Outboxes
from penstock.transport.peers import Peers

VERSION = 2
PARTITIONS_PER_REQUEST = 1_000


class MarkerFor(NamedTuple):
    """One partition's marker."""

    where: TopicPartition
    producer: ProducerStamp
    marker: Marker
    bumped: bool
    is_void: Callable[[], bool]  # nobody wants it written any more
    done: Done

    @property
    def size(self) -> int:
        return 1

    @property
    def subject(self) -> int:
        return self.producer.producer_id

    @property
    def matter(self) -> tuple[ProducerStamp, Marker, bool]:
        return self.producer, self.marker, self.bumped


class MarkerRequests(Outboxes[MarkerFor, WriteTxnMarkersResponse]):
    """What is put in is told when its marker is committed there, or what went wrong."""

    def __init__(self, peers: Peers) -> None:
        super().__init__(peers, VERSION, WriteTxnMarkersResponse, PARTITIONS_PER_REQUEST)

    def request(self, batch: list[MarkerFor]) -> WriteTxnMarkersRequest:
        return _request(batch)

    def answered(self, node_id: int, batch: list[MarkerFor], response: WriteTxnMarkersResponse | None) -> None:
        codes = _codes(response) if response is not None else {}
        for wanted in batch:
            code = codes.get((wanted.producer.producer_id, wanted.where), ErrorCode.NETWORK_EXCEPTION)
            wanted.done(ApiError(code, f"of broker {node_id}") if code else None)


def _request(batch: list[MarkerFor]) -> WriteTxnMarkersRequest:
    decisions: dict[tuple[ProducerStamp, Marker, bool], dict[str, list[int]]] = {}
    for wanted in batch:
        topic, index = wanted.where
        decisions.setdefault(wanted.matter, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=marker.committed,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=BUMPING_VERSION if bumped else 0,
            )
            for (producer, marker, bumped), topics in decisions.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, (topic.name, partition.partition_index)): code_of(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
