"""Whole brokers on simulated machines: the real `Broker`, given a world of its own.

What it does in the real world with a signal is done here with its process: stopped it moves its leaderships first,
killed it does nothing any more, without power it also loses what was not synced. Whatever brokers log goes to the trace
with the time and the broker, so that a run can be read, and compared with another.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from penstock.broker.app import Broker, StartError
from penstock.broker.world import World
from penstock.cluster.coordination import Coordination
from penstock.cluster.model import PartitionState
from penstock.cluster.settings import BrokerSettings
from penstock.replication.partition import Partition
from penstock.storage.worker import Worker
from penstock.transport.listener import Listener
from penstock.transport.peer import Address, Network
from penstock.transport.turn import Turn
from tests.simulation.cluster import SimulatedCluster, SimulatedMachine
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import PROCESS, State

PORT = 9092
START_S_MAX = 60.0
STOP_S_MAX = 60.0
SETTLED_S_MAX = 120.0
LOOK_S = 0.01
AGAIN_S = 0.5
TRACED = ("partition", "topic", "epoch", "broker", "from", "to", "offset", "leader")  # of what log lines carry

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class NotInTime(AssertionError):
    """Something that should have come about has not."""


class SimulatedWorker(Worker):
    """Does in this process what the real one does in another; it takes a moment."""

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs, "arguments are given by position"
        await asyncio.sleep(0.001)
        return function(*args, **kwargs)


class SimulatedBroker:
    """A number, a machine and settings; and while it runs, a broker."""

    def __init__(self, cluster: SimulatedBrokers, number: int, settings: dict[str, str]) -> None:
        self._cluster = cluster
        self.number = number
        self.name = f"b{number}"
        self.settings = settings
        self._stopping: asyncio.Event | None = None
        self._running: asyncio.Task[None] | None = None
        self.broker: Broker | None = None

    @property
    def machine(self) -> SimulatedMachine:
        return self._cluster.machines[self.name]

    @property
    def address(self) -> Address:
        return Address(self.name, PORT)

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    def world(self) -> World:
        machine, cluster = self.machine, self._cluster

        def network(loop: asyncio.AbstractEventLoop, turn: Turn, client_id: str) -> Network:
            return cluster.network.host(self.name, turn, client_id)

        def listener(loop: asyncio.AbstractEventLoop, **options: Any) -> Listener:
            return machine.listener(**options)

        async def store(settings: BrokerSettings, data_dir: Path) -> Coordination:
            return await machine.store(settings.get("zookeeper.session.timeout.ms") / 1000)

        return World(
            disk=machine.disk, clock_ns=machine.clock_ns, steady_ns=cluster.loop.wall_ns,
            random_bytes=machine.random_bytes, random=random.Random(machine.random.getrandbits(32)),
            boot=machine.boot_id, open_store=store, committer=lambda loop: machine.committer(), worker=SimulatedWorker,
            folders_at_once=1, network=network, listener=listener, watchman=False, owns_process=False,
        )  # fmt: skip

    async def start(self) -> None:
        """Returns when it answers."""
        started = asyncio.Event()
        self._stopping = asyncio.Event()
        broker = Broker(BrokerSettings(self.settings), world=self.world())
        self._running = self.machine.start(self._run(broker, started, self._stopping))
        self.machine.process.on_kill(lambda: os.close(broker._lock) if hasattr(broker, "_lock") else None)
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait([waiting, self._running], timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._running.done():
            self._running.result()
        if not started.is_set():
            raise NotInTime(f"{self.name} does not start")
        self.broker = broker
        self._cluster.note(self.name, "started")

    async def _run(self, broker: Broker, started: asyncio.Event, stopping: asyncio.Event) -> None:
        await broker.start()
        started.set()
        await stopping.wait()
        await broker.stop()

    async def stop(self) -> bool:
        """False if it was stopping already, or was killed before it had come to its end."""
        assert self._stopping is not None
        assert self._running is not None
        if self._stopping.is_set():
            return False
        self._cluster.note(self.name, "is told to stop")
        process = self.machine.process
        self._stopping.set()
        running = self._running
        await self._cluster.until(
            f"{self.name} has stopped", lambda: running.done() or process.state is State.KILLED, STOP_S_MAX
        )
        if not running.done():
            return False
        running.result()
        self.broker = None
        process.state = State.KILLED  # nothing of it is left to run
        self._cluster.note(self.name, "has stopped")
        return True

    async def start_again(self) -> None:
        """However long it takes until it can be: without the coordination service it can't."""
        while True:
            try:
                await self.start()
                return
            except StartError as error:
                self._cluster.note(self.name, f"does not start: {error}")
            await asyncio.sleep(AGAIN_S)

    @property
    def is_paused(self) -> bool:
        return self.machine.process.state is State.PAUSED

    def kill(self) -> None:
        self.broker = None
        self.machine.kill()

    def lose_power(self) -> None:
        self.broker = None
        self.machine.lose_power()

    def pause(self) -> None:
        self._cluster.note(self.name, "paused")
        self.machine.process.pause()

    def resume(self) -> None:
        self._cluster.note(self.name, "resumed")
        self.machine.process.resume()

    # ---- what it knows

    def partition(self, topic: str, index: int = 0) -> Partition:
        assert self.broker is not None, f"{self.name} does not run"
        found = self.broker.partitions.get(topic, index)
        assert found is not None, f"{self.name} has no replica of {topic}-{index}"
        return found

    def knows(self, topic: str, index: int = 0) -> PartitionState:
        assert self.broker is not None, f"{self.name} does not run"
        return self.broker.image.topics[topic].partitions[index]

    def describe(self, topic: str) -> str:
        state, partition = self.knows(topic), self.partition(topic)
        return (
            f"{self.name} knows leader {state.leader} in epoch {state.leader_epoch}, isr {state.isr}, eligible "
            f"{state.eligible}; its log ends at {partition.log.end_offset}, committed is {partition.high_watermark}"
        )


class SimulatedBrokers(SimulatedCluster):
    """`settings` are those of every broker, with dots or with underscores."""

    def __init__(self, root: Path, count: int = 3, seed: int = 0, **settings: object) -> None:
        numbers = range(1, count + 1)
        super().__init__(root, [f"b{number}" for number in numbers], seed)
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.brokers = {number: SimulatedBroker(self, number, self._settings(number, given)) for number in numbers}
        self._witness = _Witness(self)

    def _settings(self, number: int, given: dict[str, str]) -> dict[str, str]:
        return {
            "node.id": str(number), "data": str(self.machines[f"b{number}"].folder), "listen": f"b{number}:{PORT}",
            "zookeeper.connect": "zookeeper:2181", "auto.leader.rebalance.enable": "false", **given,
        }  # fmt: skip

    async def __aenter__(self) -> SimulatedBrokers:
        logger = logging.getLogger("penstock")
        self._level = logger.level
        logger.addHandler(self._witness)
        logger.setLevel(logging.INFO)
        for broker in self.brokers.values():
            await broker.start()
        await self.until("all know each other", self._all_known)
        return self

    def _all_known(self) -> bool:
        return all(each.broker is not None and len(each.broker.image.brokers) == len(self.up) for each in self.up)

    async def __aexit__(self, kind: object, problem: BaseException | None, traceback: object) -> None:
        if problem is not None:
            problem.add_note("\n".join(self.trace))
        for broker in self.brokers.values():
            if broker.is_up:
                broker.kill()
        logger = logging.getLogger("penstock")
        logger.removeHandler(self._witness)
        logger.setLevel(self._level)
        gc.unfreeze()  # a broker takes what lives at its start for what lives to the end

    # ---- what is so, and waiting for it

    def __getitem__(self, number: int) -> SimulatedBroker:
        return self.brokers[number]

    @property
    def up(self) -> list[SimulatedBroker]:
        return [broker for broker in self.brokers.values() if broker.is_up]

    async def until(self, what: str, is_so: Callable[[], bool], seconds: float = SETTLED_S_MAX) -> None:
        deadline = self.loop.time() + seconds
        while not is_so():
            if self.loop.time() > deadline:
                raise NotInTime(f"after {seconds} s it is not so that {what}")
            await asyncio.sleep(LOOK_S)

    async def until_in_sync(self, topic: str, members: Iterable[int] = (), seconds: float = SETTLED_S_MAX) -> None:
        """All who run know it, and have as much as the leader has, all of which is committed."""
        wanted = set(members) or set(self.brokers)

        def is_so() -> bool:
            for broker in self.up:
                state = broker.knows(topic)
                if set(state.isr) != wanted or state.leader not in wanted or not self.brokers[state.leader].is_up:
                    return False
            held = [broker.partition(topic) for broker in self.up if broker.number in wanted]
            ends = {partition.log.end_offset for partition in held}
            committed = {partition.high_watermark for partition in held if partition.leads}
            return len(held) == len(wanted) and len(ends | committed) == 1

        try:
            await self.until(f"{sorted(wanted)} are in sync", is_so, seconds)
        except NotInTime as error:
            raise NotInTime(f"{error}: " + "; ".join(broker.describe(topic) for broker in self.up)) from None

    def leader(self, topic: str, index: int = 0) -> int:
        """As the newest of the brokers that run know it."""
        return max((broker.knows(topic, index) for broker in self.up), key=lambda state: state.leader_epoch).leader

    def controller(self) -> int:
        return next(broker.number for broker in self.up if broker.broker and broker.broker._controller.term is not None)


class _Witness(logging.Handler):
    """Writes down what brokers log. What they measure is left out: it belongs to the real world."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        facts = "".join(f" {name}={vars(record)[name]}" for name in TRACED if name in vars(record))
        who = process.name if process is not None else "nobody"
        self._cluster.note(who, f"{record.levelname.lower()} {record.getMessage()}{facts}")
        if record.exc_info and record.exc_info[1] is not None:
            self._cluster.note(who, repr(record.exc_info[1]))


def simulate(seed: int, scenario: Callable[[], Awaitable[T]]) -> T:
    """Runs it on a loop of its own. What a callback raises, which a loop would only log, fails it."""
    raised: list[dict[str, Any]] = []

    async def run() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
        return await scenario()

    running: Coroutine[Any, Any, T] = run()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        result = runner.run(running)
    assert not raised, raised
    return result
