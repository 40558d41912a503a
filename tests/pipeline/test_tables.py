"""One table over archive and log, with Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import tables
from penstock.pipeline.archive import compaction
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.group_offsets import commit
from penstock.pipeline.problem import DataLost, OptionError
from penstock.spark import table
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import create_topic
from tests.pipeline.histories import DAY_MS, NOON_MS, TopicHistory, make, of_rows, settings_of

pytestmark = pytest.mark.timeout(600)

COUNT = 480
PARTITIONS = 2
EACH = COUNT // PARTITIONS


@pytest.fixture
def orders(broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path) -> TopicHistory:
    """Half a month of records in two partitions, an archive of 60 offsets a file."""
    found = make(broker.bootstrap, new_topic(PARTITIONS, "orders"), tmp_path)
    found.produce(COUNT, PARTITIONS, step_ms=DAY_MS // 32)
    return found


def scanned(rows: DataFrame) -> dict[str, int]:
    """Rows and files that the scans of a query that ran have read."""
    plan = rows._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves: Any = plan.collectLeaves()
    found = {"rows": 0, "files": 0, "log": 0}
    for at in range(leaves.size()):
        metrics = leaves.apply(at).metrics()
        is_log = "BatchScan" in leaves.apply(at).nodeName()
        found["log" if is_log else "rows"] += metrics.apply("numOutputRows").value()
        found["files"] += 0 if is_log else metrics.apply("numFiles").value()
    return found


def test_a_table_has_each_record_once_while_the_archive_advances_and_retention_deletes(
    spark: SparkSession, orders: TopicHistory
) -> None:
    everything = orders.records(PARTITIONS)
    for start in range(0, 180, 60):
        orders.archive_range(start, start + 60, 0)
    orders.archive_range(0, 60, 1)
    orders.delete_before(100, 0)
    with Brokers(settings_of(orders.bootstrap)) as brokers:
        places = {TopicPartition(orders.topic, 0): 180, TopicPartition(orders.topic, 1): 60}
        metadata = f'{{"archive": "{orders.archive.location.given}"}}'
        commit(brokers, f"penstock-archive-{orders.topic}", places, metadata)

    planned = table(spark, orders.topic, bootstrap=orders.bootstrap)
    assert of_rows(planned.collect()) == everything

    orders.archive_range(180, EACH, 0)
    orders.archive_range(60, 200, 1)
    orders.delete_before(EACH, 0)
    orders.delete_before(150, 1)
    orders.produce(10, PARTITIONS, first=COUNT)
    assert of_rows(planned.collect()) == everything, "the plan is from before"
    days = {each.day for each in planned.select("day").distinct().collect()}
    assert len(days) == COUNT // 32 + 1

    spark.conf.set("spark.penstock.bootstrap.servers", orders.bootstrap)
    try:
        now = table(spark, orders.topic)
        assert now.count() == COUNT + 10
    finally:
        spark.conf.unset("spark.penstock.bootstrap.servers")


def test_filters_leave_files_and_ranges_unread(
    spark: SparkSession, pushing: SparkSession, orders: TopicHistory
) -> None:
    everything = orders.records(PARTITIONS)
    for start in range(0, 180, 60):
        orders.archive_range(start, start + 60, 0)
        orders.archive_range(start, start + 60, 1)
    location = orders.archive.location.given
    whole = table(spark, orders.topic, bootstrap=orders.bootstrap, archive=location)
    assert whole.where("offset between 70 and 75").count() == 12
    assert whole.count() == len(everything), "a table is what it was, whatever it was used for before"
    rows = table(pushing, orders.topic, bootstrap=orders.bootstrap, archive=location)

    some = rows.where("offset between 70 and 75 and partition = 1")
    assert of_rows(some.collect()) == [each for each in everything if each[0] == 1 and 70 <= each[1] <= 75]
    assert scanned(some)["rows"] <= 60
    assert scanned(some)["log"] == 0

    late = NOON_MS + DAY_MS // 32 * (COUNT - 8)
    some = rows.where(f"timestamp >= timestamp_millis({late})")
    assert of_rows(some.collect()) == [each for each in everything if each[2] >= late]
    assert scanned(some)["rows"] == 0
    assert scanned(some)["log"] == 8
    assert rows.count() == len(everything), "one use of a table does not narrow another"

    some = rows.where("day = date'2024-10-06' and offset < 180")
    expected = [each for each in everything if (each[2] - 20_002 * DAY_MS) // DAY_MS == 0]
    assert of_rows(some.collect()) == expected
    assert scanned(some)["files"] == 2, "only the folder of that day, with a file for each partition"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_filter_on_the_day_spares_the_log_what_is_too_early(
    pushing: SparkSession, orders: TopicHistory, zone: str
) -> None:
    everything = orders.records(PARTITIONS)
    first = 20_000 + COUNT // 32
    before = str(pushing.conf.get("spark.sql.session.timeZone"))
    try:
        pushing.conf.set("spark.sql.session.timeZone", zone)
        rows = table(pushing, orders.topic, bootstrap=orders.bootstrap)
        pushing.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # which the days do not go by
        for wanted in (f"day = date_from_unix_date({first})", f"day >= date_from_unix_date({first})"):
            some = rows.where(wanted)
            expected = [each for each in everything if each[2] // DAY_MS == first]
            assert expected
            assert of_rows(some.collect()) == expected
            assert scanned(some)["log"] == (len(expected) if zone == "UTC" else len(everything))
    finally:
        pushing.conf.set("spark.sql.session.timeZone", before)


def test_a_table_outlives_a_compaction_and_the_clearing_an_hour_later(
    spark: SparkSession, orders: TopicHistory, tmp_path: Path
) -> None:
    everything = orders.records(PARTITIONS)
    for start in range(0, 180, 20):
        orders.archive_range(start, start + 20, 0)
    orders.archive_range(0, EACH, 1)
    orders.delete_before(180, 0)

    def planned() -> DataFrame:
        return table(spark, orders.topic, bootstrap=orders.bootstrap, archive=orders.archive.location.given)

    before = planned()
    for merge in compaction.plan(orders.topic, orders.archive.pieces(orders.topic)):
        compaction.execute(orders.archive, merge, "zstd")
    assert of_rows(before.collect()) == everything
    meanwhile = planned()
    assert meanwhile.where("day = date'2024-10-06' and partition = 0").count() == 16
    for each in tmp_path.rglob("*"):
        os.utime(each, (0, 0))  # an hour later
    assert compaction.clear(orders.archive, orders.topic) > 0
    for each in (meanwhile, planned()):
        assert of_rows(each.collect()) == everything


def test_a_topic_whose_files_spark_would_pass_over_is_read_by_us(
    spark: SparkSession, broker: BrokerProcess, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("_hidden")
    create_topic(broker.bootstrap, name)
    hidden = make(broker.bootstrap, name, tmp_path)
    hidden.produce(50)
    everything = hidden.records()
    hidden.archive_range(0, 40)
    rows = table(spark, name, bootstrap=broker.bootstrap, archive=hidden.archive.location.given)
    assert of_rows(rows.collect()) == everything


def test_a_table_of_a_time_reads_no_more_of_the_log_and_is_the_same_for_everyone(
    spark: SparkSession, orders: TopicHistory
) -> None:
    everything = orders.records(PARTITIONS)
    orders.archive_range(0, 60, 0)
    first, stop = NOON_MS + DAY_MS // 32 * 100, NOON_MS + DAY_MS // 32 * 440
    since, until = (datetime.fromtimestamp(each / 1000, UTC) for each in (first, stop))
    expected = [each for each in everything if first <= each[2] < stop]
    location = orders.archive.location.given
    rows = table(
        spark, orders.topic, bootstrap=orders.bootstrap, archive=location, since=since, until=until.replace(tzinfo=None)
    )
    whole = rows.select("*")
    assert of_rows(whole.collect()) == expected
    assert scanned(whole)["log"] == 330, "from the first record that is late enough, up to the first that is not"
    few = [each for each in expected if each[1] < 70 or each[1] >= 200]
    assert of_rows(rows.where("offset < 70").union(rows.where("offset >= 200")).collect()) == few
    assert rows.count() == len(expected)


def test_an_archive_that_spark_has_no_jar_for_is_read_by_us(
    spark: SparkSession, orders: TopicHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = orders.records(PARTITIONS)
    orders.archive_range(0, 100, 0)
    orders.archive_range(0, EACH, 1)
    orders.delete_before(100, 0)
    monkeypatch.setattr(tables, "reads_natively", lambda spark, archive: False)
    rows = table(spark, orders.topic, bootstrap=orders.bootstrap, archive=orders.archive.location.given)
    assert of_rows(rows.collect()) == everything
    some = rows.where("offset >= 90 and offset < 110")
    assert of_rows(some.collect()) == [each for each in everything if 90 <= each[1] < 110]


def test_what_is_lost_or_was_never_there_is_said_before_anything_runs(
    spark: SparkSession, orders: TopicHistory
) -> None:
    orders.delete_before(30, 1)
    assert table(spark, orders.topic, bootstrap=orders.bootstrap).columns[-2:] == ["headers", "day"]
    orders.archive_range(60, 120, 1)
    orders.delete_before(150, 1)
    with pytest.raises(DataLost, match=f"{orders.topic}-1: offsets 120 to 149 are neither in the log nor in"):
        table(spark, orders.topic, bootstrap=orders.bootstrap, archive=orders.archive.location.given)
    with pytest.raises(OptionError, match="no topic 'nowhere'"):
        table(spark, "nowhere", bootstrap=orders.bootstrap)


def test_rows_of_a_topic_that_was_made_anew_are_not_taken_for_those_that_were_planned(
    spark: SparkSession, orders: TopicHistory
) -> None:
    """Its offsets are the same again; Spark's options carry to the tasks which topic it was."""
    rows = table(spark, orders.topic, bootstrap=orders.bootstrap)
    assert rows.count() == COUNT
    admin = AdminClient({"bootstrap.servers": orders.bootstrap, "log_level": 0})
    admin.delete_topics([orders.topic])[orders.topic].result(30)
    create_topic(orders.bootstrap, orders.topic, PARTITIONS, retention_ms=-1)
    orders.produce(COUNT, PARTITIONS, step_ms=DAY_MS // 32)
    with pytest.raises(PySparkException, match=f"topic '{orders.topic}' was deleted and made anew after this"):
        rows.count()
    assert table(spark, orders.topic, bootstrap=orders.bootstrap).count() == COUNT
