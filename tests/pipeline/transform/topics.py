"""What tests of pipelines put into topics, and what they find there."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from penstock.pipeline.transform.checking import check
from penstock.pipeline.transform.reading import read_pipeline
from penstock.pipeline.transform.running import Batch, Run

PATIENCE_S = 200.0

Value = str | bytes | dict[str, Any] | None


class Found(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def document(self) -> dict[str, Any]:
        assert self.value is not None
        return dict(json.loads(self.value))


def produce(bootstrap: str, topic: str, values: Iterable[Value], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, json.dumps(value) if isinstance(value, dict) else value, **more)
    assert producer.flush(30) == 0


def consume(bootstrap: str, topic: str) -> list[Found]:
    """Everything that is committed, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    found: list[Found] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 30
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{topic} does not come to an end"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append(Found(message.key(), message.value(), dict(message.headers() or [])))
    consumer.close()
    return found


def documents(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [each.document for each in consume(bootstrap, topic)]


def run_once(spark: SparkSession, file: Path, bootstrap: str) -> list[Batch]:
    """What `penstock pipeline run --once` does, in the session of the tests."""
    batches: list[Batch] = []
    run = Run(check(spark, read_pipeline(file), bootstrap), once=True)
    run.start()
    watchdog = threading.Event()
    timer = threading.Timer(PATIENCE_S, watchdog.set)
    timer.start()
    try:
        run.watch(batches.append, watchdog)
    finally:
        timer.cancel()
    assert not watchdog.is_set(), "the pipeline does not come to an end"
    return batches
