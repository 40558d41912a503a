"""kafka-python: plain Python, threads."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.codec import has_snappy, has_zstd
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.clients.drivers.face import WAIT_S, Commit, Outgoing, Partition, Placed, Received, Refused

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
QUICK = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200}


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def refused(error: KafkaError) -> Refused:
    return Refused(getattr(error, "errno", -1), error)


class KafkaPythonProducer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = KafkaProducer(**config)
        self._sent: list[Any] = []

    def send(self, topic: str, message: Outgoing) -> None:
        try:
            self._sent.append(
                self._producer.send(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers) or None,
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
            )
        except KafkaError as error:
            raise refused(error) from error

    def finish(self) -> list[Placed]:
        sent, self._sent = self._sent, []
        try:
            done = [future.get(timeout=WAIT_S) for future in sent]
        except KafkaError as error:
            raise refused(error) from error
        return [Placed(m.partition, m.offset, m.timestamp) for m in done]

    def close(self) -> None:
        self._producer.close(timeout=1)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: KafkaPythonConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._consumer.revoked += [(p.topic, p.partition) for p in revoked]

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._consumer.assigned += [(p.topic, p.partition) for p in assigned]


class KafkaPythonConsumer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._consumer = KafkaConsumer(**config)
        self._subscribed = False
        self.revoked: list[Partition] = []
        self.assigned: list[Partition] = []

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        self._subscribed = True
        for topic in topics:
            # A group's leader that does not know the topic yet assigns nothing, and may not notice when it does.
            self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe(topics, pattern=pattern, listener=_Listener(self))

    def assign(self, *partitions: Partition) -> None:
        self._consumer.assign([TopicPartition(*p) for p in partitions])

    def poll(self, timeout_s: float = 0.1) -> list[Received]:
        """A member whose poll ends before the answer to its SyncGroup comes never learns what it was assigned."""
        timeout_s = max(timeout_s, 0.5 if self._subscribed else 0.0)
        try:
            found = self._consumer.poll(int(timeout_s * 1000))
        except KafkaError as error:
            raise refused(error) from error
        return [
            Received(m.topic, m.partition, m.offset, m.key, m.value, tuple(m.headers), m.timestamp)
            for messages in found.values()
            for m in messages
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def position(self, partition: Partition) -> int:
        return self._consumer.position(TopicPartition(*partition))

    def pause(self, *partitions: Partition) -> None:
        self._consumer.pause(*(TopicPartition(*p) for p in partitions))

    def resume(self, *partitions: Partition) -> None:
        self._consumer.resume(*(TopicPartition(*p) for p in partitions))

    def offset_at(self, partition: Partition, timestamp_ms: int) -> int | None:
        named = TopicPartition(*partition)
        found = self._consumer.offsets_for_times({named: timestamp_ms})[named]
        return None if found is None else found.offset

    def ends(self, partition: Partition) -> tuple[int, int]:
        named = TopicPartition(*partition)
        return self._consumer.beginning_offsets([named])[named], self._consumer.end_offsets([named])[named]

    def assignment(self) -> set[Partition]:
        return {(p.topic, p.partition) for p in self._consumer.assignment()}

    def commit(self, offsets: dict[Partition, Commit] | None = None) -> None:
        named = offsets and {TopicPartition(*p): OffsetAndMetadata(c.offset, c.metadata) for p, c in offsets.items()}
        try:
            self._consumer.commit(named)
        except KafkaError as error:
            raise refused(error) from error

    def committed(self, partition: Partition) -> Commit | None:
        found = self._consumer.committed(TopicPartition(*partition), metadata=True)
        return None if found is None else Commit(found.offset, found.metadata)

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class KafkaPython:
    name = "kafka-python"
    codecs = ("gzip", "lz4", *(("snappy",) if has_snappy() else ()), *(("zstd",) if has_zstd() else ()))
    assignors = tuple(ASSIGNORS)

    def producer(
        self,
        bootstrap: str,
        *,
        acks: int | str = "all",
        compression: str | None = None,
        idempotent: bool = False,
        linger_ms: int = 0,
        max_bytes: int | None = None,
        **more: Any,
    ) -> KafkaPythonProducer:
        config = given(
            bootstrap_servers=bootstrap,
            acks=acks,
            compression_type=compression,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            max_request_size=max_bytes,
        )
        return KafkaPythonProducer({**config, **QUICK, **more})

    def consumer(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        reset: str = "earliest",
        assignor: str | None = None,
        instance: str | None = None,
        session_timeout_ms: int | None = None,
        isolation: str = "read_uncommitted",
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        metadata_max_age_ms: int | None = None,
        **more: Any,
    ) -> KafkaPythonConsumer:
        config = given(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset=reset,
            partition_assignment_strategy=[ASSIGNORS[assignor]] if assignor else None,
            group_instance_id=instance,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=None if session_timeout_ms is None else session_timeout_ms // 12,
            isolation_level=isolation,
            max_partition_fetch_bytes=fetch_bytes,
            fetch_max_wait_ms=wait_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            enable_auto_commit=False,
        )
        return KafkaPythonConsumer({**config, **QUICK, **more})
