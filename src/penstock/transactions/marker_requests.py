"""Markers for partitions that other brokers lead: WriteTxnMarkers, one request at a time to each of them.

What comes while a request is under way goes into the next, so a broker with many transactions is asked once for all of
them. Nothing is tried twice here: whoever wants a marker written looks for the leader anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.coordinator.machine import ProducerStamp
from penstock.coordinator.shard import Done
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.storage.aborted import Marker
from penstock.transactions.transaction import BUMPING_VERSION, TopicPartition
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
    def decision(self) -> tuple[ProducerStamp, Marker, bool]:
        return self.producer, self.marker, self.bumped


class MarkerRequests:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._brokers: dict[int, _Outbox] = {}

    def send(self, node_id: int, wanted: MarkerFor) -> None:
        """Calls back when the marker is committed there, or with what went wrong."""
        outbox = self._brokers.get(node_id)
        if outbox is None:
            outbox = self._brokers[node_id] = _Outbox(self._peers, node_id)
        outbox.add(wanted)


class _Outbox:
    def __init__(self, peers: Peers, node_id: int) -> None:
        self._peers = peers
        self._node_id = node_id
        self._queue: deque[MarkerFor] = deque()
        self._busy = False

    def add(self, wanted: MarkerFor) -> None:
        self._queue.append(wanted)
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._send)  # with what else this turn brings

    def _send(self) -> None:
        batch = self._take()
        if not batch:
            self._busy = False
            return
        self._peers.tell(
            self._node_id, _request(batch), VERSION, WriteTxnMarkersResponse,
            lambda response: self._answered(batch, response),
        )  # fmt: skip

    def _take(self) -> list[MarkerFor]:
        """An answer names the producer alone: of each one decision at a time."""
        batch: list[MarkerFor] = []
        decisions: dict[int, tuple[ProducerStamp, Marker, bool]] = {}
        later: list[MarkerFor] = []
        while self._queue and len(batch) < PARTITIONS_PER_REQUEST:
            wanted = self._queue.popleft()
            if wanted.is_void():
                continue
            if decisions.setdefault(wanted.producer.producer_id, wanted.decision) == wanted.decision:
                batch.append(wanted)
            else:
                later.append(wanted)
        self._queue.extendleft(reversed(later))
        return batch

    def _answered(self, batch: list[MarkerFor], response: WriteTxnMarkersResponse | None) -> None:
        if response is None:  # what else was for this broker may have to go elsewhere by now
            batch = [*batch, *self._queue]
            self._queue.clear()
        codes = _codes(response) if response is not None else {}
        for wanted in batch:
            code = codes.get((wanted.producer.producer_id, wanted.where), ErrorCode.NETWORK_EXCEPTION)
            wanted.done(ApiError(code, f"of broker {self._node_id}") if code else None)
        self._send()


def _request(batch: list[MarkerFor]) -> WriteTxnMarkersRequest:
    decisions: dict[tuple[ProducerStamp, Marker, bool], dict[str, list[int]]] = {}
    for wanted in batch:
        topic, index = wanted.where
        decisions.setdefault(wanted.decision, {}).setdefault(topic, []).append(index)
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
        (marker.producer_id, (topic.name, partition.partition_index)): _code(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
