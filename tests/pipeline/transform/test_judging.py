"""No query takes a new judgement of records while another stands elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.pipeline.brokers import Brokers
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.options import read_options
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.source import StreamReader
from penstock.pipeline.transform.checking import Plan, common_ends, starting_at
from penstock.pipeline.transform.decoding import reader_options
from penstock.pipeline.transform.judging import NOTES, agree
from penstock.pipeline.transform.model import Format, Pipeline
from penstock.pipeline.transform.reading import parse_pipeline
from penstock.pipeline.transform.running import Run
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
[source.orders]
topic = "orders"
format = "json"
schema = "{schema}"
{more}
[source.clicks]
topic = "clicks"
format = "text"
[sink.out]
sql = "SELECT id FROM Orders"
topic = "out"
[sink.clicked]
sql = "SELECT value FROM clicks"
topic = "clicked"
"""
STRICT, MENDED = "id BIGINT NOT NULL", "id STRING NOT NULL"


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    return lambda schema, more="": parse_pipeline(FILE.format(schema=schema, more=more), tmp_path / "p.toml")


def stand(pipeline: Pipeline, query: str, offset: int, *, batch: int = 0, done: bool = True) -> None:
    """Leaves a checkpoint as Spark does."""
    folder = Path(pipeline.checkpoint) / query
    offsets = {"orders": {"0": offset}, "#ids": {"orders": "c0ffee"}}
    for kind, lines in {"offsets": ["v1", "{}", json.dumps(offsets)], "commits": ["v1", "{}"]}.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / f".{batch}.crc").touch()
        if done or kind == "offsets":
            (folder / kind / str(batch)).write_text("\n".join(lines))


def test_another_schema_is_refused_while_queries_stand_apart(pipeline: Callable[..., Pipeline]) -> None:
    before, now = pipeline(STRICT), pipeline(MENDED)
    agree(before)
    stand(before, "dead-letters-orders", 3)
    stand(before, "out", 5)
    with pytest.raises(PipelineError, match=r"\[source.orders\] has another 'schema' than before.*--once") as refused:
        agree(now)
    with pytest.raises(PipelineError, match="another 'schema'"):
        Run(Plan(now, {}, ClientSettings(()), cast("SparkSession", None), (), (), ())).start()  # before anything else
    noted = Path(before.checkpoint) / NOTES
    assert str(noted) in str(refused.value)
    assert json.loads(noted.read_text())["out"]["orders"]["schema"] == STRICT

    agree(before)  # as it was it may run, and end at one offset
    stand(before, "dead-letters-orders", 5, batch=1)
    agree(now)
    stand(before, "out", 7, batch=1)
    agree(now)
    with pytest.raises(PipelineError, match="another 'schema'"):
        agree(before)


def test_a_checkpoint_that_only_spark_gets_at_is_looked_at_too(
    spark: SparkSession, pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """A file system of Hadoop's that is none of this machine's, if its files are."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    settings.set("fs.viewfs.mounttable.judges.link./far", f"file://{tmp_path}")
    near = [replace(pipeline(each), checkpoint=str(tmp_path / "checkpoint")) for each in (STRICT, MENDED)]
    before, now = (replace(each, checkpoint="viewfs://judges/far/checkpoint") for each in near)
    agree(before, spark)
    stand(near[0], "dead-letters-orders", 3)
    stand(near[0], "out", 5)
    with pytest.raises(PipelineError, match=r"another 'schema'.*viewfs://judges/far/checkpoint/judgements.json"):
        agree(now, spark)
    stand(near[0], "dead-letters-orders", 5, batch=1)
    agree(now, spark)
    noted = Path(near[0].checkpoint) / NOTES
    assert json.loads(noted.read_text())["out"]["orders"]["schema"] == MENDED, "written over what was there"
    noted.write_text("no JSON")
    with pytest.raises(PipelineError, match=r"judgements.json can't be read"):
        agree(now, spark)
    with pytest.raises(PipelineError, match="checkpoint nowhere://at/all can't be opened"):
        agree(replace(now, checkpoint="nowhere://at/all"), spark)


def test_a_query_that_has_not_begun_or_not_ended_its_batch_stands_apart(pipeline: Callable[..., Pipeline]) -> None:
    before = pipeline(STRICT)
    doubting = pipeline(STRICT, 'key = "binary"\nexpect = { "no id" = "id > 0" }')
    agree(before)
    stand(before, "dead-letters-orders", 5)
    with pytest.raises(PipelineError, match="another 'key' and another 'expect'"):
        agree(doubting)
    stand(before, "out", 5, done=False)
    with pytest.raises(PipelineError, match="another 'key' and another 'expect'"):
        agree(doubting)
    stand(before, "out", 5)
    agree(doubting)


def test_new_dead_letters_begin_where_the_sinks_of_their_source_stand(pipeline: Callable[..., Pipeline]) -> None:
    before = pipeline(STRICT)
    assert agree(before) == {}, "everything is new"
    stand(before, "dead-letters-orders", 5)
    stand(before, "out", 5)
    assert agree(before) == {}, "it has a checkpoint"
    renamed = replace(
        before,
        sources=(replace(before.sources[0], name="purchases"), before.sources[1]),
        sinks=(replace(before.sinks[0], sql="SELECT id FROM purchases"), before.sinks[1]),
    )
    stand(before, "out", 7, batch=1)
    with pytest.raises(PipelineError, match=r"dead letters of \[source.purchases\] are new.*--once"):
        agree(renamed)  # what is bad between 5 and 7 the old ones do not have yet
    stand(before, "dead-letters-orders", 7, batch=1, done=False)
    with pytest.raises(PipelineError, match=r"\[source.purchases\]"):
        agree(renamed)
    stand(before, "dead-letters-orders", 7, batch=1)
    assert agree(renamed) == {"dead-letters-purchases": {"orders": {"0": 7}}}
    stand(before, "out", 9, batch=2)
    assert agree(renamed) == {"dead-letters-purchases": {"orders": {"0": 7}}}, "sinks were quicker than a first batch"
    stand(before, "dead-letters-purchases", 7)
    assert agree(renamed) == {}


def test_records_that_could_not_be_bad_have_dead_letters_from_where_the_sinks_stand(
    pipeline: Callable[..., Pipeline],
) -> None:
    now = pipeline(STRICT)
    bytes_ = replace(now.sources[0], format=Format.BINARY, schema="", text_key=False)
    before = replace(now, sources=(bytes_, now.sources[1]), sinks=(now.sinks[0], replace(now.sinks[0], name="more")))
    agree(before)
    stand(before, "out", 5)
    assert agree(now) == {"dead-letters-orders": {"orders": {"0": 5}}}


def test_sinks_that_stand_apart_leave_new_dead_letters_no_place_to_begin(pipeline: Callable[..., Pipeline]) -> None:
    now = pipeline(STRICT)
    now = replace(now, sinks=(now.sinks[0], replace(now.sinks[0], name="more")))
    stand(now, "out", 5)
    stand(now, "more", 6)
    with pytest.raises(PipelineError, match=r"dead letters of \[source.orders\] are new.*--once"):
        agree(now)
    stand(now, "out", 6, batch=1)
    assert agree(now) == {"dead-letters-orders": {"orders": {"0": 6}}}


def test_a_reader_begins_at_a_position_and_with_newer_partitions_at_their_beginning(
    broker: BrokerProcess, new_topic: Topics
) -> None:
    topic = new_topic(2)
    text = f'[source.a]\ntopic = "{topic}"\nformat = "text"\nSTARTING\n[sink]\nsql = "SELECT * FROM a"\ntopic = "b"\n'
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for partition in (0, 0, 1):
        producer.produce(topic, b"there", partition=partition)
    assert producer.flush(30) == 0
    for starting in ("latest", "2100-01-01"):
        source = parse_pipeline(text.replace("STARTING", f'starting = "{starting}"'), Path("p.toml")).sources[0]
        given = reader_options(source, {"kafka.bootstrap.servers": broker.bootstrap})
        with Brokers(read_options(given, streaming=True).client) as brokers:
            given = starting_at(brokers, given, {topic: {"0": 1}, "gone": {"0": 3}})
        reader = StreamReader(read_options(given, streaming=True))
        try:
            assert reader.initialOffset()[topic] == {"0": 1, "1": 0}
        finally:
            reader.stop()


def test_what_judges_nothing_may_change_at_any_time(pipeline: Callable[..., Pipeline]) -> None:
    before = pipeline(STRICT)
    agree(before)
    stand(before, "dead-letters-orders", 3)
    stand(before, "out", 5)
    agree(pipeline(STRICT, 'dead_letters = "elsewhere"\nmax_offsets_per_trigger = 7'))


def test_queries_that_take_what_is_there_end_at_the_same_offsets(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic(1)
    text = f'[source.a]\ntopic = "{topic}"\nformat = "text"\nSTARTING\n[sink]\nsql = "SELECT * FROM a"\ntopic = "b"\n'
    sources = [
        parse_pipeline(text.replace("STARTING", more), Path("p.toml")).sources[0]
        for more in ("", 'starting = "latest"')
    ]
    readers = [reader_options(each, {"kafka.bootstrap.servers": broker.bootstrap}) for each in sources]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"there")
    assert producer.flush(30) == 0
    with Brokers(read_options(readers[0], streaming=True).client) as brokers:
        common_ends(brokers, readers)
    producer.produce(topic, b"later")
    assert producer.flush(30) == 0
    assert [final_offset(each, topic) for each in readers] == [1, 2]  # the second begins behind both


def final_offset(options: dict[str, str], topic: str) -> int:
    reader = StreamReader(read_options(options, streaming=True))
    try:
        reader.prepareForTriggerAvailableNow()
        return int(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())[topic]["0"])
    finally:
        reader.stop()
