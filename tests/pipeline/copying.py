"""A query that copies topic "in" to "out", through a sink that may die, and what must be there afterwards."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.pipeline.conftest import create_topic

PARTITIONS = 3
ROWS = 210


def prepare(bootstrap: str) -> None:
    for name in ("in", "out"):
        create_topic(bootstrap, name, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(ROWS):
        producer.produce("in", f"{n}", partition=n % PARTITIONS)
    assert producer.flush(30) == 0


def plan(folder: Path, steps: Mapping[int, str], batches: int = 3, **more: object) -> None:
    """At which step of which batch to die, or to wait."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps({"steps": steps, "batches": batches, **more}))


def start(spark: SparkSession, bootstrap: str, folder: Path) -> StreamingQuery:
    batches = json.loads((folder / "plan.json").read_text())["batches"]
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS // batches)
        .load()
        .select("value", "partition")
    )
    return (
        rows.writeStream.format("faulty")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "out")
        .option("plan", str(folder))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def run_until_done(spark: SparkSession, bootstrap: str, folder: Path) -> int:
    """Starts the query again whenever it dies; how often it did."""
    for deaths in range(10):
        query = start(spark, bootstrap, folder)
        try:
            if query.awaitTermination(90):
                return deaths
        except StreamingQueryException:
            continue
        query.stop()
        raise AssertionError("the query does not come to an end")
    raise AssertionError("the query dies each time")


def read_all(bootstrap: str, topic: str = "out") -> dict[int, list[int]]:
    """By partition, as a reader sees it that takes only what is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # or the end of each partition is half a second away
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
    ended, deadline = set(), time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"not every partition is read to its end: {found}"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found[message.partition()].append(int(message.value() or b""))
    consumer.close()
    return found


def expect_each_once(bootstrap: str) -> None:
    found = read_all(bootstrap)
    assert Counter(each for values in found.values() for each in values) == Counter(range(ROWS))
    for partition, values in found.items():
        assert values == sorted(values), f"partition {partition} is out of order"
