"""Filters that make a batch read less, and never too little."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, Not

from penstock.pipeline import pushdown
from penstock.pipeline.options import USED_ONCE, read_options
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.source import BatchReader, NarrowedBatchReader, RangePartition
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics

pytestmark = pytest.mark.timeout(300)

EACH = 50
BEGUN_MS = 1_000_000


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Topics) -> str:
    """Two partitions, a record of each a second, in which record 30 has the time of record 5."""
    name = new_topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(EACH):
        for partition in (0, 1):
            moment_ms = BEGUN_MS + 1000 * (5 if n == 30 else n)
            producer.produce(name, f"{partition}/{n}", partition=partition, timestamp=moment_ms)
    assert producer.flush(30) == 0
    return name


def second(n: int) -> datetime:
    return datetime.fromtimestamp(BEGUN_MS / 1000 + n, UTC)


def planned(bootstrap: str, topic: str, *filters: Filter) -> list[tuple[int, int, int]]:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, USED_ONCE: "true"}
    reader = NarrowedBatchReader(read_options(given, streaming=False))
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark looks at every row again"
    found = [each.wanted for each in reader.partitions() if isinstance(each, RangePartition)]
    return sorted((each.place.partition, each.start, each.stop) for each in found)


def test_filters_become_ranges_of_offsets(broker: BrokerProcess, topic: str) -> None:
    def of(*filters: Filter) -> list[tuple[int, int, int]]:
        return planned(broker.bootstrap, topic, *filters)

    partition, offset, timestamp = ("partition",), ("offset",), ("timestamp",)
    assert of() == [(0, 0, EACH), (1, 0, EACH)]
    assert of(EqualTo(partition, 1)) == [(1, 0, EACH)]
    assert of(In(partition, (0, 7)), GreaterThan(offset, 9), LessThan(offset, 20)) == [(0, 10, 20)]
    assert of(EqualTo(("topic",), "another")) == []
    assert of(GreaterThanOrEqual(offset, EACH)) == []
    assert of(GreaterThanOrEqual(timestamp, second(40))) == [(0, 40, EACH), (1, 40, EACH)]
    assert of(GreaterThanOrEqual(timestamp, second(1000))) == []
    assert of(LessThan(timestamp, second(6))) == [(0, 0, EACH), (1, 0, EACH)], "one that is early may come late"
    assert of(Not(EqualTo(partition, 1)), EqualTo(("value",), b"0/1")) == [(0, 0, EACH), (1, 0, EACH)]


def test_a_source_that_others_use_too_takes_no_filters(broker: BrokerProcess, topic: str) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    assert not read_options(given, streaming=False).used_once
    assert BatchReader.pushFilters is DataSourceReader.pushFilters, "else Spark would read nothing at all"


# ---- with Spark


def load(session: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    return session.read.format("penstock").options(**given).load()


@pytest.fixture
def rows(pushing: SparkSession, broker: BrokerProcess, topic: str) -> DataFrame:
    return load(pushing, broker.bootstrap, topic)


def fetched(ran: DataFrame) -> int:
    """How many records the scans of a query that ran have taken from the broker."""
    plan = ran._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves: Any = plan.collectLeaves()
    return sum(leaves.apply(at).metrics().apply("numOutputRows").value() for at in range(leaves.size()))


Places = list[tuple[int, int]]


def places(ran: DataFrame) -> Places:
    return sorted((row.partition, row.offset) for row in ran.collect())


def test_a_query_fetches_only_what_its_filters_leave(rows: DataFrame) -> None:
    few = rows.where("partition = 1 AND offset >= 10 AND offset < 20 AND value IS NOT NULL")
    assert places(few) == [(1, offset) for offset in range(10, 20)]
    assert fetched(few) == 10
    late = rows.where(rows.timestamp >= second(45))
    assert places(late) == [(partition, offset) for partition in (0, 1) for offset in range(45, EACH)]
    assert fetched(late) == 10
    assert places(rows.where("offset > 1000")) == []


def test_one_use_of_a_dataframe_does_not_narrow_another(rows: DataFrame) -> None:
    everything = [(partition, offset) for partition in (0, 1) for offset in range(EACH)]
    few = rows.where("offset < 3")
    assert places(few) == [(partition, offset) for partition in (0, 1) for offset in range(3)]
    assert places(rows) == everything
    assert places(few.where("partition = 0").union(rows.where("partition = 1 AND offset = 7"))) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 7),
    ]
    assert places(rows.where("offset = 49").union(rows)) == sorted([*everything, (0, 49), (1, 49)])
    other = rows.where("offset < 5").selectExpr("offset + 10 AS offset", "partition")
    assert places(rows.join(other, ["partition", "offset"])) == [(p, o) for p in (0, 1) for o in range(10, 15)]
    assert places(few) == [(partition, offset) for partition in (0, 1) for offset in range(3)]


def test_every_use_of_a_dataframe_sees_the_same_records(rows: DataFrame, broker: BrokerProcess, topic: str) -> None:
    late = rows.where(rows.timestamp >= second(45))
    assert late.count() == 10
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in (0, 1):
        producer.produce(topic, b"more", partition=partition, timestamp=BEGUN_MS + 99_000)
    assert producer.flush(30) == 0
    assert rows.where("offset >= 40").count() == 20
    assert rows.where(rows.timestamp >= second(45)).count() == late.count() == 10
    assert rows.where("partition = 0").union(rows.where("partition = 1")).union(rows).count() == 4 * EACH
    assert load(rows.sparkSession, broker.bootstrap, topic).where("offset >= 40").count() == 22


@pytest.mark.parametrize(
    "unknown",
    [
        "timestamp < timestamp'+12026-01-01'",
        "timestamp > timestamp'-0044-01-01'",
        "timestamp < timestamp_seconds(253402300799) + interval 1 day",
        "timestamp NOT IN (timestamp'2026-05-01', timestamp'+12026-01-01')",
    ],
)
def test_times_that_python_has_not_are_left_to_spark(rows: DataFrame, unknown: str) -> None:
    few = rows.where(f"({unknown}) AND partition = 1")
    assert places(few) == [(1, offset) for offset in range(EACH)]
    assert fetched(few) == EACH, "the filters beside it narrow all the same"


def test_a_scan_that_cannot_be_narrowed_stays_as_it_was(
    pushing: SparkSession, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = pushing.newSession()
    monkeypatch.setattr(pushdown, "USED_ONCE", "#nosuchoption")
    pushdown.install(other)
    few = load(other, broker.bootstrap, topic).where("offset < 3")
    assert len(places(few)) == 6
    assert fetched(few) == 2 * EACH


def test_a_session_that_did_not_ask_reads_everything(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    few = load(spark.newSession(), broker.bootstrap, topic).where("offset < 3")
    assert len(places(few)) == 6
    assert fetched(few) == 2 * EACH


def test_a_spark_whose_inside_is_another_is_told_of(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    other = spark.newSession()
    monkeypatch.setattr(pushdown, "RULE", "penstock.OfAnotherVersion")
    with pytest.raises(PipelineError, match=f"can't be pushed down in Spark {spark.version}"):
        pushdown.install(other)
