"""How a marker gets into a partition that this broker leads. Those of a coordinator's topic are its own to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.cluster.model import ClusterImage, PartitionState
from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.coordinator.machine import ProducerStamp
from penstock.coordinator.replicated import append_marker
from penstock.coordinator.runtime import Runtime
from penstock.coordinator.shard import Done
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.aborted import Marker
from penstock.transactions.transaction import TopicPartition


class Markers:
    def __init__(
        self,
        partitions: Partitions,
        coordinators: Mapping[str, Runtime],
        image: ClusterImage,
        now_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._coordinators = coordinators
        self._image = image
        self._now_ms = now_ms

    def state_of(self, where: TopicPartition) -> PartitionState | None:
        """None if there is no such partition in the cluster, or none that can be part of a transaction."""
        name, index = where
        topic = self._image.topics.get(name) if name != TRANSACTIONS_TOPIC else None
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def write(
        self, where: TopicPartition, producer: ProducerStamp, marker: Marker, done: Done, *, bumped: bool = False
    ) -> None:
        """Calls back when the marker is committed, or with what went wrong."""
        topic, index = where
        if self.state_of(where) is None:
            done(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        partition = self._partitions.get(topic, index)
        if partition is None or not partition.leads:
            done(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif topic in self._coordinators:
            self._coordinators[topic].end_transaction(index, producer, marker, done, bumped=bumped)
        else:
            self._append(partition, producer, marker, done, bumped)

    def _append(self, partition: Partition, producer: ProducerStamp, marker: Marker, done: Done, bumped: bool) -> None:
        try:
            end = append_marker(partition, producer, marker, self._now_ms(), bumped=bumped)
        except ApiError as error:
            done(error)
            return

        def committed() -> None:
            done(None if partition.high_watermark >= end else partition.failure())

        partition.when_committed(end, committed)
