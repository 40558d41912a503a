"""A broker for each file of hostile tests, and after each test: nobody else was harmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.hostile.clients import RawClient
from tests.hostile.honest import Honest

HONEST_LATENCY_S_MAX = 1.0
MEMORY_MB_MAX = 64.0  # that one hostile connection may cost

Connect = Callable[..., RawClient]


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


@pytest.fixture(scope="module")
def resident_mb_at_first(broker: BrokerProcess, honest: Honest) -> float:
    """What tests are measured against. Not what the broker has before each: it keeps what it freed, for the next."""
    return broker.resident_mb()


@pytest.fixture
def hostile(broker: BrokerProcess, honest: Honest, resident_mb_at_first: float) -> Iterator[Connect]:
    """Opens hostile connections. In the end: the broker lives, the honest client was served, memory was bounded."""
    clients: list[RawClient] = []

    def connect(timeout_s: float = 10.0) -> RawClient:
        clients.append(RawClient(broker.port, timeout_s))
        return clients[-1]

    logged = broker.log.stat().st_size
    forget_peak(broker.pid)
    honest.begin()
    yield connect
    report, growth_mb = honest.report(), peak_mb(broker.pid) - resident_mb_at_first
    import os; print(f"\n{os.environ['PYTEST_CURRENT_TEST'][:130]} GROWTH {growth_mb:.1f} clients {len(clients)} latency {report.slowest_s:.2f}")
    for client in clients:
        client.close()
    assert broker.process is not None
    assert broker.process.poll() is None, "the broker is dead"
    lines = broker.log.read_bytes()[logged:].decode(errors="replace")
    assert "Traceback" not in lines, lines[-4000:]
    assert not report.failure
    assert report.slowest_s < HONEST_LATENCY_S_MAX, f"an honest client waited {report.slowest_s:.2f} s"
    assert growth_mb < MEMORY_MB_MAX * max(len(clients), 1), f"the broker grew by {growth_mb:.0f} MiB"


@pytest.fixture
def topic(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    """A topic of this test alone, with one partition."""
    client = RawClient(broker.port)
    name = client.create_topic(unique("victim"))
    client.close()
    return name
