"""Stories of three brokers. Each returns its trace, which is the same for the same seed, and has judged its end."""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path

from penstock.protocol.errors import ErrorCode
from tests.simulation.brokers import SimulatedBroker, SimulatedBrokers
from tests.simulation.client import Client, Reader, Writer
from tests.simulation.verdict import judge

TOPIC = "orders"
ALL = [1, 2, 3]


def digest(trace: list[str]) -> str:
    return hashlib.sha256("\n".join(trace).encode()).hexdigest() + f" {len(trace)}"


async def parting(root: Path, seed: int) -> list[str]:
    """A leader is cut off, another is elected, both append at the same offsets; then they meet again."""
    async with SimulatedBrokers(root, 3, seed) as cluster:
        client = Client(cluster)
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        writer = Writer(client, cluster, TOPIC, "w", idempotent=True)
        for _ in range(10):
            await writer.write()
        cluster.cut_off("b1")  # clients still reach it
        code, at = await client.produce(1, TOPIC, ["not committed", "nor this"], acks=1)
        assert (code, at) == (0, 10), "a leader that is cut off goes on by what it knows"
        unacknowledged = asyncio.ensure_future(client.produce(1, TOPIC, ["never acknowledged"]))
        await cluster.until("another leads", lambda: cluster[2].partition(TOPIC).leads)
        client.forget_leader(TOPIC)
        cluster.network.cut(client.name, "b1")  # from here on all go to the new one
        for _ in range(5):
            await writer.write()
        assert cluster[1].partition(TOPIC).leads, "nobody has told it"
        assert cluster[1].partition(TOPIC).log.end_offset == 13
        assert cluster[1].partition(TOPIC).high_watermark == 10, "a leader that was replaced commits nothing"
        assert (await unacknowledged)[0] != ErrorCode.NONE
        cluster.heal()
        cluster.network.heal(client.name, "b1")
        await cluster.until_in_sync(TOPIC)
        assert any("b1: info truncated" in line and "from=13 to=10" in line for line in cluster.trace)
        log = await client.read(TOPIC, cluster.loop.time() + 10)
        assert [value for _, value in log] == [f"w-{number}" for number in range(15)]
        await judge(cluster, client, TOPIC)
        return cluster.trace


async def without_zookeeper(root: Path, seed: int) -> list[str]:
    """It is away for a minute: nobody notices but those who would need another leader."""
    async with SimulatedBrokers(root, 3, seed) as cluster:
        client = Client(cluster)
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        writer = Writer(client, cluster, TOPIC, "w", idempotent=True)
        await writer.write()
        cluster.zookeeper.stop()
        until = cluster.loop.time() + 60
        while cluster.loop.time() < until:
            await writer.write()
            await asyncio.sleep(0.25)
        assert writer.longest_s < 0.5
        states = {broker.knows(TOPIC) for broker in cluster.up}
        assert [(state.leader, state.leader_epoch, set(state.isr)) for state in states] == [(1, 0, {1, 2, 3})]
        cluster.zookeeper.start()
        await asyncio.sleep(5)
        await writer.write()
        assert writer.longest_s < 3.0, "nor is its return more than an election"
        await judge(cluster, client, TOPIC)
        return cluster.trace


async def controller_lost(root: Path, seed: int) -> list[str]:
    """Another takes its place, and elects when next it is needed; who writes elsewhere notices nothing."""
    async with SimulatedBrokers(root, 3, seed) as cluster:
        client = Client(cluster)
        former = cluster.controller()
        leader, other = [number for number in ALL if number != former]
        await client.create(TOPIC, [leader, other, former], min_insync_replicas=1)
        writer = Writer(client, cluster, TOPIC, "w", idempotent=True)
        await writer.write()
        cluster[former].kill()
        died = cluster.loop.time()
        await cluster.until("there is a controller", lambda: _has_controller(cluster), 10)
        assert cluster.loop.time() - died < 3.0
        await writer.write()
        cluster[leader].kill()
        await writer.write()
        assert cluster.leader(TOPIC) == other
        assert writer.longest_s < 5.0
        for number in (former, leader):
            await cluster[number].start()
        await judge(cluster, client, TOPIC)
        return cluster.trace


def _has_controller(cluster: SimulatedBrokers) -> bool:
    return any(each.broker is not None and each.broker._controller.term is not None for each in cluster.up)


async def leader_without_power(root: Path, seed: int) -> list[str]:
    """What was written and not synced is gone with it. It comes back as one who has to catch up, not as a leader."""
    async with SimulatedBrokers(root, 3, seed) as cluster:
        client = Client(cluster)
        await client.create(TOPIC, ALL, min_insync_replicas=2, flush="os")
        writer = Writer(client, cluster, TOPIC, "w", idempotent=True)
        for _ in range(10):
            await writer.write()
        cluster[1].lose_power()
        await cluster[1].start()  # before its session has expired
        assert cluster[1].knows(TOPIC).leader_epoch > 0, "it gave up what it led"
        for _ in range(5):
            await writer.write()
        await judge(cluster, client, TOPIC)
        return cluster.trace


class Schedule:
    """Faults, one after the other and overlapping, drawn from the seed."""

    def __init__(self, cluster: SimulatedBrokers, seed: int, *, power: bool) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._faults = [self.kill, self.kill, self.stop, self.pause, self.cut_off, self.cut_two, self.cut_one_way]
        self._faults += [self.no_zookeeper, self.cut_from_zookeeper, self.expire, self.tear, self.set_clock]
        if power:
            self._faults += [self.lose_power, self.all_lose_power]

    async def run(self, count: int) -> None:
        running: set[asyncio.Task[None]] = set()
        for _ in range(count):
            fault = self._random.choice(self._faults)
            task = asyncio.ensure_future(fault())
            running.add(task)
            await asyncio.sleep(self._random.uniform(0, 4))
        await asyncio.gather(*running)
        self._cluster.heal()
        self._cluster.zookeeper.start()

    def _length_s(self) -> float:
        return self._random.choice((0.05, 0.5, 1.5, 3.0, 6.0))

    def _one(self) -> SimulatedBroker | None:
        able = [broker for broker in self._cluster.up if not broker.is_paused]  # one that stops may be killed
        return self._random.choice(able) if able else None

    def _two(self) -> tuple[str, str]:
        one, other = self._random.sample(sorted(self._cluster.machines), 2)
        return one, other

    async def _away(self, broker: SimulatedBroker) -> None:
        await asyncio.sleep(self._length_s())
        await broker.start_again()

    async def kill(self) -> None:
        if broker := self._one():
            broker.kill()
            await self._away(broker)

    async def lose_power(self) -> None:
        if broker := self._one():
            broker.lose_power()
            await self._away(broker)

    async def all_lose_power(self) -> None:
        brokers = [broker for broker in self._cluster.up if not broker.is_paused]
        for broker in brokers:
            broker.lose_power()
        self._random.shuffle(brokers)
        await asyncio.gather(*(self._away(broker) for broker in brokers))

    async def stop(self) -> None:
        broker = self._one()
        if broker is not None and await broker.stop():
            await self._away(broker)

    async def pause(self) -> None:
        if broker := self._one():
            broker.pause()
            await asyncio.sleep(self._length_s())
            broker.resume()

    async def cut_off(self) -> None:
        name, _ = self._two()
        self._cluster.cut_off(name, from_zookeeper=self._random.random() < 0.7)
        await asyncio.sleep(self._length_s())
        self._cluster.heal()

    async def cut_two(self) -> None:
        one, other = self._two()
        self._cluster.note("network", f"{one} and {other} are apart")
        self._cluster.network.cut(one, other)
        await asyncio.sleep(self._length_s())
        self._cluster.network.heal(one, other)

    async def cut_one_way(self) -> None:
        one, other = self._two()
        self._cluster.note("network", f"{one} does not reach {other}")
        self._cluster.network.cut(one, other, both_ways=False)
        await asyncio.sleep(self._length_s())
        self._cluster.network.heal(one, other)

    async def tear(self) -> None:
        one, other = self._two()
        self._cluster.note("network", f"torn between {one} and {other}")
        self._cluster.network.tear(one, other)

    async def no_zookeeper(self) -> None:
        self._cluster.note("zookeeper", "down")
        self._cluster.zookeeper.stop()
        await asyncio.sleep(self._length_s())
        self._cluster.zookeeper.start()
        self._cluster.note("zookeeper", "up")

    async def cut_from_zookeeper(self) -> None:
        name, _ = self._two()
        self._cluster.note(name, "does not reach zookeeper")
        self._cluster.zookeeper.cut(name)
        await asyncio.sleep(self._length_s())
        self._cluster.zookeeper.heal(name)

    async def set_clock(self) -> None:
        name, _ = self._two()
        machine = self._cluster.machines[name]
        machine.ahead_s = self._random.choice((-3600.0, -5.0, 5.0, 3600.0))
        self._cluster.note(name, f"its clock is {machine.ahead_s} s ahead")
        await asyncio.sleep(self._length_s())
        machine.ahead_s = 0.0

    async def expire(self) -> None:
        name, _ = self._two()
        self._cluster.note(name, "its session expires")
        self._cluster.zookeeper.expire(name)


async def random_faults(root: Path, seed: int, count: int = 8) -> list[str]:
    chance = random.Random(seed)
    power = chance.random() < 0.6
    flush = "commit" if power else "os"
    lag_ms = chance.choice((1000, 3000, 10_000))
    cluster = SimulatedBrokers(root, 3, seed, replica_lag_time_max_ms=lag_ms)
    async with cluster:
        client = Client(cluster)
        replicas = ALL.copy()
        chance.shuffle(replicas)
        await client.create(TOPIC, replicas, min_insync_replicas=2, flush=flush)
        work = [
            Writer(client, cluster, TOPIC, "once", idempotent=True).write_on(0.05),
            Writer(client, cluster, TOPIC, "plain", idempotent=False).write_on(0.05),
            Reader(client, cluster, TOPIC).read_on(0.2),
        ]
        tasks = [asyncio.ensure_future(each) for each in work]
        await asyncio.sleep(1)
        await Schedule(cluster, seed, power=power).run(count)
        await asyncio.sleep(5)
        for task in tasks:
            assert not task.done(), task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await judge(cluster, client, TOPIC)
        return cluster.trace


async def reborn_leader(root: Path, seed: int) -> list[str]:
    """A leader loses power, and with it a record that its followers have; it is back before anyone has missed it."""
    cluster = SimulatedBrokers(root, 3, seed)
    cluster.machines["b1"].sync_s = (0.2, 0.2)
    async with cluster:
        client = Client(cluster)
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        writer = Writer(client, cluster, TOPIC, "w", idempotent=True)
        for _ in range(3):
            await writer.write()
        assert await client.produce(1, TOPIC, ["written, not yet synced"], acks=1) == (0, 3)
        await cluster.until("followers have it", lambda: cluster[2].partition(TOPIC).local_end.offset == 4, 0.09)
        cluster.network.isolate("b1", cluster.machines)
        cluster[1].lose_power()
        await cluster[1].start()
        other = asyncio.ensure_future(client.produce(1, TOPIC, ["another at its place"]))
        await asyncio.sleep(0.5)
        cluster.heal()
        code, offset = await other
        client.note(f"from the leader that is back: {code} {offset}")
        if code == ErrorCode.NONE:
            client.history(TOPIC).acknowledged["another at its place"] = offset
        cluster[1].kill()
        await writer.write()
        await cluster[1].start()
        for _ in range(3):
            await writer.write()
        await judge(cluster, client, TOPIC)
        return cluster.trace
