"""Rows as topics, written by a real Spark to a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics

pytestmark = pytest.mark.timeout(300)

Write = Callable[..., None]


@pytest.fixture
def write(broker: BrokerProcess) -> Write:
    def save(rows: DataFrame, topic: str, **options: object) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **options}
        rows.write.format("penstock").options(**{k: str(v) for k, v in given.items()}).mode("append").save()

    return save


def committed(bootstrap: str, topic: str, count: int) -> list[Message]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 1)
    consumer.close()
    return found


def test_headers_are_taken_as_people_build_them_and_other_columns_are_left_alone(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, write: Write
) -> None:
    topic = new_topic()
    for headers in (
        "array(struct('a' AS key, CAST('b' AS BINARY) AS value))",
        "transform(array('a'), n -> struct(n AS key, CAST('b' AS BINARY) AS value))",
        "array(named_struct('key', 'a', 'value', CAST(if(id > 1, null, 'b') AS BINARY)))",
    ):
        write(spark.range(1).selectExpr("'v' AS value", f"{headers} AS headers", "7 AS more"), topic)
    assert [each.headers() for each in committed(broker.bootstrap, topic, 3)] == [[("a", b"b")]] * 3


def test_batches_are_as_small_as_the_topic_wants_them(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, write: Write
) -> None:
    topic = new_topic(max_message_bytes=20_000)
    rows = spark.range(3000, numPartitions=1).selectExpr("concat(id, repeat('x', 100)) AS value")
    write(rows, topic)
    write(rows, topic, **{"kafka.compression.type": "lz4"})
    found = [each.value() for each in committed(broker.bootstrap, topic, 6000)]
    assert found == [f"{n}{'x' * 100}".encode() for n in range(3000)] * 2
    large = spark.range(1).selectExpr("repeat('x', 30000) AS value")
    write(large, topic, **{"kafka.compression.type": "lz4"})
    with pytest.raises(PySparkException, match=rf"a row for {topic}-0 takes 30\d\d\d bytes, and the topic takes 20000"):
        write(large, topic)


def test_a_topic_that_is_not_there_is_told_before_the_job_starts(spark: SparkSession, write: Write) -> None:
    begun = spark.sparkContext.statusTracker().getJobIdsForGroup()
    with pytest.raises(PySparkException, match="there is no topic 'nowhere' to write to"):
        write(spark.range(1).selectExpr("'v' AS value"), "nowhere")
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == begun


@pytest.fixture(autouse=True)
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Writes that fail on purpose need not fill the log."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")
