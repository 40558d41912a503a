"""`penstock query`: SQL over topics, as a person types it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.cli import main
from penstock.cli.problem import Problem
from penstock.cli.query import expect_distinct, unambiguous
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import create_topic
from tests.pipeline.gate import ARGUMENTS
from tests.pipeline.histories import NOON_MS, TopicHistory, make

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command speaks UTC, and so would the tests that run in its process later."""
    monkeypatch.setenv("TZ", os.environ.get("TZ", ""))
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def orders(broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path) -> TopicHistory:
    found = make(broker.bootstrap, new_topic(1, "web.orders"), tmp_path)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    values = [b'{"customer": "ann", "n": 1}', "gr\u00fc\u00df\x1b[2Je".encode(), b"\xff\x00", None]
    for at, value in enumerate(values):
        headers = [("trace", b"\xfe"), ("trace", b"x"), ("none", None)] if at == 0 else None
        producer.produce(found.topic, value, key=f"k{at}", timestamp=NOON_MS + at * 1000, headers=headers)
    assert producer.flush(30) == 0
    found.archive_range(0, 2)
    found.delete_before(1)
    return found


def query(orders: TopicHistory, sql: str, *more: str) -> int:
    where = ["--archive", f"{orders.topic}={orders.archive.location.given}", "--bootstrap", orders.bootstrap]
    return main(["query", sql.replace("ORDERS", f"`{orders.topic}`"), *where, *more])


def test_rows_are_printed_as_a_table_as_csv_and_as_json(
    spark: SparkSession, orders: TopicHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query(orders, "SELECT * FROM ORDERS ORDER BY offset", "--format", "json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["value"] for row in rows] == ['{"customer": "ann", "n": 1}', "gr\u00fc\u00df\x1b[2Je", "0xff00", None]
    assert rows[0]["headers"] == [
        {"key": "trace", "value": "0xfe"},
        {"key": "trace", "value": "x"},
        {"key": "none", "value": None},
    ]
    assert rows[1]["timestamp"] == "2024-10-04T12:00:01.000Z"
    assert rows[1]["day"] == "2024-10-04"

    sql = "SELECT key, value, headers FROM ORDERS WHERE offset < 3 ORDER BY offset DESC"
    assert query(orders, sql, "--format", "csv", "--limit", "2") == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert lines == [["key", "value", "headers"], ["k2", "0xff00", ""], ["k1", "gr\u00fc\u00df\x1b[2Je", ""]]

    assert query(orders, "SELECT key, value FROM ORDERS ORDER BY key", "--limit", "2") == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split() == ["KEY", "VALUE"]
    assert "gr\u00fc\u00df\\x1b[2Je" in printed.out, "nothing that is in a message drives the terminal"
    assert "k2" not in printed.out
    assert "there are more" in printed.err


def test_json_has_every_column_and_says_in_which_zone_times_are(
    spark: SparkSession, orders: TopicHistory, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read behind a password."""
    times = "max(timestamp) AS t, max(timestamp_ntz'2024-10-04 12:00:00') AS t, collect_list(timestamp)[0] IS NULL AS n"
    behind = replace(orders, bootstrap=door)
    assert query(behind, f"SELECT {times} FROM ORDERS", "--format", "json", *ARGUMENTS) == 0
    (row,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert row == {"t": "2024-10-04T12:00:03.000Z", "t_2": "2024-10-04 12:00:00.000", "n": False}
    assert unambiguous(["a", "a", "a_2", "a"]) == ["a", "a_3", "a_2", "a_4"]


def test_filters_in_one_place_do_not_narrow_the_table_in_another(
    spark: SparkSession, orders: TopicHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    for sql, expected in (
        ("SELECT offset FROM ORDERS WHERE offset = 3 UNION ALL SELECT offset FROM ORDERS WHERE offset = 2", {"2", "3"}),
        ("WITH o AS (SELECT offset FROM ORDERS) SELECT * FROM o WHERE offset = 3 UNION ALL TABLE o", {*"0123"}),
        (f"SELECT offset FROM ORDERS WHERE offset = 3 UNION ALL SELECT offset FROM {spelled(orders)}", {*"0123"}),
    ):
        assert query(orders, sql, "--format", "csv") == 0
        assert set(capsys.readouterr().out.split()[1:]) == expected, sql


def spelled(orders: TopicHistory) -> str:
    """The table, in words that do not show its name."""
    return f"IDENTIFIER('`{orders.topic[:3]}' || '{orders.topic[3:]}`')"


def test_what_is_wrong_is_said_with_what_to_do(
    spark: SparkSession, orders: TopicHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    for sql, expected in (
        ("SELECT * FROM a-b", "backticks"),
        ("SELEC 1", "can't be read"),
        ("SELECT nothing FROM ORDERS", "nothing"),
        (f"SELECT * FROM `{orders.topic[:-1]}x`", f"Did you mean '{orders.topic}'?"),
        ("SELECT * FROM web.orders", "Write the topic's name as `web.orders`"),
        ("SELECT raise_error('no, because') FROM ORDERS", "no, because"),
    ):
        assert query(orders, sql) in (1, 2), sql
        printed = capsys.readouterr()
        assert expected in printed.err, sql
        assert len(printed.err) < 600, sql
        assert not printed.out, sql


def test_topics_that_differ_in_case_alone_are_not_asked_in_one_query(
    broker: BrokerProcess, new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    small = new_topic(1, "web.orders")
    large = small.replace("orders", "Orders")
    create_topic(broker.bootstrap, large)
    sql = f"SELECT (SELECT count(*) FROM `{small}`), (SELECT count(*) FROM `{large}`)"
    assert main(["query", sql, "--bootstrap", broker.bootstrap]) == 2
    assert f"names '{large}' and '{small}', which are one table" in capsys.readouterr().err


def test_names_are_told_from_what_strings_and_comments_say() -> None:
    topics = ["orders", "Orders", "web-clicks", "Web-Clicks", "a`b", "A`b"]
    for sql in (
        'SELECT \'Orders\', "it\\"s Orders" FROM orders -- of Orders',
        "SELECT * FROM `web-clicks` /* no\n`Web-Clicks` */ JOIN Orders o ON ORDERS.key = '\\'orders'",
    ):
        expect_distinct(sql, topics)
    for sql in (
        "SELECT * FROM orders JOIN Orders USING (key)",
        "SELECT * FROM `orders` WHERE key IN (SELECT key FROM Orders)",
        "SELECT * FROM `a``b`, `A``b`",
    ):
        with pytest.raises(Problem, match="one table"):
            expect_distinct(sql, topics)


def test_an_archive_that_is_a_file_is_no_archive(
    spark: SparkSession, orders: TopicHistory, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "a-file"
    file.write_text("")
    sql, where = f"SELECT * FROM `{orders.topic}`", ["--archive", f"{orders.topic}={file}"]
    assert main(["query", sql, *where, "--bootstrap", orders.bootstrap]) == 1
    printed = capsys.readouterr()
    assert f"can't read '{orders.topic}'" in printed.err
    assert len(printed.err.splitlines()) == 1


def test_the_command_prints_its_rows_and_nothing_else(orders: TopicHistory) -> None:
    columns = "max(timestamp) AS latest, count(*) AS n, max(get_json_object(value, '$.n')) AS one"
    sql = f"SELECT {columns} FROM `{orders.topic}`"
    line = [sys.executable, "-m", "penstock", "query", sql, "--bootstrap", orders.bootstrap, "--master", "local[1]"]
    line += ["--archive", f"{orders.topic}={orders.archive.location.given}"]
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[1].split() == ["2024-10-04", "12:00:03.000", "4", "1"]
