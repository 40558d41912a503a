"""Rows to where they go: records of a topic, or a table of Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.pipeline.options import write_options
from penstock.pipeline.problem import OptionError
from penstock.pipeline.sink import COLUMNS, check_columns
from penstock.pipeline.transform.entries import FileError
from penstock.pipeline.transform.model import ONCE, Sink
from penstock.pipeline.transform.saying import in_short

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def statement(spark: SparkSession, sink: Sink) -> DataFrame:
    """What the SQL says, once it is known that Spark can run it as a stream."""
    where = f"[sink.{sink.name}]"
    try:
        found = spark.sql(sink.sql)
    except PySparkException as error:
        raise FileError(f"'sql' in {where}: {in_short(error)}") from None
    if not found.isStreaming:
        raise FileError(f"'sql' in {where} reads none of the sources")
    names = [name.lower() for name in found.columns]
    for name in names:
        if names.count(name) > 1:
            raise FileError(f"'sql' in {where} has two columns named {name!r}; name one otherwise with AS")
    _check_mode(spark, found, sink)
    return found


def _check_mode(spark: SparkSession, found: DataFrame, sink: Sink) -> None:
    """Spark would look only when the query starts, and others would run by then."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[sink.mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(found._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise FileError(f"'mode' in [sink.{sink.name}] is {sink.mode!r}: {in_short(error)}") from None


# ---- topics


def as_records(rows: DataFrame, sink: Sink, client: Mapping[str, str]) -> DataFrame:
    """Rows that have a column `value` are records already; else the value is a JSON object of all columns."""
    where = f"[sink.{sink.name}]"
    names = rows.columns
    if sink.key is not None and sink.key not in names:
        raise FileError(f"'key' in {where} is {sink.key!r}; the statement has {', '.join(names)}")
    if "value" not in names:
        value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), {"ignoreNullFields": "false"})
        records = rows.select(*_key(rows, sink), value.alias("value"))
    else:
        if sink.key not in (None, "key") and "key" in names:
            raise FileError(f"'key' in {where} is {sink.key!r}, and the statement has a column 'key' too")
        others = [F.col(f"`{name}`") for name in names if name not in ("key", sink.key)]
        records = rows.select(*_key(rows, sink), *others)
    for name in records.columns:
        if name not in COLUMNS:  # which the sink would leave alone
            raise FileError(f"'sql' in {where}: column {name!r} is none of {', '.join(COLUMNS)}")
    try:
        check_columns(records.schema, write_options({**client, "topic": sink.topic or ""}))
    except OptionError as error:
        raise FileError(f"'sql' in {where}: {error}") from None
    return records


def _key(rows: DataFrame, sink: Sink) -> list[Any]:
    name = sink.key or ("key" if "value" in rows.columns and "key" in rows.columns else None)
    if name is None:
        return []
    column = F.col(f"`{name}`")
    if not isinstance(rows.schema[name].dataType, StringType | BinaryType):
        column = column.cast("string")
    return [column.alias("key")]


# ---- tables


def check_table(spark: SparkSession, rows: DataFrame, sink: Sink) -> None:
    """A table that is there already must have the same columns."""
    where = f"[sink.{sink.name}]"
    for name in sink.partition_by:
        if name not in rows.columns:
            raise FileError(f"'partition_by' in {where} has {name!r}; the statement has {', '.join(rows.columns)}")
    there = _present(spark, sink)
    if there is None:
        return
    wanted = {each.name: each.dataType for each in rows.schema}
    found = {each.name: each.dataType for each in there}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found or name not in wanted:
            which = "the statement" if name not in wanted else "the table"
            raise FileError(f"{where}: {which} has no column {name!r}, and the other has")
        if wanted[name] != found[name] and name not in sink.partition_by:
            kinds = f"{wanted[name].simpleString()}, and {found[name].simpleString()}"
            raise FileError(f"{where}: column {name!r} is {kinds} in the table")


def _present(spark: SparkSession, sink: Sink) -> StructType | None:
    try:
        if sink.table is not None:
            return spark.table(sink.table).schema if spark.catalog.tableExists(sink.table) else None
        assert sink.path is not None
        if "://" not in sink.path and not Path(sink.path).exists():
            return None
        return spark.read.format(sink.format).load(sink.path).schema
    except PySparkException:
        return None  # nothing is there that could be compared; the query will tell


# ---- queries


def start(
    rows: DataFrame, sink: Sink, *, query: str, checkpoint: str, client: Mapping[str, str], trigger_s: float | None
) -> StreamingQuery:
    writer = rows.writeStream.queryName(query).outputMode(sink.mode).option("checkpointLocation", checkpoint)
    writer = triggered(writer, trigger_s).options(**sink.options)
    if sink.topic is not None:
        return _to_topic(writer, sink, client).start()
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.table is not None:
        return writer.toTable(sink.table, format=sink.format)
    return writer.format(sink.format).start(sink.path)


def _to_topic(writer: DataStreamWriter, sink: Sink, client: Mapping[str, str]) -> DataStreamWriter:
    assert sink.topic is not None
    if sink.mode != "update":
        return writer.format("penstock").options(**client).option("topic", sink.topic)
    options = {**client, **sink.options, "topic": sink.topic}

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.format("penstock").mode("append").options(**options).option("batchId", batch).save()

    # Spark 4.3 has no update mode for sinks in Python: the batch is written as one, under the query's name.
    return writer.foreachBatch(write)


def triggered(writer: DataStreamWriter, trigger_s: float | None) -> DataStreamWriter:
    if trigger_s is None:
        return writer
    if trigger_s == ONCE:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds")
