"""What is wrong with a pipeline is said before it runs, in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform.checking import Plan, check
from penstock.pipeline.transform.decoding import bytes_of_nulls
from penstock.pipeline.transform.reading import read_pipeline
from penstock.pipeline.transform.saying import in_short
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import create_topic

pytestmark = pytest.mark.timeout(300)

FILE = """
[source.orders]
topic = "checked-in"
format = "json"
schema = "id BIGINT, level STRING, at TIMESTAMP"

[sink]
sql = "SELECT id, level FROM orders"
topic = "checked-out"
"""
AVRO = """format = "avro"
schema = '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}'"""
BY_MINUTE = "SELECT window(at, '1 minute').start AS minute, count(*) AS n FROM orders GROUP BY window(at, '1 minute')"
WATERMARK = "[sink]", 'watermark = { column = "at", delay = "1 minute" }\n[sink]'


@pytest.fixture(scope="module")
def places(broker: BrokerProcess) -> None:
    for name in ("checked-in", "checked-out"):
        create_topic(broker.bootstrap, name)


def checked(spark: SparkSession, broker: BrokerProcess, folder: Path, *changes: tuple[str, str]) -> Plan:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file = folder / "pipeline.toml"
    file.write_text(text)
    return check(spark, read_pipeline(file), broker.bootstrap)


SCHEMA = 'format = "json"\nschema = "id BIGINT, level STRING, at TIMESTAMP"'
STATEMENT = "SELECT id, level FROM orders"
IN_SQL = "'sql' in [sink.sink]"


def with_source(entry: str) -> tuple[str, str]:
    return "[sink]", f"{entry}\n[sink]"


REFUSED = [
    (('"id BIGINT', '"id BIGGINT'), "'schema' in [source.orders]: ", "BIGGINT"),
    (("level STRING", "_key STRING"), "'schema' in [source.orders] has '_key', a name that every source has"),
    (("level STRING", "ID STRING"), "'schema' in [source.orders] has 'id' twice"),
    ((SCHEMA, AVRO), "--packages org.apache.spark:spark-avro_2.13:4"),
    (("level FROM", "levle FROM"), f"{IN_SQL}: ", "`levle` cannot be resolved", "(line 1, position 12)"),
    (("SELECT id", "SELEC id"), f"{IN_SQL}: Syntax error at or near 'SELEC'"),
    ((STATEMENT, "SELECT 1 AS one"), f"{IN_SQL} reads none of the sources"),
    (("level FROM", "level AS id FROM"), f"{IN_SQL} has two columns named 'id'"),
    (("level FROM", "id AS value FROM"), f"{IN_SQL}: column 'id' is none of key, value"),
    ((STATEMENT, "SELECT id AS value FROM orders"), f"{IN_SQL}: column 'value' is bigint, and must be string"),
    (("[sink]", '[sink]\nkey = "name"'), "'key' in [sink.sink] is 'name'; the statement has id, level"),
    ((STATEMENT, BY_MINUTE), "'mode' in [sink.sink] is 'append': ", "without watermark"),
    (with_source('watermark = { column = "id", delay = "1 m" }'), "which is bigint and no timestamp"),
    (with_source('watermark = { column = "when", delay = "1 m" }'), "is for column 'when'; there are id, level"),
    (with_source('watermark = { column = "at", delay = "soon" }'), "has delay 'soon': "),
    (with_source('expect = { "odd" = "idd > 1" }'), "'odd' in [source.orders.expect]: ", "`idd` cannot be resolved"),
]


def test_what_makes_no_sense_is_refused_in_a_sentence(
    spark: SparkSession, broker: BrokerProcess, places: None, tmp_path: Path
) -> None:
    for change, *said in REFUSED:
        with pytest.raises(PipelineError) as refused:
            checked(spark, broker, tmp_path, change)
        for each in said:
            assert each in str(refused.value), change
        assert "\n" not in str(refused.value)


def test_a_sound_pipeline_has_rows_for_each_sink(
    spark: SparkSession, broker: BrokerProcess, places: None, tmp_path: Path
) -> None:
    plan = checked(spark, broker, tmp_path, WATERMARK, (STATEMENT, BY_MINUTE))
    ((_, rows),) = plan.rows
    assert rows.columns == ["value"]
    assert plan.missing == ("checked-in-dead-letters",)


def test_columns_that_a_table_does_not_have_are_told(
    spark: SparkSession, broker: BrokerProcess, places: None, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    spark.createDataFrame([(1, 2)], "id BIGINT, level BIGINT").write.parquet(str(folder))
    with pytest.raises(PipelineError, match="column 'level' is string, and bigint in the table"):
        checked(spark, broker, tmp_path, ('topic = "checked-out"', f'path = "{folder}"'))
    with pytest.raises(PipelineError, match="the statement has no column 'level', and the other has"):
        checked(
            spark, broker, tmp_path, ('topic = "checked-out"', f'path = "{folder}"'), ("SELECT id, level", "SELECT id")
        )


# ---- pure parts


def test_a_record_of_nulls_in_avro_is_known_by_its_bytes() -> None:
    assert bytes_of_nulls('{"fields": [{"name": "a", "type": ["null", "int"]}]}') == b"\0"
    assert bytes_of_nulls('{"fields": [{"type": ["int", "null"]}, {"type": "null"}, {"type": ["null"]}]}') == b"\2\0"
    assert bytes_of_nulls('{"fields": [{"type": ["int", "null"]}, {"type": "int"}]}') is None


def test_errors_of_spark_are_told_in_a_sentence() -> None:
    ours = (
        "[STREAM_FAILED] …\n  File x\npenstock.pipeline.problem.DataLost: offsets 3 to 7 of orders-1 are gone\n\tat …"
    )
    assert in_short(Exception(ours)) == "offsets 3 to 7 of orders-1 are gone"
    theirs = "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted. SQLSTATE: XXKST\n=== Streaming …"
    assert in_short(Exception(theirs)) == "Job aborted"
    long = in_short(Exception("x" * 10_000))
    assert len(long) < 600
