"""Writes the markers of a transaction that was decided, into every partition that it wrote to.

Nothing may stop it but the end of a partition: a disk that is full or a coordinator that loads is tried again, until
all partitions have their marker. Then the machine is told. If the broker dies meanwhile, the machine finds the decision
in its log and asks again, so a partition may get a marker twice, which means nothing to its readers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.coordinator.machine import ProducerStamp
from penstock.coordinator.runtime import Done, Runtime
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.aborted import Marker
from penstock.transactions.commands import MarkersWritten, WriteMarkers
from penstock.transactions.transaction import TopicPartition

log = logging.getLogger("penstock.transactions")

MARKERS_PER_TURN = 100
RETRY_MS_FIRST = 20
RETRY_MS_MAX = 5_000

# The partition is gone, or knows of a later decision: there is nothing left to end.
_ENDED_OTHERWISE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class Markers:
    """How a marker gets into a partition of this broker. Partitions of a coordinator's topic are its own to write."""

    def __init__(self, partitions: Partitions, coordinators: Mapping[str, Runtime], now_ms: Callable[[], int]) -> None:
        self._partitions = partitions
        self._coordinators = coordinators
        self._now_ms = now_ms

    def write(self, where: TopicPartition, producer: ProducerStamp, marker: Marker, done: Done) -> None:
        """Calls back when the marker is committed, or with what went wrong."""
        topic, index = where
        # What coordinates transactions is part of none.
        partition = self._partitions.get(topic, index) if topic != TRANSACTIONS_TOPIC else None
        if partition is None:
            done(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic in self._coordinators:
            self._coordinators[topic].end_transaction(index, producer, marker, done)
        else:
            self._append(partition, producer, marker, done)

    def _append(self, partition: Partition, producer: ProducerStamp, marker: Marker, done: Done) -> None:
        try:
            end = partition.append_marker(producer.producer_id, producer.producer_epoch, marker, self._now_ms())
        except ApiError as error:
            done(error)
            return

        def committed() -> None:
            if partition.high_watermark >= end:
                done(None)
            else:
                gone = partition.deleted
                done(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.KAFKA_STORAGE_ERROR))

        partition.when_committed(end, committed)


class MarkerWriter:
    """Carries `WriteMarkers` out."""

    def __init__(self, markers: Markers, runtime: Callable[[], Runtime]) -> None:
        self._markers = markers
        self._runtime = runtime
        self._retries: set[asyncio.TimerHandle] = set()
        self._closed = False
        self._newest: dict[tuple[str, str], _Decision] = {}  # by partition of the coordinator and transactional id

    def __call__(self, coordinator: Partition, effect: WriteMarkers) -> None:
        """Whoever was at it for the same id has no part in it any more: a marker of its could end what comes next."""
        decision = _Decision(self, self._markers, coordinator, effect)
        self._newest[coordinator.name, effect.transactional_id] = decision
        decision.begin()

    def is_void(self, decision: _Decision) -> bool:
        return self._newest.get(decision.key) is not decision

    def written(self, decision: _Decision, coordinator: Partition, effect: WriteMarkers) -> None:
        if self.is_void(decision):
            return
        del self._newest[decision.key]
        if not self._closed:
            self._runtime().submit(
                coordinator.index,
                lambda ticket: MarkersWritten(
                    ticket, effect.transactional_id, effect.producer_id, effect.producer_epoch, effect.attempt
                ),
                lambda reply: None,
            )

    def later(self, delay_ms: int, go_on: Callable[[], None]) -> None:
        def run() -> None:
            self._retries.discard(handle)
            go_on()

        if not self._closed:
            handle = asyncio.get_running_loop().call_later(delay_ms / 1000, run)
            self._retries.add(handle)

    def close(self) -> None:
        self._closed = True
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()


class _Decision:
    """One transaction's markers, each tried until it is there."""

    def __init__(self, writer: MarkerWriter, markers: Markers, coordinator: Partition, effect: WriteMarkers) -> None:
        self._writer = writer
        self._markers = markers
        self._coordinator = coordinator
        self._effect = effect
        self._producer = ProducerStamp(effect.producer_id, effect.producer_epoch)
        self._marker = Marker(effect.committed, coordinator.leader_epoch)
        self._missing = set(effect.partitions)
        self.key = (coordinator.name, effect.transactional_id)

    def begin(self) -> None:
        if not self._missing:
            self._writer.written(self, self._coordinator, self._effect)
        self._write_some(list(self._effect.partitions))

    def _write_some(self, left: list[TopicPartition]) -> None:
        """A wide transaction takes several turns of the loop, so that others get theirs."""
        for where in left[:MARKERS_PER_TURN]:
            self._write(where, RETRY_MS_FIRST)
        if rest := left[MARKERS_PER_TURN:]:
            self._writer.later(0, lambda: self._write_some(rest))

    def _write(self, where: TopicPartition, retry_ms: int) -> None:
        def done(error: ApiError | None) -> None:
            if error is None or error.code in _ENDED_OTHERWISE:
                self._missing.discard(where)
                if not self._missing:
                    self._writer.written(self, self._coordinator, self._effect)
                return
            if self._coordinator.error is not None:
                return  # whoever coordinates next finds the decision in its log
            partition = f"{where[0]}-{where[1]}"
            log.warning("no marker yet: %s", error, extra={"partition": partition, "id": self._effect.transactional_id})
            self._writer.later(retry_ms, lambda: self._write(where, min(2 * retry_ms, RETRY_MS_MAX)))

        if not self._writer.is_void(self):
            self._markers.write(where, self._producer, self._marker, done)
