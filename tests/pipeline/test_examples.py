"""The pipelines in examples/ do what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from penstock.pipeline.archive.job import ArchiveJob
from penstock.pipeline.archive.job import start as start_archive
from penstock.pipeline.archive.settings import ArchiveOptions
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import create_topic
from tests.pipeline.transform.topics import consume, documents, produce, run_once

pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = '\n[spark]\n"spark.sql.shuffle.partitions" = 1\n'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose topics have the names that the examples use."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shop")).start()
    yield broker
    broker.close()


def topics(broker: BrokerProcess, *names: str) -> None:
    for name in names:
        create_topic(broker.bootstrap, name)


def copied(name: str, folder: Path) -> Path:
    """Its checkpoint is beside it, and not among the examples."""
    target = folder / name
    target.write_text((EXAMPLES / "pipelines" / name).read_text() + SMALL * name.endswith(".toml"))
    return target


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "pipelines" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lines_of_a_log_are_counted_by_the_minute(spark: SparkSession, shop: BrokerProcess, tmp_path: Path) -> None:
    topics(shop, "logs", "logs-per-minute")
    lines = [("checkout", "ERROR", "12:00:07"), ("checkout", "ERROR", "12:00:59"), ("search", "INFO", "12:00:30")]
    lines += [("checkout", "ERROR", "12:01:00"), ("search", "INFO", "12:05:00"), ("search", "SHOUT", "12:05:00")]
    produce(
        shop.bootstrap,
        "logs",
        [{"service": each, "level": level, "at": f"2026-05-01T{at}Z"} for each, level, at in lines],
    )
    run_once(spark, copied("logs_per_minute.toml", tmp_path), shop.bootstrap)
    counted = [
        (each["minute"][11:16], each["service"], each["lines"]) for each in documents(shop.bootstrap, "logs-per-minute")
    ]
    assert sorted(counted) == [("12:00", "checkout", 2), ("12:00", "search", 1), ("12:01", "checkout", 1)]
    (dead,) = consume(shop.bootstrap, "logs-dead-letters")
    assert dead.headers["penstock.error"] == b"level is none of DEBUG, INFO, WARN, ERROR"


def test_orders_are_joined_with_their_payments(spark: SparkSession, shop: BrokerProcess, tmp_path: Path) -> None:
    topics(shop, "orders", "payments", "paid-orders")
    orders = [{"id": n, "customer": f"c{n}", "amount": 10.5, "at": "2026-05-01T12:00:00Z"} for n in range(3)]
    produce(shop.bootstrap, "orders", orders)
    paid = [(0, "card", "12:30:00"), (1, "cash", "14:00:00"), (7, "card", "12:10:00")]
    produce(
        shop.bootstrap,
        "payments",
        [{"order_id": n, "method": method, "at": f"2026-05-01T{at}Z"} for n, method, at in paid],
    )
    run_once(spark, copied("paid_orders.toml", tmp_path), shop.bootstrap)
    (found,) = consume(shop.bootstrap, "paid-orders")
    assert found.key == b"0"
    assert found.document == {
        "id": 0, "customer": "c0", "amount": 10.5, "method": "card", "paid_at": "2026-05-01T12:30:00.000Z",
    }  # fmt: skip


def test_an_sql_file_filters_lines(spark: SparkSession, shop: BrokerProcess, tmp_path: Path) -> None:
    topics(shop, "lines", "errors")
    produce(shop.bootstrap, "lines", ["INFO all is well", "ERROR it burns"], key="host-1")
    run_once(spark, copied("errors.sql", tmp_path), shop.bootstrap)
    assert [(each.key, each.value) for each in consume(shop.bootstrap, "errors")] == [(b"host-1", b"ERROR it burns")]


def test_changes_are_upserted_into_a_table(spark: SparkSession, shop: BrokerProcess, tmp_path: Path) -> None:
    topics(shop, "customers")
    producer = Producer({"bootstrap.servers": shop.bootstrap})

    def change(key: str, name: str | None, city: str = "Oslo") -> None:
        producer.produce("customers", None if name is None else json.dumps({"name": name, "city": city}), key=key)

    def rows() -> list[tuple[str, str, str]]:
        assert producer.flush(30) == 0
        table = loaded("upsert").run(spark, shop.bootstrap, tmp_path / "table", once=True)
        return sorted(tuple(each) for each in table.read().collect())

    change("1", "Ada")
    change("2", "Grace")
    change("1", "Ada", "Bergen")
    assert rows() == [("1", "Ada", "Bergen"), ("2", "Grace", "Oslo")]
    change("2", None)
    change("3", "Alan")
    assert rows() == [("1", "Ada", "Bergen"), ("3", "Alan", "Oslo")]


def test_a_dashboard_sees_the_archive_and_what_came_since(
    spark: SparkSession, shop: BrokerProcess, tmp_path: Path
) -> None:
    topics(shop, "sales")
    produce(shop.bootstrap, "sales", [{"shop": "Oslo", "amount": 10.0}, {"shop": "Bergen", "amount": 5.0}])
    archive(spark, shop, tmp_path / "archive")
    admin = AdminClient({"bootstrap.servers": shop.bootstrap, "log_level": 0})
    admin.delete_records([TopicPartition("sales", 0, 2)])[TopicPartition("sales", 0)].result(30)
    produce(shop.bootstrap, "sales", [{"shop": "Bergen", "amount": 20.0}])
    rows = loaded("dashboard").dashboard(spark, shop.bootstrap).collect()
    assert [(each.shop, each.sales, each.amount) for each in rows] == [("Bergen", 2, 25.0), ("Oslo", 1, 10.0)]


def archive(spark: SparkSession, broker: BrokerProcess, folder: Path) -> None:
    """What `penstock archive run --topic sales --to FOLDER --once` does, in the session of the tests."""
    options = ArchiveOptions(str(folder), None, 1_000, "zstd", None, None)
    client = {"kafka.bootstrap.servers": broker.bootstrap}
    query = start_archive(spark, ArchiveJob(options, {"subscribe": "sales"}, client, trigger_s=None))
    assert query.awaitTermination(100)


# ---- Spark Declarative Pipelines


@pytest.mark.slow
def test_the_source_and_the_sink_work_in_spark_pipelines(
    new_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="pip install 'pyspark[pipelines]'")
    broker = new_broker()
    topics(broker, "orders", "large-orders")
    produce(broker.bootstrap, "orders", [{"id": n, "customer": f"c{n % 2}", "amount": 50.0 * n} for n in range(5)])
    project = tmp_path / "declarative"
    shutil.copytree(EXAMPLES / "declarative", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/penstock-declarative", str(tmp_path)))
    done = run_pipelines(project, broker.bootstrap, tmp_path / "warehouse")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    large = documents(broker.bootstrap, "large-orders")
    assert sorted(each["id"] for each in large) == [3, 4]


def run_pipelines(project: Path, bootstrap: str, warehouse: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("spark-pipelines"), "run"]
    for name, value in {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PENSTOCK_BOOTSTRAP": bootstrap}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)
