"""Whatever dies, and whenever: each row is in the topic once, in the order of its partition."""

from __future__ import annotations

import contextlib
import os
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
from tests.pipeline.faulty import FaultySource

STEPS = ["before the decision", "after the decision", "half-way", "before it is done", "after everything"]
EXPIRY_MS = 10_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess], spark: SparkSession) -> BrokerProcess:
    """One that gives up on transactions and their names as soon as it may."""
    spark.dataSource.register(FaultySource)
    broker = new_broker(
        transaction_remove_expired_transaction_cleanup_interval_ms=100,
        transaction_max_timeout_ms=10_000,
        transactional_id_expiration_ms=EXPIRY_MS,
    )
    prepare(broker.bootstrap)
    return broker


def open_transactions(broker: BrokerProcess) -> int:
    command = [sys.executable, "-m", "penstock", "txn", "list", "--bootstrap", broker.bootstrap, "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return listed.count('"Ongoing"')


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_at_a_step(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, step: str) -> None:
    plan(tmp_path, step)
    assert run_until_done(spark, broker.bootstrap, tmp_path) == 1
    expect_each_once(broker.bootstrap)
    assert open_transactions(broker) == 0


def test_a_driver_that_stays_away_for_long_while_the_broker_is_killed(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    plan(tmp_path, "half-way")
    with pytest.raises(StreamingQueryException):
        start(spark, broker.bootstrap, tmp_path).awaitTermination(90)
    waiting = open_transactions(broker)
    assert waiting > 0
    broker.kill()
    broker.start()
    time.sleep(EXPIRY_MS / 1000 + 2)  # longer than any of its time-outs
    assert open_transactions(broker) == waiting
    assert run_until_done(spark, broker.bootstrap, tmp_path) == 0
    expect_each_once(broker.bootstrap)


def test_a_task_that_dies_in_the_middle(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    plan(tmp_path, "task in the middle")
    assert run_until_done(spark, broker.bootstrap, tmp_path) == 1
    expect_each_once(broker.bootstrap)
    assert open_transactions(broker) == 0


Drive = Callable[[BrokerProcess, Path], subprocess.Popen[bytes]]


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Starts a driver of its own, which does not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start_driver(broker: BrokerProcess, folder: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.pipeline.driver", broker.bootstrap, str(folder)]
        with (folder / "driver.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    yield start_driver
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def test_a_driver_that_is_killed_with_all_that_belongs_to_it(
    spark: SparkSession, broker: BrokerProcess, drive: Drive, tmp_path: Path
) -> None:
    plan(tmp_path, "half-way", kill="me")
    assert drive(broker, tmp_path).wait(240) == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-2000:]
    assert run_until_done(spark, broker.bootstrap, tmp_path) == 0
    expect_each_once(broker.bootstrap)


def test_two_drivers_run_the_same_batch_and_one_of_them_is_told(
    spark: SparkSession, broker: BrokerProcess, drive: Drive, tmp_path: Path
) -> None:
    """The older one stands still before its decision, until the newer one has run to the end."""
    older, newer = tmp_path / "older", tmp_path / "newer"
    plan(older, "before the decision", wait=True)
    query = start(spark, broker.bootstrap, older)
    while not list(older.glob("waits-*")):
        assert query.isActive
        time.sleep(0.1)
    shutil.copytree(older / "checkpoint", newer / "checkpoint")
    plan(newer, "never")
    assert drive(broker, newer).wait(240) == 0, (newer / "driver.log").read_text()[-2000:]
    (older / "go").touch()
    with pytest.raises(StreamingQueryException, match="another run of the query"):
        query.awaitTermination(60)
    expect_each_once(broker.bootstrap)
    assert open_transactions(broker) == 0
