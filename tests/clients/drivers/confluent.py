"""confluent-kafka: librdkafka in C."""

from __future__ import annotations

import contextlib
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.clients.drivers.face import WAIT_S, Commit, Outgoing, Partition, Placed, Received, Refused

QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


def given(**options: Any) -> dict[str, Any]:
    """Names with dots; what is None is left to the client's default."""
    return {name.replace("_", "."): value for name, value in options.items() if value is not None}


class ConfluentProducer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(config)
        self._sent: list[list[Placed | KafkaError]] = []

    def send(self, topic: str, message: Outgoing) -> None:
        outcome: list[Placed | KafkaError] = []

        def delivered(error: KafkaError | None, sent: Any) -> None:
            outcome.append(error if error else Placed(sent.partition(), sent.offset(), sent.timestamp()[1]))

        more = {} if message.partition is None else {"partition": message.partition}
        if message.timestamp_ms is not None:
            more["timestamp"] = message.timestamp_ms
        headers = list(message.headers) or None
        try:
            self._producer.produce(topic, message.value, message.key, headers=headers, on_delivery=delivered, **more)
        except KafkaException as error:
            raise Refused(error.args[0].code(), error) from error
        self._sent.append(outcome)

    def finish(self) -> list[Placed]:
        assert self._producer.flush(WAIT_S) == 0, "messages were not sent in time"
        sent, self._sent = self._sent, []
        for outcome in sent:
            if isinstance(outcome[0], KafkaError):
                raise Refused(outcome[0].code(), outcome[0])
        return [outcome[0] for outcome in sent]

    def close(self) -> None:
        self._producer.purge()
        self._producer.close(1)


class ConfluentConsumer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._cooperative = config.get("partition.assignment.strategy") == "cooperative-sticky"
        self._consumer = confluent_kafka.Consumer(config)
        self.revoked: list[Partition] = []
        self.assigned: list[Partition] = []

    @property
    def membership(self) -> Any:
        """As a transactional producer passes it on (KIP-447)."""
        return self._consumer.consumer_group_metadata()

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        names = [pattern] if pattern else list(topics)
        self._consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.assigned += [(p.topic, p.partition) for p in partitions]

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.revoked += [(p.topic, p.partition) for p in partitions]

    def assign(self, *partitions: Partition) -> None:
        self._consumer.assign([TopicPartition(*p) for p in partitions])

    def poll(self, timeout_s: float = 0.1) -> list[Received]:
        first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self._consumer.consume(500, 0)]
        for message in messages:
            if message.error():
                raise Refused(message.error().code(), message.error())
        return [
            Received(
                m.topic(), m.partition(), m.offset(), m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]
            )
            for m in messages
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        """Until the partition is being fetched, librdkafka wants its place to be part of the assignment."""
        named = TopicPartition(*partition, offset)
        try:
            self._consumer.seek(named)
        except KafkaException:
            self._consumer.assign([named])

    def position(self, partition: Partition) -> int:
        return self._consumer.position([TopicPartition(*partition)])[0].offset

    def pause(self, *partitions: Partition) -> None:
        self._consumer.pause([TopicPartition(*p) for p in partitions])

    def resume(self, *partitions: Partition) -> None:
        self._consumer.resume([TopicPartition(*p) for p in partitions])

    def offset_at(self, partition: Partition, timestamp_ms: int) -> int | None:
        (found,) = self._consumer.offsets_for_times([TopicPartition(*partition, timestamp_ms)], WAIT_S)
        return None if found.offset < 0 else found.offset  # OFFSET_END: nothing so late

    def ends(self, partition: Partition) -> tuple[int, int]:
        return self._consumer.get_watermark_offsets(TopicPartition(*partition), WAIT_S)

    def assignment(self) -> set[Partition]:
        return {(p.topic, p.partition) for p in self._consumer.assignment()}

    def commit(self, offsets: dict[Partition, Commit] | None = None) -> None:
        try:
            if offsets is None:
                results = self._consumer.commit(asynchronous=False)
            else:
                named = [TopicPartition(*p, commit.offset, commit.metadata) for p, commit in offsets.items()]
                results = self._consumer.commit(offsets=named, asynchronous=False)
        except KafkaException as error:
            raise Refused(error.args[0].code(), error) from error
        for result in results:
            if result.error:
                raise Refused(result.error.code(), result.error)

    def committed(self, partition: Partition) -> Commit | None:
        (found,) = self._consumer.committed([TopicPartition(*partition)], WAIT_S)
        return None if found.offset < 0 else Commit(found.offset, found.metadata or "")

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._consumer.close()


class Confluent:
    name = "confluent"
    codecs = ("gzip", "snappy", "lz4", "zstd")
    assignors = ("range", "roundrobin", "cooperative-sticky")

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
    ) -> ConfluentProducer:
        config = {
            **given(
                bootstrap_servers=bootstrap,
                acks=acks,
                compression_type=compression,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                message_max_bytes=max_bytes,
                partitioner="murmur2_random",
            ),
            **QUICK,
            **more,
        }
        return ConfluentProducer(config)

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
    ) -> ConfluentConsumer:
        config = {
            **given(
                bootstrap_servers=bootstrap,
                group_id=group or "unused",
                auto_offset_reset={"none": "error"}.get(reset, reset),
                partition_assignment_strategy=assignor,
                group_instance_id=instance,
                session_timeout_ms=session_timeout_ms,
                isolation_level=isolation,
                fetch_wait_max_ms=wait_ms,
                topic_metadata_refresh_interval_ms=metadata_max_age_ms,
                heartbeat_interval_ms=None if session_timeout_ms is None else session_timeout_ms // 12,
                enable_auto_commit=False,
            ),
            **({} if fetch_bytes is None else {"max.partition.fetch.bytes": fetch_bytes}),
            **QUICK,
            **more,
        }
        return ConfluentConsumer(config)
