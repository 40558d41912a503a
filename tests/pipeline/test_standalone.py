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

from tests.brokers import BrokerProcess, free_port
from tests.pipeline.copying import PARTITIONS, ROWS, expect_each_once, plan, prepare

pytestmark = pytest.mark.timeout(400)

START_S = 90
RUN_S = 240


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("standalone")
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
            arguments = ["--cores", "2", "--memory", "1g", "--webui-port", str(free_port()), url]
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


def run(folder: Path, *command: str) -> None:
    log = folder / "job.log"
    with log.open("wb") as file:
        done = subprocess.run([sys.executable, "-m", *command], stdout=file, stderr=file, timeout=RUN_S)
    assert done.returncode == 0, log.read_text()[-3000:]


def test_source_sink_and_archive_on_a_cluster_while_an_executor_is_killed(
    master: str, new_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = new_broker()
    prepare(broker.bootstrap)
    plan(tmp_path, "task in the middle", kill="executor")
    run(tmp_path, "tests.pipeline.driver", broker.bootstrap, str(tmp_path), master)
    assert list(tmp_path.glob("died-*")), "no executor was killed"
    expect_each_once(broker.bootstrap)

    where = ["--to", str(tmp_path / "archive"), "--bootstrap", broker.bootstrap, "--master", master]
    run(tmp_path, "penstock", "archive", "run", "--topic", "out", "--once", *where)
    files = pyarrow.dataset.dataset(tmp_path / "archive", partitioning="hive").to_table(columns=["partition", "value"])
    assert sorted(int(each) for each in files["value"].to_pylist()) == list(range(ROWS))
    assert set(files["partition"].to_pylist()) == set(range(PARTITIONS))
