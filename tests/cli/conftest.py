"""The real command, run as a person runs it, against a real broker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

START_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *arguments]


def clean_environment(**more: str) -> dict[str, str]:
    """Without settings that the person who runs the tests may have set for a broker of their own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**inherited, **more}


def run_penstock(*arguments: str, stdin: str | None = None, cwd: Path | None = None, **environment: str) -> Finished:
    done = subprocess.run(
        command(*arguments),
        input=stdin if stdin is not None else "",
        env=clean_environment(**environment),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokerProcess:
    """`penstock start` on a port of its own."""

    def __init__(self, data: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            command("start", "--listen", self.address, "--data", str(data), *options),
            env=clean_environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_it_answers(self) -> float:
        """How long it took, from command to first connection, in seconds."""
        while time.monotonic() - self.started_at < START_TIMEOUT_S:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return time.monotonic() - self.started_at
            except OSError:
                if self.process.poll() is not None:
                    pytest.fail(f"the broker stopped: {self.process.communicate()[1]}")
                time.sleep(0.01)
        pytest.fail("the broker does not answer")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> Finished:
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=START_TIMEOUT_S)
        return Finished(self.process.returncode, out, err)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for all of these tests, or the one named in $CLI_TEST_BOOTSTRAP, which may be Kafka."""
    if named := os.environ.get("CLI_TEST_BOOTSTRAP"):
        yield named
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("cli") / "data", "--log-level", "error", "--quiet")
    try:
        broker.wait_until_it_answers()
        yield broker.address
        broker.stop()
    finally:
        broker.kill()


@pytest.fixture
def penstock(bootstrap: str) -> Callable[..., Finished]:
    def run(*arguments: str, stdin: str | None = None) -> Finished:
        return run_penstock(*arguments, stdin=stdin, PENSTOCK_BOOTSTRAP=bootstrap)

    return run


@pytest.fixture
def topic(penstock: Callable[..., Finished]) -> Iterator[str]:
    """A topic of three partitions, for one test."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    created = penstock("topic", "create", name, "-p", "3")
    assert created.code == 0, created.err
    yield name
    penstock("topic", "delete", name, "--yes")
