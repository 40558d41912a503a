"""Where queries stand, as commits of a group."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.pipeline.brokers import TopicPartition
from penstock.pipeline.progress import offsets_of
from penstock.spark import report_progress
from tests.brokers import BrokerProcess, free_port

pytestmark = pytest.mark.timeout(600)

OURS = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@1"


def test_offsets_are_known_by_their_shape() -> None:
    assert offsets_of(OURS, '{"orders": {"0": 7, "12": 0}}') == {
        TopicPartition("orders", 0): 7,
        TopicPartition("orders", 12): 0,
    }
    assert offsets_of(OURS, '{"orders": {"0": 7}, "#ids": {"orders": "ab"}}') == {TopicPartition("orders", 0): 7}
    assert offsets_of("KafkaV2[Subscribe[orders]]", '{"orders": {"0": 7}}') == {TopicPartition("orders", 0): 7}
    for end in (None, "", "7", "[1]", '{"n": 1}', '{"a": {"b": 1}}', '{"a": {"0": "x"}}', '{"a": {"0": -1}}', "{"):
        assert offsets_of(OURS, end) == {}, end
    assert offsets_of("RateStreamV2[rowsPerSecond=1]", '{"orders": {"0": 7}}') == {}


def describe(bootstrap: str, group: str) -> dict[str, object]:
    command = [sys.executable, "-m", "penstock", "group", "describe", group, "--json", "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def test_a_group_shows_how_far_a_query_has_come_and_no_failure_of_it_stops_the_query(
    spark: SparkSession, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(50):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    rows = spark.readStream.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()

    listeners = [
        report_progress(spark, f"nobody-{topic}", bootstrap=f"127.0.0.1:{free_port()}"),
        report_progress(spark, f"other-{topic}", query="another", bootstrap=broker.bootstrap),
        report_progress(spark, f"of-{topic}", query=f"q{topic}", bootstrap=broker.bootstrap),
    ]
    try:
        query = rows.writeStream.format("noop").queryName(f"q{topic}").trigger(availableNow=True)
        assert query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(300)
        deadline = time.monotonic() + 60
        while not (found := describe(broker.bootstrap, f"of-{topic}")) and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    committed = {each["partition"]: (each["committed"], each["lag"]) for each in found["partitions"]}  # type: ignore[attr-defined]
    assert committed == {0: (25, 0), 1: (25, 0)}
    assert describe(broker.bootstrap, f"other-{topic}") == {}
