"""One broker for all hostile tests, and after each of them: nobody else was harmed."""

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


class Memory:
    """The highest resident memory of a process since a moment, as the kernel remembers it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # the peak begins again at what is resident now
        self._before = broker.resident_mb()

    def growth_mb(self) -> float:
        for line in Path(f"/proc/{self._broker.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024 - self._before
        raise AssertionError("no VmHWM")


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("hostile"), flush="os").start()
    yield broker
    broker.close()


@pytest.fixture(scope="package")
def honest(broker: BrokerProcess) -> Iterator[Honest]:
    honest = Honest(broker.port)
    yield honest
    honest.close()


@pytest.fixture
def hostile(broker: BrokerProcess, honest: Honest) -> Iterator[Connect]:
    """Opens hostile connections. In the end: the broker lives, the honest client was served, memory was bounded."""
    clients: list[RawClient] = []

    def connect(timeout_s: float = 10.0) -> RawClient:
        clients.append(RawClient(broker.port, timeout_s))
        return clients[-1]

    logged = broker.log.stat().st_size
    memory = Memory(broker)
    honest.begin()
    yield connect
    report, growth_mb = honest.report(), memory.growth_mb()
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
