"""Whatever dies, and whenever: each row is in the topic once, in the order of its partition."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.brokers import BrokerProcess
from tests.pipeline.copying import expect_each_once, plan, prepare, run_until_done, start
from tests.pipeline.driver import Driver
from tests.pipeline.faulty import FaultySource

DEATHS = (
    "task in the middle",
    "before the decision",
    "after the decision",
    "half-way",
    "before it is done",
    "after everything",
)
IMPATIENT = {  # a broker that gives up on transactions and their names as soon as it may
    "transaction_remove_expired_transaction_cleanup_interval_ms": 100,
    "transaction_max_timeout_ms": 1_000,
    "transactional_id_expiration_ms": 1_000,
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess], spark: SparkSession) -> BrokerProcess:
    spark.dataSource.register(FaultySource)
    broker = new_broker()
    prepare(broker.bootstrap)
    return broker


def open_transactions(broker: BrokerProcess) -> int:
    command = [sys.executable, "-m", "penstock", "txn", "list", "--bootstrap", broker.bootstrap, "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return listed.count('"Ongoing"')


def test_a_driver_or_a_task_that_dies_at_each_step(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """At another one in each batch, and each time the query is started again."""
    plan(tmp_path, dict(enumerate(DEATHS, start=1)), batches=len(DEATHS) + 1)
    assert run_until_done(spark, broker.bootstrap, tmp_path) == len(DEATHS)
    assert sorted(each.name for each in tmp_path.glob("died-*")) == [f"died-{n + 1}" for n in range(len(DEATHS))]
    expect_each_once(broker.bootstrap)
    assert open_transactions(broker) == 0


def test_a_broker_that_is_killed_in_the_middle_of_a_query(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """When a task has written some of its rows, and when a batch is decided; the query goes on. Each step of the
    protocol is in test_sink_broker_kills.py, without Spark."""
    steps = {0: "task at its end", 1: "half-way"}
    plan(tmp_path, steps, wait=True)
    query = start(spark, broker.bootstrap, tmp_path)
    for batch in steps:
        wait_for(tmp_path / f"waits-{batch}")
        broker.kill()
        broker.start()
        (tmp_path / f"go-on-{batch}").touch()
    assert query.awaitTermination(120)
    expect_each_once(broker.bootstrap)
    assert open_transactions(broker) == 0


def test_a_driver_that_stays_away_for_long_while_the_broker_is_killed(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    plan(tmp_path, {1: "half-way"})
    with pytest.raises(StreamingQueryException):
        start(spark, broker.bootstrap, tmp_path).awaitTermination(90)
    waiting = open_transactions(broker)
    assert waiting > 0
    broker.kill()
    broker.settings = IMPATIENT
    broker.start()
    time.sleep(3)  # longer than any of its time-outs
    assert open_transactions(broker) == waiting
    broker.kill()
    broker.settings = {}
    broker.start()
    assert run_until_done(spark, broker.bootstrap, tmp_path) == 0
    expect_each_once(broker.bootstrap)


# ---- two drivers


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """In a process of its own. The last test kills it."""
    driver = Driver(tmp_path_factory.mktemp("driver"))
    yield driver
    driver.close()


def test_two_drivers_run_the_same_batch_and_one_of_them_is_told(
    driver: Driver, spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The older one stands still before its decision, until the newer one has run to the end."""
    older, newer = tmp_path / "older", tmp_path / "newer"
    plan(older, {1: "before the decision"}, wait=True)
    driver.begin(older, copy=broker.bootstrap)
    wait_for(older / "waits-1")
    shutil.copytree(older / "checkpoint", newer / "checkpoint")
    plan(newer, {})
    assert run_until_done(spark, broker.bootstrap, newer) == 0
    (older / "go-on-1").touch()
    assert "another run of the query" in driver.ended(older)
    expect_each_once(broker.bootstrap)
    assert open_transactions(broker) == 0


def test_a_driver_that_is_killed_with_all_that_belongs_to_it(
    driver: Driver, spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    plan(tmp_path, {1: "half-way"}, kill="me")
    driver.begin(tmp_path, copy=broker.bootstrap)
    assert driver.death() == -signal.SIGKILL, driver.log()
    assert run_until_done(spark, broker.bootstrap, tmp_path) == 0
    expect_each_once(broker.bootstrap)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} does not come"
        time.sleep(0.05)
