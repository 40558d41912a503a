"""Writes of Spark's to topics, as a job asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType

from penstock.pipeline.datasource import PenstockDataSource
from penstock.pipeline.problem import OptionError, PipelineError
from tests.brokers import BrokerProcess
from tests.cli.conftest import run_penstock
from tests.pipeline.conftest import Topics

pytestmark = pytest.mark.timeout(180)

VALUE = StructType([StructField("value", StringType())])


def read(spark: SparkSession, broker: BrokerProcess, topic: str) -> list[str]:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    rows = spark.read.format("penstock").options(**options).load().select(sql.col("value").cast("string")).collect()
    return sorted(row[0] for row in rows)


def produce(broker: BrokerProcess, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def open_transactions(broker: BrokerProcess) -> list[str]:
    listed = run_penstock("txn", "list", "--state", "Ongoing", "--json", "--bootstrap", broker.bootstrap)
    return [each["id"] for each in json.loads(listed.out)]


# ---- told before the job starts


def test_a_column_that_no_task_could_write_is_refused() -> None:
    source = PenstockDataSource({"kafka.bootstrap.servers": "nobody:1", "topic": "t"})
    schema = StructType([*VALUE, StructField("timestamp", TimestampNTZType())])
    with pytest.raises(OptionError, match="'timestamp' is timestamp_ntz, and must be timestamp"):
        source.writer(schema, overwrite=False)


def test_brokers_without_two_phases_are_refused_and_take_rows_at_least_once(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(transaction_two_phase_commit_enable="false")
    assert run_penstock("topic", "create", "t", "--bootstrap", broker.bootstrap).code == 0
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t"}
    for make in (PenstockDataSource(given).writer, PenstockDataSource(given).streamWriter):
        with pytest.raises(PipelineError, match='delivery="at-least-once"'):
            make(VALUE, False)
    PenstockDataSource({**given, "delivery": "at-least-once"}).writer(VALUE, False)


def test_a_topic_that_is_not_there_is_told_by_the_driver_of_a_batch_and_of_a_stream(broker: BrokerProcess) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "nowhere"}
    for make in (PenstockDataSource(given).writer, PenstockDataSource(given).streamWriter):
        with pytest.raises(PipelineError, match="there is no topic 'nowhere' to write to; create it first"):
            make(VALUE, False)


# ---- a batch


def test_a_job_that_fails_holds_nobody_back(spark: SparkSession, broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    good = sql.repeat(sql.lit("x"), 100)
    value = sql.when(sql.col("id") < 20_000, good).otherwise(sql.raise_error(sql.lit("a bad row")))
    rows = spark.range(0, 30_000, 1, 2).select(value.alias("value"))
    with pytest.raises(PySparkException, match="a bad row"):
        write(rows, broker, topic=topic)
    produce(broker, topic, "somebody else's")
    assert read(spark, broker, topic) == ["somebody else's"]
    assert not [each for each in open_transactions(broker) if each.startswith("penstock-sink-")]


def write(rows: DataFrame, broker: BrokerProcess, **options: object) -> None:
    named = {name: str(value) for name, value in options.items()}
    writer = rows.write.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap).options(**named)
    writer.mode("append").save()


# ---- writes of one batch


def divide(spark: SparkSession, broker: BrokerProcess, source: str, folder: Path, **names: str) -> None:
    """A query that writes odd numbers to one topic and even ones to another, in two writes of each batch."""

    def each(batch: DataFrame, number: int) -> None:
        value = sql.col("value").cast("string").cast("int")
        for remainder, (which, topic) in enumerate(names.items()):
            rows = batch.where(value % 2 == remainder).select("value", column(topic))
            write(rows, broker, batchId=number, **({} if which.startswith("nameless") else {"writeId": which}))

    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    query = rows.writeStream.foreachBatch(each).option("checkpointLocation", str(folder)).trigger(availableNow=True)
    assert query.start().awaitTermination(120)


def column(topic: str) -> Column:
    return sql.lit(topic).alias("topic")


def test_two_writes_of_a_batch_have_names_of_their_own_or_are_refused(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, tmp_path: Path
) -> None:
    source, even, odd = (new_topic() for _ in range(3))
    produce(broker, source, *map(str, range(10)))
    with pytest.raises(StreamingQueryException, match="writeId"):
        divide(spark, broker, source, tmp_path / "refused", nameless=even, nameless_too=odd)
    divide(spark, broker, source, tmp_path / "taken", left=even, right=odd)
    assert read(spark, broker, odd) == ["1", "3", "5", "7", "9"]
    assert len(read(spark, broker, even)) == 10, "the first write of the query that was refused is there"
