"""Topics whose records are partly archived and partly deleted, and what must be found of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.pipeline import brokers as pipeline
from penstock.pipeline.archive.copying import copy_range
from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.fetching import OffsetRange

DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2  # 2024-10-04; retention must be off
Record = tuple[int, int, int, bytes | None, bytes | None, Any]  # partition, offset, time, key, value, headers


def settings_of(bootstrap: str) -> ClientSettings:
    host, _, port = bootstrap.rpartition(":")
    return ClientSettings(((host, int(port)),), patience_s=20.0)


@dataclass
class TopicHistory:
    """A topic without retention: what is deleted, a test deletes."""

    bootstrap: str
    topic: str
    archive: Archive

    def produce(self, count: int, partitions: int = 1, *, first: int = 0, step_ms: int = 1000) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        for number in range(first, first + count):
            producer.produce(
                self.topic,
                partition=number % partitions,
                key=None if number % 5 == 0 else f"k{number % 7}".encode(),
                value=None if number % 11 == 0 else f"v{number}".encode(),
                headers=[("n", str(number).encode()), ("n", None)] if number % 3 == 0 else None,
                timestamp=NOON_MS + number * step_ms,
            )
            if number % 50 == 0:
                producer.flush(30)  # several batches, so that not every range begins with one
        assert producer.flush(30) == 0

    def archive_range(self, start: int, stop: int, partition: int = 0) -> None:
        place = pipeline.TopicPartition(self.topic, partition)
        with pipeline.Brokers(settings_of(self.bootstrap)) as brokers:
            copy_range(brokers, self.archive, OffsetRange(place, start, stop))

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """As retention does, at once."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.delete_records([TopicPartition(self.topic, partition, offset)]).values():
            future.result(30)

    def records(self, partitions: int = 1) -> list[Record]:
        return consumed(self.bootstrap, self.topic, partitions)


def make(bootstrap: str, topic: str, folder: Path) -> TopicHistory:
    return TopicHistory(bootstrap, topic, Archive(str(folder / "archive")))


def consumed(bootstrap: str, topic: str, partitions: int = 1) -> list[Record]:
    """In the order in which they stand, partition by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False, "log_level": 0}
    ending = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "isolation.level": "read_committed", **ending})
    found: list[Record] = []
    for partition in range(partitions):
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} is not read to its end"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                break
            where = partition, message.offset(), message.timestamp()[1]
            found.append((*where, message.key(), message.value(), message.headers()))
    consumer.close()
    return found


def of_batches(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    """In the order in which they came."""
    found: list[Record] = []
    for batch in batches:
        for row in batch.to_pylist():
            headers = [(each["key"], each["value"]) for each in row["headers"]] if row["headers"] else None
            timestamp_ms = round(row["timestamp"].timestamp() * 1000)
            where = row["partition"], row["offset"], timestamp_ms
            found.append((*where, row["key"], row["value"], headers))
    return found


def of_rows(rows: Iterable[Any]) -> list[Record]:
    """Those that Spark collected, in the order of offsets."""
    found: list[Record] = []
    for row in rows:
        headers = [(each.key, _bytes(each.value)) for each in row.headers] if row.headers else None
        where = row.partition, row.offset, round(row.timestamp.timestamp() * 1000)
        found.append((*where, _bytes(row.key), _bytes(row.value), headers))
    return sorted(found, key=lambda each: each[:2])


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
