"""One table over a topic's archive and its log, each record exactly once.

    survey (survey.py)      who has which offsets: the archive's files, and the rest of the log
    archive                 Spark's own Parquet reader over exactly those files
    log                     `penstock_history`: the rest of the offsets, from the log, or from files that came later
    table                   the two, one after the other

The table is what the topic held when it was planned. It stays that while the archive goes on and retention deletes:
no offset is in both parts, because the parts are cut by offsets; and none is in neither, because what the log loses
after the survey is looked for in the archive again (history.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.types import DateType, IntegerType, StructField, StructType

from penstock.pipeline.archive.layout import Archive, ArchivedFile
from penstock.pipeline.archived_rows import ALWAYS, Window
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.history_source import FORMAT, register
from penstock.pipeline.seams import Span
from penstock.pipeline.source import row_schema
from penstock.pipeline.survey import Survey, find_archive, survey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.pipeline.connection import ClientSettings

DAY_US = 86_400_000_000
UTC_ZONES = ("UTC", "Etc/UTC", "Z")
SCHEMA = StructType([*row_schema(headers=True), StructField("day", DateType())])
FILE_SCHEMA = StructType([*SCHEMA, StructField("leaderEpoch", IntegerType())])


@dataclass(frozen=True, slots=True)
class TableOptions:
    topic: str
    client: ClientSettings
    given: Mapping[str, str]  # which made the client, for tasks to make theirs
    archive: str | None = None
    group: str | None = None
    fail_on_data_loss: bool = True
    window: Window = ALWAYS


def table(spark: SparkSession, options: TableOptions) -> DataFrame:
    with Brokers(options.client.hasty()) as brokers:
        location = options.archive or find_archive(brokers, options.topic, options.group)
        archive = Archive(location) if location else None
        found = survey(brokers, options.topic, archive, fail_on_data_loss=options.fail_on_data_loss)
    live = {partition: list(pieces.live) for partition, pieces in found.division.items() if pieces.live}
    parts: list[DataFrame] = []
    if archive is not None and not (is_seen(options.topic) and reads_natively(spark, archive)):
        for partition, pieces in found.division.items():
            if pieces.archived:
                live[partition] = sorted([*pieces.archived, *live.get(partition, [])])
        parts += [_history(spark, options, found, live, from_archive=True)] if live else []
    else:
        parts += _archived(spark, found)
        parts += [_history(spark, options, found, live, from_archive=False)] if live else []
    if not parts:
        return spark.createDataFrame([], SCHEMA)
    return _within(reduce(lambda one, other: one.unionByName(other), parts), options.window)


def _within(rows: DataFrame, window: Window) -> DataFrame:
    if window.first_ms is not None:
        rows = rows.where(sf.col("timestamp") >= sf.timestamp_millis(sf.lit(window.first_ms)))
    if window.stop_ms is not None:
        rows = rows.where(sf.col("timestamp") < sf.timestamp_millis(sf.lit(window.stop_ms)))
    return rows


# ---- the archive


def is_seen(topic: str) -> bool:
    """Whether Spark reads its files: it passes over names that begin like those of hidden files, without a word."""
    return topic[0] not in "._"


def reads_natively(spark: SparkSession, archive: Archive) -> bool:
    """Whether Spark has what it needs to read from there: S3 takes a jar that does not come with it."""
    if archive.location.is_local:
        return True
    java = spark._jvm
    assert java is not None
    path = java.org.apache.hadoop.fs.Path(archive.location.spark_path(archive.location.root))
    try:
        path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    except Exception:  # whatever Java says
        return False
    return True


def _archived(spark: SparkSession, found: Survey) -> list[DataFrame]:
    whole, cut = chosen_files(found)
    parts = [_files(spark, found, whole)] if whole else []
    for span, files in cut:
        rows = _files(spark, found, files)
        parts.append(rows.where((sf.col("offset") >= span.start) & (sf.col("offset") < span.stop)))
    return parts


def chosen_files(found: Survey) -> tuple[list[ArchivedFile], list[tuple[Span, list[ArchivedFile]]]]:
    """The files to read whole, and those of which another one has the beginning already."""
    whole: list[ArchivedFile] = []
    cut: list[tuple[Span, list[ArchivedFile]]] = []
    for pieces in found.archived.values():
        reached = 0
        for piece in pieces:
            if piece.start >= reached:
                whole += piece.files
            elif piece.stop > reached:
                cut.append((Span(reached, piece.stop), list(piece.files)))
            reached = max(reached, piece.stop)
    return whole, cut


def _files(spark: SparkSession, found: Survey, files: list[ArchivedFile]) -> DataFrame:
    """The folders tell topic and day, so that a filter on the day does not even open a file."""
    archive = found.archive
    assert archive is not None
    parts = []
    for is_ours in (False, True):
        paths = [archive.spark_path(each) for each in files if each.is_ours is is_ours]
        if paths:
            reader = spark.read.schema(FILE_SCHEMA)
            reader = reader.option("basePath", archive.location.spark_path(archive.base(is_ours=is_ours)))
            parts.append(reader.parquet(*paths).select(*SCHEMA.names))
    return reduce(lambda one, other: one.unionByName(other), parts)


# ---- the log


def _history(
    spark: SparkSession,
    options: TableOptions,
    found: Survey,
    ranges: dict[int, list[Span]],
    *,
    from_archive: bool,
) -> DataFrame:
    register(spark)
    reader = spark.read.format(FORMAT).options(**options.given)
    reader = reader.option("topic", options.topic).option("ranges", json.dumps(ranges))
    reader = reader.option("failOnDataLoss", str(options.fail_on_data_loss).lower())
    reader = reader.option("fromArchive", str(from_archive).lower())
    window = options.window
    for name, moment_ms in (("startingTimestamp", window.first_ms), ("endingTimestamp", window.stop_ms)):
        if moment_ms is not None and moment_ms >= 0:
            reader = reader.option(name, str(moment_ms))
    if found.archive is not None:
        reader = reader.option("archive", found.archive.location.name)
    if found.topic_id is not None:
        reader = reader.option("topicId", found.topic_id.hex())
    return reader.load().withColumn("day", _day(spark, sf.col("timestamp")))


def _day(spark: SparkSession, timestamp: Column) -> Column:
    """In UTC, whatever zone the session is in, or will be.

    Of a cast to a day Spark makes times, which then spare the log what is too early. A cast keeps the zone that the
    session had when it was made, so that it will do where that is UTC.
    """
    if spark.conf.get("spark.sql.session.timeZone") in UTC_ZONES:
        return timestamp.cast("date")
    micros = sf.unix_micros(timestamp)
    return sf.date_from_unix_date(((micros - sf.pmod(micros, sf.lit(DAY_US))) / DAY_US).cast("int"))
