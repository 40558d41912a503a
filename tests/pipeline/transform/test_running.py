"""Pipelines against a real broker: every record comes out once, or is found among the dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform.checking import check
from penstock.pipeline.transform.reading import read_pipeline
from penstock.pipeline.transform.running import Run
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics
from tests.pipeline.transform.topics import consume, documents, produce, run_once

pytestmark = pytest.mark.timeout(400)

ORDERS = """
[spark]
"spark.sql.shuffle.partitions" = 1

[source.orders]
topic = "{orders}"
format = "json"
schema = "id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP"
watermark = {{ column = "at", delay = "10 seconds" }}
dead_letters = "{orders}-dead"
expect = {{ "amount is negative" = "amount >= 0" }}

[sink.large]
sql = "SELECT id, amount FROM orders WHERE amount > 100"
topic = "{large}"
key = "id"

[sink.per_minute]
sql = '''
SELECT window(at, '1 minute').start AS minute, count(*) AS n, sum(amount) AS amount
FROM orders GROUP BY window(at, '1 minute')
'''
topic = "{minutes}"
"""


def order(number: int, amount: float, minute: int = 0) -> dict[str, object]:
    return {"id": number, "amount": amount, "at": f"2026-05-01T12:{minute:02}:30Z"}


def test_rows_go_out_once_over_a_restart_and_bad_records_say_what_is_wrong(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, large, minutes = new_topic(2), new_topic(2), new_topic()
    file = tmp_path / "orders.toml"
    file.write_text(ORDERS.format(orders=orders, large=large, minutes=minutes))
    bad = [
        ("no json", "the value is no JSON object"),
        ('{"id": "seven"}', "field 'id' is seven, which is no bigint"),
        ('{"amount": 3}', "field 'id' is missing, and NOT NULL"),
        ('{"id": 1, "amount": -1, "at": "2026-05-01T12:00:00Z"}', "amount is negative"),
        (b"\xff\xfe", "the value is not UTF-8"),
        ("", "the value is no JSON object"),
    ]
    produce(broker.bootstrap, orders, [order(1, 50), order(2, 150), order(3, 200, minute=1), {"id": 9}])
    produce(broker.bootstrap, orders, [value for value, _ in bad], key="k", headers={"from": "shop"}, timestamp=1234)

    batches = run_once(spark, file, broker.bootstrap)

    assert sorted((each.key, each.document["id"]) for each in consume(broker.bootstrap, large)) == [
        (b"2", 2),
        (b"3", 3),
    ]
    dead = consume(broker.bootstrap, f"{orders}-dead")
    assert {(each.value, each.headers["penstock.error"].decode()) for each in dead} == {
        (value if isinstance(value, bytes) else value.encode(), reason) for value, reason in bad
    }
    assert len(dead) == len(bad)
    for each in dead:
        assert each.key == b"k"
        assert each.headers["from"] == b"shop"
        assert each.headers["penstock.topic"] == orders.encode()
        assert each.headers["penstock.timestamp"] == b"1234"
    places = {(each.headers["penstock.partition"], each.headers["penstock.offset"]) for each in dead}
    assert len(places) == len(bad)
    assert sum(each.rows_out or 0 for each in batches if each.dead_letters) == len(bad)
    assert all(each.lag == 0 for each in batches)
    assert documents(broker.bootstrap, minutes) == [{"minute": "2026-05-01T12:00:00.000Z", "n": 2, "amount": 200.0}]

    # Again, with the same checkpoint: what was read is not read again, and windows go on from what they held.
    # What comes while its queries run, one after another, is left by all of them, so that they end at the same offsets.
    produce(broker.bootstrap, orders, [order(4, 300, minute=1), order(5, 1, minute=9), "worse"])
    start = Run._start

    def start_late(run: Run, name: str) -> None:
        produce(broker.bootstrap, orders, [order(6, 300, minute=9), "late"])
        start(run, name)

    monkeypatch.setattr(Run, "_start", start_late)
    run_once(spark, file, broker.bootstrap)
    checkpoint = tmp_path / "penstock-pipelines" / "orders"
    names = ("dead-letters-orders", "large", "per_minute")
    assert len({last_offsets(checkpoint / each) for each in names}) == 1

    assert sorted(each["id"] for each in documents(broker.bootstrap, large)) == [2, 3, 4]
    assert len(consume(broker.bootstrap, f"{orders}-dead")) == len(bad) + 1
    assert documents(broker.bootstrap, minutes)[1:] == [{"minute": "2026-05-01T12:01:00.000Z", "n": 2, "amount": 500.0}]


LEVELS = """
[spark]
"spark.sql.shuffle.partitions" = 1

[source.lines]
topic = "{lines}"
format = "binary"
key = "binary"

[sink.counts]
sql = "SELECT CAST(value AS STRING) AS level, count(*) AS n FROM lines GROUP BY value"
topic = "{counts}"
key = "level"
mode = "update"

[sink.lake]
sql = "SELECT CAST(value AS STRING) AS level, CAST(_key AS STRING) AS host FROM lines"
path = "lake"
partition_by = "level"
"""


def last_offsets(checkpoint: Path) -> str:
    """As Spark has written them down."""
    last = max((each for each in (checkpoint / "offsets").glob("[0-9]*")), key=lambda path: int(path.name))
    return last.read_text().splitlines()[-1]


def forget_last_commit(checkpoint: Path) -> None:
    """As if the pipeline had died after its sink was done, and before Spark took note of it."""
    last = max(
        (each for each in (checkpoint / "commits").iterdir() if each.name.isdigit()), key=lambda path: int(path.name)
    )
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_comes_again_is_not_written_again(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, tmp_path: Path
) -> None:
    lines, counts = new_topic(2), new_topic()
    file = tmp_path / "levels.toml"
    file.write_text(LEVELS.format(lines=lines, counts=counts))
    produce(broker.bootstrap, lines, ["INFO", "ERROR", "INFO"], key="a")
    batches = run_once(spark, file, broker.bootstrap)
    assert [each.query for each in batches] == ["levels.counts", "levels.lake"]  # bytes are never bad
    for name in ("counts", "lake"):
        forget_last_commit(tmp_path / "penstock-pipelines" / "levels" / name)
    produce(broker.bootstrap, lines, ["INFO"], key="b")

    run_once(spark, file, broker.bootstrap)

    found = [(each.key, each.document["n"]) for each in consume(broker.bootstrap, counts)]
    assert sorted(found) == [(b"ERROR", 1), (b"INFO", 2), (b"INFO", 3)]
    rows = spark.read.parquet(str(tmp_path / "lake")).groupBy("level", "host").count().collect()
    assert sorted(tuple(each) for each in rows) == [("ERROR", "a", 1), ("INFO", "a", 2), ("INFO", "b", 1)]

    # What is deleted before it was read ends the pipeline, and is named.
    produce(broker.bootstrap, lines, ["DEBUG"], partition=1)
    delete_all(broker, lines, partition=1)
    said = rf"query 'levels.counts' failed: {lines}-1 begins at \d+, and was to be read from \d+"
    with pytest.raises(PipelineError, match=said):
        run_once(spark, file, broker.bootstrap)


def delete_all(broker: BrokerProcess, topic: str, partition: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    place = TopicPartition(topic, partition, -1)  # the high watermark
    admin.delete_records([place])[place].result(30)


RENAMED = """
[spark]
"spark.sql.shuffle.partitions" = 1
[source.purchases]
topic = "{orders}"
format = "json"
schema = "id BIGINT NOT NULL"
starting = "latest"
dead_letters = "{orders}-dead"
[sink.out]
sql = "SELECT cast(id AS STRING) AS value FROM purchases"
topic = "{out}"
"""


def test_a_record_that_is_bad_is_not_lost_when_its_source_gets_another_name(
    spark: SparkSession, broker: BrokerProcess, new_topic: Topics, tmp_path: Path
) -> None:
    orders, out = new_topic(), new_topic()
    file = tmp_path / "orders.toml"
    file.write_text(RENAMED.format(orders=orders, out=out))
    produce(broker.bootstrap, orders, [{"id": "six"}, {"id": "seven"}, {"id": 8}])
    plan = check(spark, read_pipeline(file), broker.bootstrap)
    for kind, lines in {"offsets": f'v1\n{{}}\n{{"{orders}": {{"0": 1}}}}', "commits": "v1\n{}"}.items():
        folder = Path(plan.pipeline.checkpoint) / "out" / kind  # which read the first under the name it had
        folder.mkdir(parents=True)
        (folder / "0").write_text(lines)
    run = Run(plan, once=True)
    run.start()
    try:
        for query in plan.spark.streams.active:
            assert query.awaitTermination(60)
    finally:
        run.stop()
    assert [each.document for each in consume(broker.bootstrap, f"{orders}-dead")] == [{"id": "seven"}]
