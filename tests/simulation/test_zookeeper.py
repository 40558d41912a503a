"""The simulated coordination service: the contract of all others, and what becomes of sessions on the virtual clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from penstock.cluster.coordination import BadVersion, Coordination, Create, Disconnected, NodeExists, Session
from tests.cluster.test_coordination import *  # noqa: F403  (the contract)
from tests.cluster.test_coordination import Service
from tests.fakes import rounds
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import Process
from tests.simulation.store import SimulatedStore
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.zookeepers import Followed, eventually

TIMEOUT_S = 2.0


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@pytest.fixture
async def zookeeper() -> SimulatedZooKeeper:
    return SimulatedZooKeeper(the_loop(), seed=1)


@pytest.fixture
async def service(zookeeper: SimulatedZooKeeper) -> AsyncIterator[Service]:
    """In place of the contract's own."""
    service = Service(lambda: SimulatedStore.open(zookeeper, "host"))
    yield service
    await service.stop()


class Client:
    def __init__(self, store: SimulatedStore) -> None:
        self.store = store
        self.told: list[Session] = []
        store.on_session(self.told.append)

    @classmethod
    async def connect(cls, zookeeper: SimulatedZooKeeper, host: str) -> Client:
        return cls(await SimulatedStore.open(zookeeper, host, TIMEOUT_S))


async def test_a_short_cut_keeps_the_session_and_its_nodes(zookeeper: SimulatedZooKeeper) -> None:
    one, other = await Client.connect(zookeeper, "one"), await Client.connect(zookeeper, "other")
    await one.store.create("/e", ephemeral=True)
    zookeeper.cut("one")
    await asyncio.sleep(1.0)
    zookeeper.heal("one")
    await asyncio.sleep(3.0)
    assert one.told == [Session.SUSPENDED, Session.RESUMED]
    assert await other.store.children("/") == ["e"]
    assert other.told == []


async def test_a_long_cut_ends_the_session_and_its_nodes(zookeeper: SimulatedZooKeeper) -> None:
    one, other = await Client.connect(zookeeper, "one"), await Client.connect(zookeeper, "other")
    await one.store.create("/e", ephemeral=True)
    began = the_loop().time()
    zookeeper.cut("one")
    async with aclosing(rounds(0.01)) as each:
        async for _ in each:
            if not await other.store.children("/"):
                break
    assert TIMEOUT_S * 0.6 < the_loop().time() - began < TIMEOUT_S * 1.1
    assert one.told == [Session.SUSPENDED], "it should know that it is alone before others act on it"
    assert not one.store.connected
    with pytest.raises(Disconnected):
        await one.store.get("/")
    zookeeper.heal("one")
    await asyncio.sleep(1.0)
    assert one.told == [Session.SUSPENDED, Session.RENEWED]


async def test_of_writes_under_way_at_a_cut_some_have_happened_and_nobody_knows() -> None:
    happened = []
    for seed in range(30):
        zookeeper = SimulatedZooKeeper(the_loop(), seed)
        one, other = await Client.connect(zookeeper, "one"), await Client.connect(zookeeper, "other")
        writes = [asyncio.ensure_future(one.store.create(f"/{number}")) for number in range(4)]
        await asyncio.sleep(0.0002)
        zookeeper.cut("one")
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(outcome, Disconnected) for outcome in outcomes)
        made = await other.store.children("/")
        assert made == [str(number) for number in range(len(made))], "requests arrive in their order"
        happened.append(len(made))
    assert {0, 4} < set(happened)


async def test_an_outage_of_the_server_ends_no_session(zookeeper: SimulatedZooKeeper) -> None:
    clients = [await Client.connect(zookeeper, host) for host in ("one", "other")]
    for number, client in enumerate(clients):
        await client.store.create(f"/{number}", ephemeral=True)
    zookeeper.stop()
    await asyncio.sleep(60)
    assert not any(client.store.connected for client in clients)
    zookeeper.start()
    await asyncio.sleep(1)
    for client in clients:
        assert client.told == [Session.SUSPENDED, Session.RESUMED]
        assert await client.store.children("/") == ["0", "1"]


async def test_a_session_that_is_ended_is_renewed(zookeeper: SimulatedZooKeeper) -> None:
    one = await Client.connect(zookeeper, "one")
    await one.store.create("/e", ephemeral=True)
    zookeeper.expire("one")
    await asyncio.sleep(1)
    assert one.told == [Session.SUSPENDED, Session.RENEWED]
    assert await one.store.children("/") == []


async def test_a_process_that_is_killed_or_paused_loses_its_session(zookeeper: SimulatedZooKeeper) -> None:
    loop = the_loop()
    other = await Client.connect(zookeeper, "other")
    clients: dict[str, Client] = {}

    async def live(name: str) -> None:
        clients[name] = await Client.connect(zookeeper, name)
        await clients[name].store.create(f"/{name}", ephemeral=True)
        await asyncio.Event().wait()

    processes = {name: Process(loop, name) for name in ("killed", "paused")}
    for name, process in processes.items():
        process.start(live(name))
    await asyncio.sleep(10)
    assert await other.store.children("/") == ["killed", "paused"]
    processes["killed"].kill()
    processes["paused"].pause()
    await asyncio.sleep(1)
    assert await other.store.children("/") == ["killed", "paused"]
    await asyncio.sleep(2)
    assert await other.store.children("/") == []
    assert clients["paused"].told == []
    processes["paused"].resume()
    await asyncio.sleep(1)
    assert clients["paused"].told == [Session.SUSPENDED, Session.RENEWED]
    assert clients["killed"].told == []
    processes["paused"].kill()


@pytest.mark.parametrize("seed", range(5))
async def test_whoever_follows_ends_with_the_truth_whatever_was_lost(seed: int) -> None:
    """Writers, cuts, expiries and outages in any order; in the end all who follow know what is there."""
    chance = random.Random(seed)
    zookeeper = SimulatedZooKeeper(the_loop(), seed)
    clients = [await Client.connect(zookeeper, f"host-{number}") for number in range(3)]
    await clients[0].store.create("/f")
    followed = [await Followed().start(client.store, "/f") for client in clients]
    for step in range(200):
        await disturb(zookeeper, clients, chance, step)
        await asyncio.sleep(chance.choice((0.0, 0.001, 0.1, 1.0)))
    zookeeper.start()
    for number in range(3):
        zookeeper.heal(f"host-{number}")
    await asyncio.sleep(10)
    truth = await clients[0].store.children_with_data("/f")
    for each in followed:
        await eventually(lambda each=each: each.contents == truth)


async def disturb(zookeeper: SimulatedZooKeeper, clients: list[Client], chance: random.Random, step: int) -> None:
    host, what = f"host-{chance.randrange(3)}", chance.random()
    if what < 0.1:
        zookeeper.cut(host)
    elif what < 0.25:
        zookeeper.heal(host)
    elif what < 0.3:
        zookeeper.expire(host)
    elif what < 0.33:
        zookeeper.stop()
    elif what < 0.4:
        zookeeper.start()
    else:
        try:
            await change(chance.choice(clients).store, chance, step)
        except (Disconnected, NodeExists, BadVersion):
            pass


async def change(store: Coordination, chance: random.Random, step: int) -> None:
    name = f"/f/{chance.randrange(5)}"
    content = await store.children_with_data("/f")
    if name[3:] not in content:
        await store.multi([Create(name, b"%d" % step, ephemeral=chance.random() < 0.5)])
    elif chance.random() < 0.3:
        await store.delete(name, content[name[3:]].version)
    else:
        await store.set(name, b"%d" % step, content[name[3:]].version)
