"""Machines with what a broker takes from outside: disk, clock, randomness, network, coordination. All from one seed.

A machine outlives its process: after a kill its disk holds all that was written, after a loss of power only what was
synced. What brokers do is up to the scenario, which also writes down what it sees, so that runs can be compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.transport.peer import Network
from penstock.transport.turn import Turn
from tests.simulation.committer import SYNC_S, SimulatedCommitter
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import SimulatedListener, SimulatedNetwork
from tests.simulation.process import Process
from tests.simulation.store import SESSION_TIMEOUT_S, SimulatedStore
from tests.simulation.zookeeper import SimulatedZooKeeper

T = TypeVar("T")


class SimulatedCluster:
    def __init__(self, root: Path, names: Sequence[str], seed: int = 0) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "a simulation needs its own loop"
        self.loop = loop
        self.random = random.Random(seed)
        self.network = SimulatedNetwork(loop, self.random.getrandbits(32))
        self.zookeeper = SimulatedZooKeeper(loop, self.random.getrandbits(32))
        self.trace: list[str] = []
        self.machines = {name: SimulatedMachine(self, name, root / name) for name in names}

    def note(self, who: str, what: object) -> None:
        self.trace.append(f"{self.loop.time():.6f} {who}: {what}")

    def cut_off(self, name: str, *, from_zookeeper: bool = True) -> None:
        """From every other machine."""
        self.note(name, "cut off")
        self.network.isolate(name, self.machines)
        if from_zookeeper:
            self.zookeeper.cut(name)

    def heal(self) -> None:
        self.note("network", "healed")
        self.network.heal_all()
        for name in self.machines:
            self.zookeeper.heal(name)


class SimulatedMachine:
    def __init__(self, cluster: SimulatedCluster, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._cluster = cluster
        self.name = name
        self.folder = folder
        self.random = random.Random(cluster.random.getrandbits(32))
        self.disk = SimulatedDisk(folder, self.random.getrandbits(32))
        self.boots = 1
        self.ahead_s = 0.0  # its clock, of the true time
        self.sync_s = SYNC_S  # how long its device takes
        self.device_fails = False  # what is synced from now on does not reach it
        self._process: Process | None = None

    # ---- what it runs

    @property
    def process(self) -> Process:
        assert self._process is not None, f"nothing was started on {self.name}"
        return self._process

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """In a process of its own, from which all that it starts descends."""
        self._process = Process(self._cluster.loop, self.name)
        return self._process.start(coroutine)

    def kill(self) -> None:
        self._cluster.note(self.name, "killed")
        self.process.kill()

    def lose_power(self) -> None:
        self._cluster.note(self.name, "without power")
        self.process.kill()
        self.disk.crash(keep_names=self.random.random())
        self.boots += 1

    # ---- what a broker takes from outside

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boots}"

    def clock_ns(self) -> int:
        return self._cluster.loop.wall_ns(self.ahead_s)

    def now_ms(self) -> int:
        return self.clock_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Whose clock is set does not notice it here."""
        return self._cluster.loop.wall_ns() // 1_000_000

    def random_bytes(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def committer(self) -> SimulatedCommitter:
        return SimulatedCommitter(self._cluster.loop, self.random, self.sync_s, lambda: self.device_fails)

    def turn(self) -> Turn:
        return Turn(self._cluster.loop, self.clock_ns)

    def peers(self, turn: Turn) -> Network:
        return self._cluster.network.host(self.name, turn)

    def listener(self, **options: Any) -> SimulatedListener:
        return SimulatedListener(self._cluster.network, self._cluster.loop, **options)

    async def store(self, session_timeout_s: float = SESSION_TIMEOUT_S) -> SimulatedStore:
        return await SimulatedStore.open(self._cluster.zookeeper, self.name, session_timeout_s)
