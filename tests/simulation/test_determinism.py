"""The same seed gives the same run, in any process: all parts at work together, and every step written down."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

from penstock.cluster.coordination import BadVersion, Disconnected, NodeExists
from penstock.replication.commit import Syncable
from penstock.transport.peer import Address
from tests.simulation.committer import SimulatedCommitter
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.process import Process
from tests.simulation.sockets import SimulatedSocket
from tests.simulation.store import SimulatedStore
from tests.simulation.zookeeper import SimulatedZooKeeper

REPOSITORY = Path(__file__).parents[2]
HOSTS = ("one", "two", "three")
PORT = 1


class Something:
    def sync(self) -> None:
        """Nothing to sync."""


class Member:
    """Counts in a shared node, tells the next host of it and syncs, over and over."""

    def __init__(self, loop: VirtualLoop, world: World, name: str) -> None:
        self._loop = loop
        self._world = world
        self._name = name

    async def run(self) -> None:
        server, _ = self._world.network.listen(self._name, PORT)
        committer = SimulatedCommitter(self._loop, self._world.random)
        store = await SimulatedStore.open(self._world.zookeeper, self._name)
        store.on_session(lambda session: self._world.note(self._name, session.value))
        await store.create(f"/{self._name}", ephemeral=True)
        await store.follow("/", lambda name, content: self._world.note(self._name, f"{name} {content}"))
        while True:
            await asyncio.sleep(self._world.random.uniform(0.01, 0.2))
            files: list[Syncable] = [Something()]
            committer.sync(files, lambda error: self._world.note(self._name, "synced"))
            await self._count(store)
            await self._tell_next()
            while server.is_readable:
                sock, address = server.accept()
                self._world.note(self._name, f"from {address}")
                sock.close()

    async def _count(self, store: SimulatedStore) -> None:
        try:
            content = await store.get("/count")
            await store.set("/count", b"%d" % (int(content.data) + 1), content.version)
        except (Disconnected, BadVersion, NodeExists) as problem:
            self._world.note(self._name, repr(problem))

    async def _tell_next(self) -> None:
        target = HOSTS[(HOSTS.index(self._name) + 1) % len(HOSTS)]
        try:
            sock: SimulatedSocket = await asyncio.wait_for(
                self._world.network.connect(self._name, Address(target, PORT)), 0.5
            )
            sock.send(b"hello")
            sock.close()
        except (OSError, TimeoutError) as problem:
            self._world.note(self._name, repr(problem))


class World:
    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop = loop
        self.random = random.Random(seed)
        self.network = SimulatedNetwork(loop, seed)
        self.zookeeper = SimulatedZooKeeper(loop, seed)
        self.trace: list[str] = []

    def note(self, who: str, what: str) -> None:
        self.trace.append(f"{self._loop.time():.9f} {who} {what}")

    async def run(self) -> str:
        outside = await SimulatedStore.open(self.zookeeper, "outside")
        await outside.create("/count", b"0")
        processes = {name: Process(self._loop, name) for name in HOSTS}
        for name, process in processes.items():
            process.start(Member(self._loop, self, name).run())
        await asyncio.sleep(3)
        self.zookeeper.cut("one")
        self.network.cut("two", "three")
        await asyncio.sleep(5)
        self.zookeeper.heal("one")
        processes["two"].pause()
        await asyncio.sleep(5)
        processes["two"].resume()
        self.network.heal_all()
        processes["three"].kill()
        await asyncio.sleep(5)
        assert "suspended" in " ".join(self.trace)
        assert "renewed" in " ".join(self.trace)
        self.note("outside", f"{await outside.get('/count')}")
        for process in processes.values():
            process.kill()
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest() + f" {len(self.trace)}"


def trace_of(seed: int) -> str:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(World(loop, seed).run())


def in_another_process(seed: int, hash_seed: int) -> str:
    program = f"from tests.simulation.test_determinism import trace_of; print(trace_of({seed}))"
    source = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_run() -> None:
    assert trace_of(1) == trace_of(1)
    assert trace_of(1) != trace_of(2)


def test_a_run_does_not_depend_on_how_strings_are_hashed() -> None:
    assert in_another_process(1, hash_seed=1) == in_another_process(1, hash_seed=2) == trace_of(1)
