"""Topics as rows, read by a real Spark from a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics, create_topic

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def read(spark: SparkSession, broker: BrokerProcess) -> Callable[..., DataFrame]:
    def load(topic: str, **options: object) -> DataFrame:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
        return spark.read.format("penstock").options(**{key: str(value) for key, value in given.items()}).load()

    return load


class Stream:
    """A query that keeps its rows in memory, to be started again from its checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._runs = 0

    def run(self, **options: object) -> list[Any]:
        """What is there now, and was not there before."""
        self._runs += 1
        out = self._folder / f"out-{self._runs}"
        query = self.start(out, **options)
        if not query.awaitTermination(120):
            query.stop()
            raise AssertionError("the query does not come to an end")
        if not out.exists():
            return []
        rows = self._spark.read.schema("value STRING, partition INT, offset LONG").json(str(out))
        return sorted((row.partition, row.offset, row.value) for row in rows.collect())

    def start(self, out: Path, **options: object) -> StreamingQuery:
        given = {"kafka.bootstrap.servers": self._bootstrap, **options}
        rows = self._spark.readStream.format("penstock").options(**{key: str(value) for key, value in given.items()})
        return (
            rows.load()
            .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            .writeStream.foreachBatch(lambda batch, _: batch.write.mode("append").json(str(out)))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )


@pytest.fixture
def stream(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Stream:
    return Stream(spark, broker.bootstrap, tmp_path)


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, first: int = 0, **more: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **more})
    for n in range(first, first + count):
        producer.produce(topic, f"{n}", f"key-{n}", partition=n % partitions, timestamp=1_000_000 + 1000 * n)
    assert producer.flush(30) == 0


def test_rows_are_what_was_sent(read: Callable[..., DataFrame], broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    producer.produce(topic, b"\x00\xff", b"k", partition=0, timestamp=1234, headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, None, None, partition=1, timestamp=5678)
    producer.flush(30)
    rows = sorted(read(topic, includeHeaders=True).collect(), key=lambda row: row.partition)
    first, second = rows
    assert (bytes(first.key), bytes(first.value), first.topic, first.offset) == (b"k", b"\x00\xff", topic, 0)
    assert (first.timestamp.timestamp(), first.timestampType) == (1.234, 0)
    assert [(each.key, each.value and bytes(each.value)) for each in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.key, second.value, second.headers, second.partition) == (None, None, None, 1)
    assert read(topic).columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_a_batch_begins_and_ends(read: Callable[..., DataFrame], broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic(2)
    fill(broker.bootstrap, topic, 100, 2)

    def offsets(**options: object) -> list[tuple[int, int]]:
        return sorted((row.partition, row.offset) for row in read(topic, **options).collect())

    whole = [(partition, offset) for partition in (0, 1) for offset in range(50)]
    assert offsets() == whole
    assert offsets(minPartitions=7) == whole
    assert read(topic, minPartitions=7).rdd.getNumPartitions() >= 7
    assert offsets(maxRecordsPerPartition=9) == whole
    starting = json.dumps({topic: {"0": 40, "1": -2}})
    ending = json.dumps({topic: {"0": -1, "1": 3}})
    few = [*((0, offset) for offset in range(40, 50)), (1, 0), (1, 1), (1, 2)]
    assert offsets(startingOffsets=starting, endingOffsets=ending) == few
    late = 1_000_000 + 1000 * 90
    assert offsets(startingTimestamp=late) == [(p, o) for p, o in whole if o >= 45]
    assert offsets(endingTimestamp=late) == [(p, o) for p, o in whole if o < 45]
    by_time = json.dumps({topic: {"0": late, "1": 0}})
    assert offsets(startingOffsetsByTimestamp=by_time) == [(p, o) for p, o in whole if o >= 45 or p]
    assert offsets(startingTimestamp=10**12, startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_session_reads_whether_it_pushes_filters_down_or_not(
    spark: SparkSession, read: Callable[..., DataFrame], broker: BrokerProcess, new_topic: Topics, enabled: str
) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, 10)
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, enabled)
    try:
        rows = read(topic)
        assert rows.where("offset >= 8").count() == 2
        assert rows.count() == 10, "a DataFrame is what it was, whatever it was used for before"
        assert rows.where("offset >= 8").union(rows.where("offset < 3")).count() == 5
        assert rows.where("offset < 4").join(rows.where("offset >= 2"), "offset").count() == 2
    finally:
        spark.conf.set(name, str(before))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kafka.fetch.size": 1}, "no option 'kafka.fetch.size'"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "does not say where"),
        ({"startingTimestamp": 10**13}, "no record of"),
        ({"subscribePattern": "x.*"}, "one of the options"),
        ({"minPartitions": "many"}, "'minPartitions' is 'many'"),
        ({"subscribe": "no-such-topic"}, "there is no such topic"),
        ({"startingOffsets": '{"TOPIC": {"0": 4}}'}, "'startingOffsets' has 4 for rows-.*-0, which ends at 3"),
        ({"endingOffsets": '{"TOPIC": {"0": 4}}'}, "'endingOffsets' has 4 for rows-.*-0, which ends at 3"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker answers .127.0.0.1:1: .*refused"),
        ({"filterPushdown": "true"}, "no option 'filterpushdown': .*push_filters"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(
    read: Callable[..., DataFrame], broker: BrokerProcess, new_topic: Topics, options: dict[str, object], problem: str
) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, 3)
    given = {name: str(value).replace("TOPIC", topic) for name, value in options.items()}
    begun = time.monotonic()
    with pytest.raises(PySparkException, match=problem):
        read(topic, **given).count()
    assert time.monotonic() - begun < 30, "nobody waits for what can't come"


def test_offsets_behind_the_end_are_the_end_where_loss_is_put_up_with(
    read: Callable[..., DataFrame], broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic(2)
    fill(broker.bootstrap, topic, 6, 2)
    starting, ending = json.dumps({topic: {"0": 7, "1": 1}}), json.dumps({topic: {"0": 9, "1": 9}})
    begun = time.monotonic()
    rows = read(topic, startingOffsets=starting, endingOffsets=ending, failOnDataLoss=False)
    assert sorted((row.partition, row.offset) for row in rows.collect()) == [(1, 1), (1, 2)]
    assert time.monotonic() - begun < 60, "nobody waits for what can't come"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingOffsets": "erliest"}, "option 'startingOffsets' is 'erliest'"),
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is not for a stream"),
    ],
)
def test_an_option_that_is_not_for_a_stream_is_named(
    stream: Stream, new_topic: Topics, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem) as refused:
        stream.run(subscribe=new_topic(), **options)
    assert "UnboundLocalError" not in str(refused.value), "Spark's own, where a reader can't be made"


def test_a_stream_goes_on_where_it_was_and_finds_new_partitions(
    stream: Stream, broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic(2)
    fill(broker.bootstrap, topic, 40, 2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 15}
    rows = stream.run(**options)
    assert [(partition, offset) for partition, offset, _ in rows] == [(p, o) for p in (0, 1) for o in range(20)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    fill(broker.bootstrap, topic, 6, 3, first=40)
    assert [value for _, _, value in stream.run(**options)] == ["42", "45", "40", "43", "41", "44"]
    assert stream.run(**options) == []


def test_a_stream_tells_of_records_that_are_gone(stream: Stream, broker: BrokerProcess, new_topic: Topics) -> None:
    from confluent_kafka import TopicPartition

    topic = new_topic()
    fill(broker.bootstrap, topic, 10)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert len(stream.run(**options)) == 10
    fill(broker.bootstrap, topic, 10, first=10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    next(iter(admin.delete_records([TopicPartition(topic, 0, 15)]).values())).result(30)
    with pytest.raises(StreamingQueryException, match=f"{topic}-0 begins at 15, and was to be read from 10"):
        stream.run(**options)
    assert [offset for _, offset, _ in stream.run(**options, failOnDataLoss=False)] == [15, 16, 17, 18, 19]


def test_a_topic_that_was_made_anew_between_two_runs_is_another_one(
    stream: Stream, broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, 5)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert len(stream.run(**options)) == 5
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    time.sleep(0.5)
    create_topic(broker.bootstrap, topic)
    fill(broker.bootstrap, topic, 8, first=100)
    with pytest.raises(StreamingQueryException, match=f"{topic} was deleted and made anew since it was read"):
        stream.run(**options)
    values = [value for _, _, value in stream.run(**options, failOnDataLoss=False)]
    assert values == [str(n) for n in range(100, 108)]
    fill(broker.bootstrap, topic, 1, first=108)
    assert [value for _, _, value in stream.run(**options)] == ["108"]


def test_topics_of_a_pattern_are_found_while_the_query_lives(
    stream: Stream, broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    prefix = unique("pattern")
    create_topic(broker.bootstrap, f"{prefix}-a")
    fill(broker.bootstrap, f"{prefix}-a", 2)
    options = {"subscribePattern": f"{prefix}-.*", "startingOffsets": "earliest"}
    assert len(stream.run(**options)) == 2
    create_topic(broker.bootstrap, f"{prefix}-b")
    fill(broker.bootstrap, f"{prefix}-b", 3, first=10)
    assert [value for _, _, value in stream.run(**options)] == ["10", "11", "12"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([f"{prefix}-a"])[f"{prefix}-a"].result(30)
    time.sleep(0.5)
    with pytest.raises(StreamingQueryException, match=f"{prefix}-a-0 was read up to 2, and does not exist any more"):
        stream.run(**options)


@pytest.fixture(autouse=True)
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Queries that fail on purpose need not fill the log."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")
