"""A Spark cluster of a master and two workers, from the wheel: what works on a laptop works there, unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from penstock.cli import main
from penstock.pipeline.archive.layout import Archive
from tests.brokers import BrokerProcess, free_port
from tests.pipeline.copying import PARTITIONS, ROWS, expect_each_once, plan, prepare
from tests.pipeline.driver import WELL, Driver

pytestmark = pytest.mark.timeout(400)

START_S = 90
RUN_S = 240


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which they work."""
    return tmp_path_factory.mktemp("standalone").resolve()


@pytest.fixture(scope="module")
def master(workers: Path) -> Iterator[str]:
    folder = workers
    home = Path(pyspark.__file__).parent
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]  # the faulty sink is one of the tests
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    processes = []

    def launch(name: str, *arguments: str) -> None:
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            *arguments,
        ]
        with (folder / f"{name}-{len(processes)}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder)
            )

    try:
        launch("master.Master", "--port", str(port), "--webui-port", str(page))
        for number in range(2):
            arguments = ["--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), url]
            launch("worker.Worker", "--work-dir", str(folder / f"work-{number}"), *arguments)
        _wait_for_workers(f"http://127.0.0.1:{page}/json/")
        yield url
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _wait_for_workers(page: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                if answer.read().count(b'"ALIVE"') >= 3:  # the master, and two workers
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.2)
    raise AssertionError("the Spark cluster does not come up")


@pytest.fixture
def driver(master: str, tmp_path: Path) -> Iterator[Driver]:
    """One for all: each driver that comes starts executors of its own."""
    driver = Driver(tmp_path, master)
    yield driver
    driver.close()


def executors(folder: Path) -> list[int]:
    """The processes that workers have started in their folders."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = (process / "cwd").resolve().is_relative_to(folder)
            if is_ours and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def test_source_sink_and_archive_on_a_cluster_while_executors_are_killed(
    driver: Driver,
    workers: Path,
    new_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = new_broker()
    prepare(broker.bootstrap)
    plan(tmp_path, {1: "task in the middle"}, kill="executor")
    driver.begin(tmp_path, copy=broker.bootstrap)
    assert driver.ended(tmp_path) == WELL, driver.log()
    assert list(tmp_path.glob("died-*")), "no executor was killed"
    expect_each_once(broker.bootstrap)

    where = ["--topic", "out", "--bootstrap", broker.bootstrap]
    small = ["--records-per-file", "5", "--records-per-batch", "60"]
    archive = Archive(str(tmp_path / "archive"))
    driver.begin(
        tmp_path, command=["archive", "run", "--to", str(tmp_path / "archive"), "--once", *small, *where]
    )  # fmt: skip
    deadline = time.monotonic() + RUN_S
    while not archive.files("out"):
        assert time.monotonic() < deadline, driver.log()
        time.sleep(0.02)
    for pid in executors(workers):
        os.kill(pid, signal.SIGKILL)
    seen = sum(each.stop - each.start for each in archive.files("out"))
    assert 0 < seen < ROWS, "they were killed in the middle"
    assert driver.ended(tmp_path) == WELL, driver.log()
    files = pyarrow.dataset.dataset(tmp_path / "archive", partitioning="hive").to_table(columns=["partition", "value"])
    assert sorted(int(each) for each in files["value"].to_pylist()) == list(range(ROWS))
    assert set(files["partition"].to_pylist()) == set(range(PARTITIONS))
    assert main(["archive", "verify", *where]) == 0
    assert f"Compared {ROWS} records: no difference." in capsys.readouterr().out
