"""aiokafka: asyncio, on a loop that runs in a thread of its own, so that tests call it like the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from tests.clients.drivers.face import WAIT_S, Commit, Outgoing, Partition, Placed, Received, Refused
from tests.clients.drivers.kafka_python import given

T = TypeVar("T")

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True).start()
    return loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result(WAIT_S)
    except KafkaError as error:
        raise Refused(getattr(error, "errno", -1), error) from error


class AiokafkaProducer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = run(self._start(config))
        self._sent: list[Any] = []

    @staticmethod
    async def _start(config: dict[str, Any]) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**config)
        await producer.start()
        return producer

    def send(self, topic: str, message: Outgoing) -> None:
        sending = self._producer.send(
            topic,
            message.value,
            message.key,
            headers=list(message.headers) or None,
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
        )
        self._sent.append(run(sending))

    def finish(self) -> list[Placed]:
        sent, self._sent = self._sent, []

        async def gather() -> list[Any]:
            return await asyncio.gather(*sent)

        return [Placed(m.partition, m.offset, m.timestamp) for m in run(gather()) if m is not None]

    def close(self) -> None:
        run(self._producer.stop())


class _Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: AiokafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._consumer.revoked += [(p.topic, p.partition) for p in revoked]

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._consumer.assigned += [(p.topic, p.partition) for p in assigned]


class AiokafkaConsumer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._consumer = run(self._start(config))
        self.revoked: list[Partition] = []
        self.assigned: list[Partition] = []

    @staticmethod
    async def _start(config: dict[str, Any]) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**config)
        await consumer.start()
        return consumer

    async def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """aiokafka's plain methods must run on its loop as well."""
        result = getattr(self._consumer, method)(*arguments, **named)
        return await result if asyncio.iscoroutine(result) else result

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        run(self._call("subscribe", topics, pattern=pattern, listener=_Listener(self)))

    def assign(self, *partitions: Partition) -> None:
        run(self._call("assign", [TopicPartition(*p) for p in partitions]))

    def poll(self, timeout_s: float = 0.1) -> list[Received]:
        found = run(self._call("getmany", timeout_ms=int(timeout_s * 1000)))
        return [
            Received(m.topic, m.partition, m.offset, m.key, m.value, tuple(m.headers), m.timestamp)
            for messages in found.values()
            for m in messages
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        run(self._call("seek", TopicPartition(*partition), offset))

    def position(self, partition: Partition) -> int:
        return run(self._call("position", TopicPartition(*partition)))

    def pause(self, *partitions: Partition) -> None:
        run(self._call("pause", *(TopicPartition(*p) for p in partitions)))

    def resume(self, *partitions: Partition) -> None:
        run(self._call("resume", *(TopicPartition(*p) for p in partitions)))

    def offset_at(self, partition: Partition, timestamp_ms: int) -> int | None:
        named = TopicPartition(*partition)
        found = run(self._call("offsets_for_times", {named: timestamp_ms}))[named]
        return None if found is None else found.offset

    def ends(self, partition: Partition) -> tuple[int, int]:
        named = TopicPartition(*partition)
        return run(self._call("beginning_offsets", [named]))[named], run(self._call("end_offsets", [named]))[named]

    def assignment(self) -> set[Partition]:
        return {(p.topic, p.partition) for p in run(self._call("assignment"))}

    def commit(self, offsets: dict[Partition, Commit] | None = None) -> None:
        named = offsets and {TopicPartition(*p): OffsetAndMetadata(c.offset, c.metadata) for p, c in offsets.items()}
        run(self._call("commit", named))

    def committed(self, partition: Partition) -> Commit | None:
        """aiokafka gives no metadata back."""
        found = run(self._call("committed", TopicPartition(*partition)))
        return None if found is None else Commit(found)

    def close(self) -> None:
        run(self._call("stop"))


class Aiokafka:
    name = "aiokafka"
    codecs = ("gzip", "snappy", "lz4", "zstd")
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
    ) -> AiokafkaProducer:
        config = given(
            bootstrap_servers=bootstrap,
            acks=acks,
            compression_type=compression,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            max_request_size=max_bytes,
        )
        return AiokafkaProducer({**config, **more})

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
    ) -> AiokafkaConsumer:
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
        return AiokafkaConsumer({**config, **more})
