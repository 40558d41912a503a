from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.brokers import BrokerProcess
from tests.docs.test_documents import ADDRESS, README, blocks
from tests.pipeline.conftest import create_topic

pytestmark = pytest.mark.timeout(300)


def test_what_the_readme_shows_of_spark_does_what_it_says(
    spark: SparkSession, new_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = new_broker()
    for name in ("orders", "shouted"):
        create_topic(broker.bootstrap, name)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", "three apples", "k")
    assert producer.flush(30) == 0
    (block,) = (each for each in blocks(README) if each.language == "python" and each.heading == "Spark")
    exec(block.text.replace(ADDRESS, broker.bootstrap).replace('"./shouted', f'"{tmp_path}/shouted'), {})
    rows = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    (row,) = rows.option("subscribe", "shouted").load().collect()
    assert (bytes(row.key), bytes(row.value)) == (b"k", b"THREE APPLES")
