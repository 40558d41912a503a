"""`penstock pipeline`, as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli import main
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics
from tests.pipeline.transform.topics import consume, documents, produce

FILE = """
[source.orders]
topic = "{orders}"
format = "json"
schema = "id BIGINT NOT NULL"

[sink]
topic = "{doubled}"
sql = "SELECT id, 2 * id AS doubled FROM orders"
"""


def command(broker: BrokerProcess, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "pipeline", *arguments, "--bootstrap", broker.bootstrap]


def penstock(broker: BrokerProcess, *arguments: str) -> int:
    """In this process, where a session of Spark's runs."""
    return main(["pipeline", *arguments, "--bootstrap", broker.bootstrap])


@pytest.mark.timeout(400)
def test_a_pipeline_is_stopped_and_goes_on_where_it_was(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders, doubled = new_topic(), new_topic()
    file = tmp_path / "doubled.toml"
    file.write_text(FILE.format(orders=orders, doubled=doubled))
    produce(broker.bootstrap, orders, [{"id": 1}, "nonsense", {"id": 2}])
    started = command(broker, "run", str(file), "--master", "local[2]")
    with subprocess.Popen(
        started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as running:
        assert running.stdout is not None
        seen = ""
        while "2 out" not in seen or "1 bad" not in seen:
            line = running.stdout.readline()
            assert line, f"it ended: {seen}{running.stderr and running.stderr.read()}"
            seen += line
        running.send_signal(signal.SIGTERM)
        rest, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert "Pipeline doubled: 3 in, 2 out, 1 bad." in rest
    assert errors == ""

    produce(broker.bootstrap, orders, [{"id": 3}])
    capsys.readouterr()
    assert penstock(broker, "run", str(file), "--once", "--json") == 0
    batches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["query"], each["rows_in"], each["rows_out"]) for each in batches] == [
        ("doubled.dead-letters-orders", 1, 0),
        ("doubled.sink", 1, 1),
    ]
    assert [each["doubled"] for each in documents(broker.bootstrap, doubled)] == [2, 4, 6]
    assert [each.value for each in consume(broker.bootstrap, f"{orders}-dead-letters")] == [b"nonsense"]


def test_what_is_wrong_is_told_before_spark_starts(
    broker: BrokerProcess,
    new_topic: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.pipeline.session.open_session", lambda *_: pytest.fail("Spark starts"))
    orders = new_topic()
    file = tmp_path / "doubled.toml"
    file.write_text(FILE.format(orders=orders, doubled=f"{orders}x"))
    assert penstock(broker, "check", str(file)) == 1
    assert capsys.readouterr().err == (
        f"penstock: {file}: there is no topic '{orders}x' for [sink.sink] to write; did you mean '{orders}'?\n"
    )
    file.write_text('checkpoint = "/proc/nope"\n' + FILE.format(orders=orders, doubled=new_topic()))
    assert penstock(broker, "run", str(file)) == 1
    assert capsys.readouterr().err == f"penstock: {file}: folder /proc/nope can't be made: No such file or directory.\n"
    file.write_text("[sourse.orders]")
    assert penstock(broker, "run", str(file)) == 1
    assert (
        capsys.readouterr().err
        == f"penstock: {file}: the file has 'sourse', which is not known; did you mean 'source'?\n"
    )
