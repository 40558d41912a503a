"""A broker for each file of hostile tests, and after each test: nobody else was harmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.brokers import BrokerProcess
from tests.hostile.clients import RawClient
from tests.hostile.honest import Honest

HONEST_LATENCY_S_MAX = 1.0
MEMORY_MB_MAX = 64.0  # that one hostile connection may cost
CROWD_MB_MAX = (
    256.0  # queued.max.bytes, a largest request beyond it, and the receive buffers of a few hundred connections
)


class Hostile:
    """Opens hostile connections, and knows what they may cost."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._port = broker.port
        self._clients: list[RawClient] = []
        self.memory_mb_max = 0.0

    def __call__(self, timeout_s: float = 10.0, receive_bytes: int = 0) -> RawClient:
        self._clients.append(RawClient(self._port, timeout_s, receive_bytes))
        self.memory_mb_max += MEMORY_MB_MAX
        return self._clients[-1]

    def crowd(self, size: int, timeout_s: float = 10.0) -> list[RawClient]:
        """So many that what each may cost says nothing: what they may cost together does."""
        crowd = [RawClient(self._port, timeout_s) for _ in range(size)]
        self._clients += crowd
        self.memory_mb_max = max(self.memory_mb_max, CROWD_MB_MAX)
        return crowd

    def close(self) -> None:
        for client in self._clients:
            client.close()


def forget_peak(pid: int) -> None:
    """From now on, `peak_mb` is of what is resident from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mb(pid: int | str) -> float:
    """The highest resident memory that the process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("hostile"), flush="os").start()
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def honest(broker: BrokerProcess) -> Iterator[Honest]:
    honest = Honest(broker.port)
    yield honest
    honest.close()


@pytest.fixture
def hostile(broker: BrokerProcess, honest: Honest) -> Iterator[Hostile]:
    """Opens hostile connections. In the end: the broker lives, the honest client was served, memory was bounded."""
    hostile = Hostile(broker)
    logged, before_mb = broker.log.stat().st_size, broker.resident_mb()
    forget_peak(broker.pid)
    honest.begin()
    yield hostile
    report, growth_mb = honest.report(), peak_mb(broker.pid) - before_mb
    hostile.close()
    assert broker.process is not None
    assert broker.process.poll() is None, "the broker is dead"
    lines = broker.log.read_bytes()[logged:].decode(errors="replace")
    assert "Traceback" not in lines, lines[-4000:]
    assert not report.failure
    assert report.slowest_s < HONEST_LATENCY_S_MAX, f"an honest client waited {report.slowest_s:.2f} s"
    assert growth_mb < hostile.memory_mb_max, f"the broker grew by {growth_mb:.0f} MiB"


@pytest.fixture
def topic(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    """A topic of this test alone, with one partition."""
    client = RawClient(broker.port)
    name = client.create_topic(unique("victim"))
    client.close()
    return name


@pytest.fixture
def group(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    """The name of a group whose coordinator is there, and so is that of any other."""
    name = unique("group")
    client = RawClient(broker.port)
    while client.ask(FindCoordinatorRequest(coordinator_keys=[name], key_type=0), 4).coordinators[0].error_code:
        time.sleep(0.02)
    return name
