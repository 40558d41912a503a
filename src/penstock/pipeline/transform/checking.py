"""Everything that can be known before a pipeline runs, and the rows it would write."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.pipeline import planning
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.options import OF_CLIENTS, Edge, Options, read_options
from penstock.pipeline.source import to_json
from penstock.pipeline.transform import decoding, judging, writing
from penstock.pipeline.transform.entries import FileError
from penstock.pipeline.transform.model import Pipeline, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.connection import ClientSettings

# A value that an expression can't be computed for is NULL: in Spark's ANSI mode one record would stop the query.
SETTINGS = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}
LOCAL_SHUFFLE_PARTITIONS = "4"  # Spark's own are 200, each with a state on disk


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline that was found to be sound, and its rows."""

    pipeline: Pipeline
    client: Mapping[str, str]  # options of format("penstock")
    settings: ClientSettings
    spark: SparkSession
    rows: tuple[tuple[Sink, DataFrame], ...]
    dead_letters: tuple[tuple[Source, DataFrame], ...]
    missing: tuple[str, ...]  # topics of dead letters that are to be created
    readers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # options of sources, by name


def client_options(pipeline: Pipeline, bootstrap: str) -> dict[str, str]:
    return {**pipeline.client, "kafka.bootstrap.servers": bootstrap}


def check(session: SparkSession, pipeline: Pipeline, bootstrap: str) -> Plan:
    """Raises PipelineError, which names what is wrong. Topics come first: that takes no time."""
    client = client_options(pipeline, bootstrap)
    settings = Options(client, OF_CLIENTS, "pipeline").client()
    readers = {source.name: decoding.reader_options(source, client) for source in pipeline.sources}
    with Brokers(settings) as brokers:
        missing = check_topics(pipeline, set(brokers.topics()))
        common_ends(brokers, readers.values())
    spark = _own_session(session, pipeline)
    bad, found = [], []
    for source in pipeline.sources:
        records = decoding.records(spark, source, readers[source.name])
        decoding.rows(records, source).createOrReplaceTempView(source.name)
        if source.may_be_bad:
            bad.append((source, decoding.dead_letters(records, source)))
    for sink in pipeline.sinks:
        rows = writing.statement(spark, sink)
        if sink.topic is not None:
            rows = writing.as_records(rows, sink, client)
        else:
            writing.check_table(spark, rows, sink)
        found.append((sink, rows))
    return Plan(pipeline, client, settings, spark, tuple(found), tuple(bad), missing, readers)


def common_ends(brokers: Brokers, readers: Iterable[dict[str, str]]) -> None:
    """Tells the readers of every query where to end if they take what is there: one would see more than another."""
    asked: planning.Offsets = {}
    for each in readers:
        options = read_options(each, streaming=True)
        places = planning.partitions_of(brokers, options)
        new = [place for place in places if place not in asked]
        asked |= planning.edges(brokers, new, Edge.LATEST, options.committed)
        ends = {place: asked[place] for place in places if place in asked}
        each["availableNowOffsets"] = json.dumps(to_json(ends))


def starting_at(brokers: Brokers, reader: Mapping[str, str], position: judging.Position) -> dict[str, str]:
    """Options of a reader that begins there. Partitions that have come since are read from their beginning."""
    places = planning.partitions_of(brokers, read_options(reader, streaming=True))
    begin = {place: position.get(place.topic, {}).get(str(place.partition), Edge.EARLIEST.value) for place in places}
    timeless = {name: value for name, value in reader.items() if name not in decoding.OF_TIMES}
    return {**timeless, "startingOffsets": json.dumps(to_json(begin))}


def dead_letters_from(brokers: Brokers, plan: Plan, source: Source, position: judging.Position) -> DataFrame:
    reader = starting_at(brokers, plan.readers[source.name], position)
    return decoding.dead_letters(decoding.records(plan.spark, source, reader), source)


def _own_session(session: SparkSession, pipeline: Pipeline) -> SparkSession:
    """Its own views and settings."""
    spark = session.newSession()
    if (session.sparkContext.master or "").startswith("local"):
        spark.conf.set("spark.sql.shuffle.partitions", LOCAL_SHUFFLE_PARTITIONS)
    for name, value in {**SETTINGS, **pipeline.spark}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def check_topics(pipeline: Pipeline, known: Collection[str]) -> tuple[str, ...]:
    """The topics of dead letters that are not there yet."""
    dead = {each.dead_letters for each in pipeline.sources if each.may_be_bad}
    written = {each.topic for each in pipeline.sinks if each.topic is not None} | dead
    for source in pipeline.sources:
        where = f"[source.{source.name}]"
        for name in source.topics:
            if name not in known:
                raise FileError(f"there is no topic {name!r} for {where} to read{_near(name, known)}")
        for name in sorted(written):
            if name in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, name)):
                raise FileError(f"{where} reads topic {name!r}, which the pipeline writes: it would never end")
    for sink in pipeline.sinks:
        if sink.topic is not None and sink.topic not in known:
            near = _near(sink.topic, known) or f"; create it with 'penstock topic create {sink.topic}'"
            raise FileError(f"there is no topic {sink.topic!r} for [sink.{sink.name}] to write{near}")
    return tuple(sorted(dead - set(known)))


def _near(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
