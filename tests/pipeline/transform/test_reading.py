"""What a pipeline's file may say, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform.checking import check_topics
from penstock.pipeline.transform.model import ONCE, Format, Pipeline, Sink, Source, Watermark
from penstock.pipeline.transform.reading import parse_pipeline, read_pipeline, split_sql
from tests.docs.test_documents import ROOT, blocks

WHOLE = """
name = "orders-per-minute"
checkpoint = "state"
trigger = "10s"
bootstrap = "broker:9092"

[client]
"kafka.security.protocol" = "SSL"

[spark]
"spark.sql.shuffle.partitions" = 8
"spark.sql.ansi.enabled" = true

[source.orders]
topic = "orders"
format = "json"
schema = "id BIGINT, at TIMESTAMP"
starting = 2026-05-01T00:00:00Z
watermark = { column = "at", delay = "1 minute" }
expect = { "no id" = "id IS NOT NULL" }
max_offsets_per_trigger = 1000

[source.clicks]
topics = ["web", "app"]
format = "text"
key = "binary"
fail_on_data_loss = false

[sink.counts]
sql = "SELECT * FROM orders;"
topic = "counts"
key = "id"
mode = "update"
trigger = "once"

[sink.lake]
sql = "SELECT * FROM clicks"
path = "lake/clicks"
partition_by = "day"
"""
LEAST = '[source.a]\ntopic = "a"\nformat = "text"\n[sink]\nsql = "SELECT * FROM a"\ntopic = "b"\n'


def parse(text: str, file: str = "/etc/pipelines/orders.toml") -> Pipeline:
    return parse_pipeline(text, Path(file))


def test_everything_that_a_file_may_say() -> None:
    found = parse(WHOLE)
    assert found.name == "orders-per-minute"
    assert found.checkpoint == "/etc/pipelines/state"
    assert found.trigger_s == 10.0
    assert found.client == {"kafka.security.protocol": "SSL"}
    assert found.spark == {"spark.sql.shuffle.partitions": "8", "spark.sql.ansi.enabled": "true"}
    orders, clicks = found.sources
    assert orders == Source(
        name="orders",
        topics=("orders",),
        pattern=None,
        format=Format.JSON,
        schema="id BIGINT, at TIMESTAMP",
        dead_letters="orders-dead-letters",
        starting="1777593600000",
        watermark=Watermark("at", "1 minute"),
        expect={"no id": "id IS NOT NULL"},
        offsets_max=1000,
    )
    assert clicks.topics == ("web", "app")
    assert clicks.dead_letters == "orders-per-minute-dead-letters"
    assert not clicks.text_key
    assert not clicks.fail_on_data_loss
    counts, lake = found.sinks
    assert counts == Sink("counts", "SELECT * FROM orders", "counts", "id", mode="update", trigger_s=ONCE)
    assert (lake.path, lake.format, lake.partition_by) == ("/etc/pipelines/lake/clicks", "parquet", ("day",))


def test_what_a_file_need_not_say() -> None:
    found = parse(LEAST)
    assert found.name == "orders"
    assert found.checkpoint == "/etc/pipelines/penstock-pipelines/orders"
    assert [each.name for each in found.sinks] == ["sink"]
    assert found.sources[0].starting == "earliest"
    assert found.trigger_s is None


def test_an_sql_file_says_in_its_comment_what_a_toml_file_says() -> None:
    text = """-- name = "errors"
-- [source.logs]
-- topic = "logs"
-- format = "text"
--
-- [sink]
-- topic = "errors"

SELECT value -- the line
FROM logs WHERE value LIKE '%ERROR%';
"""
    found = parse(text, "/etc/pipelines/x.sql")
    assert found.name == "errors"
    assert found.sinks[0].sql == "SELECT value -- the line\nFROM logs WHERE value LIKE '%ERROR%'"
    assert found.sources[0].name == "logs"
    assert split_sql("SELECT 1") == ("", "SELECT 1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('topic = "a"', 'topc = "a"'), "[source.a] has 'topc', which is not known; did you mean 'topic'?"),
        (('topic = "a"', 'topic = "a"\nx = 1'), "[source.a] has 'x', which is not known; it takes topic, topics"),
        (('[sink]', '[snik]'), "the file has 'snik', which is not known; did you mean 'sink'?"),
        (('topic = "a"', 'topic = "a"\npattern = "a.*"'), "[source.a] needs one of 'topic', 'topics', 'pattern'"),
        (('topic = "a"', 'pattern = "("'), "'pattern' in [source.a] is '(': missing )"),
        (('topic = "a"', "topics = []"), "'topics' in [source.a] names no topic"),
        (('topic = "a"', "topic = 5"), "'topic' in [source.a] is 5; it must be a text"),
        (('"text"', '"xml"'), "'format' in [source.a] is 'xml'; it must be one of json, avro, text, binary"),
        (('"text"', '"json"'), "[source.a] needs one of 'schema', 'schema_file'; there is none"),
        (('"text"', '"text"\nschema = "x INT"'), "'schema' in [source.a] is not for format 'text'"),
        (('"text"', '"avro"\nschema_file = "no.avsc"'), "'schema_file' in [source.a] names /etc/pipelines/no.avsc"),
        (('"text"', '"text"\nstarting = "soon"'), "'starting' in [source.a] is 'soon'; it must be earliest"),
        (('"text"', '"text"\nwatermark = "at"'), "'watermark' in [source.a] must be a table of column, delay"),
        (('"text"', '"text"\nwatermark = { column = "at" }'), "'delay' in [source.a.watermark] is missing"),
        (('"text"', '"text"\nmax_offsets_per_trigger = 0'), "it must be a whole number of at least 1"),
        (('"text"', '"text"\nfail_on_data_loss = "no"'), "is 'no'; it must be true or false"),
        (("[source.a]", "[source.a-b]"), "[source.a-b] is to be a view in SQL"),
        (("sql =", "mode ="), "'sql' in [sink] is missing"),
        (('topic = "b"', 'topic = "b"\npath = "c"'), "[sink] needs one of 'topic', 'path', 'table'"),
        (('topic = "b"', 'path = "b"\nkey = "value"'), "'key' in [sink] is for topics only"),
        (('topic = "b"', 'topic = "b"\nformat = "json"'), "'format' in [sink] is not for a topic"),
        (('topic = "b"', 'path = "b"\nmode = "update"'), "'mode' in [sink] is 'update'; a path takes append only"),
        (('topic = "b"', 'topic = "b"\ntrigger = "often"'), "'trigger' in [sink] is 'often'; it must be like 10s"),
        (("[source.a]", 'name = "a b"\n[source.a]'), "'name' is 'a b'; it takes letters"),
        (("[source.a]", "[source.a"), "no TOML: "),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_its_name(change: tuple[str, str], said: str) -> None:
    with pytest.raises(PipelineError) as refused:
        parse(LEAST.replace(*change, 1))
    assert said in str(refused.value)


def test_a_file_without_sources_or_sinks_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"there is no \[source.NAME\]"):
        parse("")
    with pytest.raises(PipelineError, match=r"there is no \[sink\]"):
        parse('[source.a]\ntopic = "a"\nformat = "text"')


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="can't be read: No such file"):
        read_pipeline(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="is not text in UTF-8"):
        read_pipeline(tmp_path / "binary.toml")
    (tmp_path / "bad.toml").write_text("nome = 'x'")
    with pytest.raises(PipelineError, match=r"bad\.toml: the file has 'nome'.*did you mean 'name'"):
        read_pipeline(tmp_path / "bad.toml")


def test_the_pipelines_that_the_documents_show_can_be_read() -> None:
    shown = [each for each in blocks(ROOT / "docs" / "pipelines.md") if "[sink]" in each.text]
    found = [parse(each.text, f"/shown.{each.language}") for each in shown]
    assert [each.name for each in found] == ["orders-per-minute", "errors"]


# ---- topics


def test_topics_that_are_not_there_are_told_and_those_of_dead_letters_are_to_be_made() -> None:
    found = parse(LEAST)
    assert check_topics(found, {"a", "b"}) == ("a-dead-letters",)
    assert check_topics(found, {"a", "b", "a-dead-letters"}) == ()
    with pytest.raises(PipelineError, match=r"there is no topic 'a' for \[source.a\] to read"):
        check_topics(found, {"b"})
    with pytest.raises(PipelineError, match="create it with 'penstock topic create b'"):
        check_topics(found, {"a"})


def test_a_pipeline_that_would_read_what_it_writes_is_refused() -> None:
    with pytest.raises(PipelineError, match="reads topic 'a', which the pipeline writes"):
        check_topics(parse(LEAST.replace('"b"', '"a"')), {"a"})
    by_pattern = LEAST.replace('topic = "a"', 'pattern = "a.*"\ndead_letters = "a-dead"')
    with pytest.raises(PipelineError, match="reads topic 'a-dead', which the pipeline writes"):
        check_topics(parse(by_pattern), {"a", "b"})
