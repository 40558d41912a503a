"""What a Spark program calls, beside `format("penstock")`.

from penstock.spark import push_filters, report_progress, table

push_filters(spark)
table(spark, "orders").where("timestamp >= '2026-05-01'").groupBy("key").count()
report_progress(spark, group="orders-to-warehouse")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.pipeline.options import OF_CLIENTS, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.archived_rows import Window
    from penstock.pipeline.progress import ProgressReporter

__all__ = ["push_filters", "report_progress", "table"]

SETTING = "spark.penstock.bootstrap.servers"
VARIABLE = "PENSTOCK_BOOTSTRAP"
DEFAULT = "127.0.0.1:9092"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table(
    spark: SparkSession,
    topic: str,
    *,
    archive: str | None = None,
    bootstrap: str | None = None,
    group: str | None = None,
    options: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """A topic as one table, over its archive and its log: every record that it holds now, exactly once.

    The columns are those of `format("penstock")` with headers, and `day`, the day of the timestamp in UTC, by which the
    archive's folders are named. The archive is found by what its group has committed, unless it is named here. Filters
    on partition, offset, timestamp and day leave files of the archive unread. The log is read whole, unless
    `push_filters` was called, or the table itself is of the records `since` a time, and before another (`until`;
    without a zone they are UTC). `options` are more of `format("penstock")` that clients need, such as
    kafka.security.protocol.

    Raises DataLost where records are neither in the archive nor in the log any more, unless `fail_on_data_loss` is off.
    """
    from penstock.pipeline.tables import TableOptions
    from penstock.pipeline.tables import table as make

    given = {**(options or {}), "kafka.bootstrap.servers": bootstrap_of(spark, bootstrap)}
    client = Options(given, OF_CLIENTS, "table").client()
    return make(spark, TableOptions(topic, client, given, archive, group, fail_on_data_loss, _window(since, until)))


def push_filters(spark: SparkSession) -> None:
    """From now on filters on topic, partition, offset and timestamp make batches of this session read less.

    Of `format("penstock")`, and of the log in `table`. However a DataFrame is used, and however often, its rows are the
    same as without this: those that its topics held when it was first planned. Where a filter can't be used, everything
    is read. `spark.sql.python.filterPushdown.enabled` is neither needed nor changed. Sessions of Spark Connect have no
    part in it, because it adds a rule to the optimizer of this process.
    """
    from penstock.pipeline.pushdown import install

    install(spark)


def _window(since: datetime | None, until: datetime | None) -> Window:
    from penstock.pipeline.archived_rows import Window

    return Window(_milliseconds(since), _milliseconds(until))


def _milliseconds(moment: datetime | None) -> int | None:
    """Of the first record that is not before it: records have no finer times."""
    if moment is None:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return -(-(aware - EPOCH) // timedelta(milliseconds=1))


def report_progress(
    spark: SparkSession,
    group: str,
    *,
    query: str | None = None,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
) -> ProgressReporter:
    """Commits to a group where streaming queries stand, after each batch: `penstock group describe` shows their lag.

    For every query of the session that reads topics, or for the one of this name. Queries that read the same topics
    need groups of their own. Nobody reads the commits back: a query begins where its checkpoint says. A commit that
    fails is logged. `spark.streams.removeListener` takes what this returns, and ends it.
    """
    from penstock.pipeline.progress import attach

    given = {**(options or {}), "kafka.bootstrap.servers": bootstrap_of(spark, bootstrap)}
    return attach(spark, Options(given, OF_CLIENTS, "progress").client(), group, query)


def bootstrap_of(spark: SparkSession, given: str | None) -> str:
    """What was said here, then what the session's settings say, then the environment."""
    return given or spark.conf.get(SETTING, None) or os.environ.get(VARIABLE) or DEFAULT
