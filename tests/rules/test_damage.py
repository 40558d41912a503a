"""Rule 7: at the start the log is verified. What is damaged in the middle is fetched anew, and never leads."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.suspicion import Suspicion
from penstock.cluster.model import NO_LEADER
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.replication.partitions import Partitions
from penstock.replication.replicas import HIGH_WATERMARKS_EVERY, LOOK_S
from tests.rules.telling import ALL, TOPIC, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBroker, SimulatedBrokers, simulate
from tests.simulation.client import Client
from tests.simulation.disk import SimulatedDisk


def damage(broker: SimulatedBroker, at: float) -> None:
    """A few bytes of its log, at that part of it."""
    path = broker.machine.folder / f"{TOPIC}-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    place = int(len(content) * at)
    content[place : place + 8] = bytes(8)
    path.write_bytes(content)


async def needed_before_it_can_fetch(cluster: SimulatedBrokers, client: Client, number: int) -> None:
    others = [each for each in ALL if each != number]
    for other in others:
        cluster.network.cut(f"b{number}", f"b{other}")
    await cluster[number].start()
    for other in others:
        cluster[other].kill()
    await cluster.until("their sessions are over", lambda: _alive(cluster, number) == {number})
    cluster.heal()
    for other in others:
        await cluster[other].start()
    client.forget_leader(TOPIC)
    await write(cluster, client, 2, "later")


async def trusting(self: Suspicion, *arguments: object) -> None:
    """Does nothing about it."""


@pytest.mark.parametrize("at", [0.3, 0.6])
@pytest.mark.parametrize("number", [1, 2], ids=["the leader", "a follower"])
@with_and_without
def test_a_replica_that_was_damaged_fetches_anew_and_does_not_lead(
    rule: bool, number: int, at: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is back before anyone has missed it, so it is in sync by what everyone knows; and then it is needed."""

    async def damaged_while_it_is_down(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=3)  # whoever leaves the set stays eligible
        await write(cluster, client, 8)
        cluster[number].kill()
        damage(cluster[number], at)
        await needed_before_it_can_fetch(cluster, client, number)

    if not rule:
        monkeypatch.setattr(Suspicion, "act", trusting)
    tell(damaged_while_it_is_down, tmp_path, rule=rule)


def _without_its_id(folder: Path) -> None:
    (folder / "topic-id").unlink()


def _with_another_id(folder: Path) -> None:
    content = bytearray((folder / "topic-id").read_bytes())
    content[3] ^= 1
    (folder / "topic-id").write_bytes(content)


def _without_its_log(folder: Path) -> None:
    (folder / f"{0:020}.log").unlink()


def _cut_short(folder: Path) -> None:
    path = folder / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:200])


def change_while_it_is_down(broker: SimulatedBroker, change: Callable[[Path], object]) -> None:
    machine = broker.machine
    change(machine.folder / f"{TOPIC}-0")
    machine.disk = SimulatedDisk(machine.folder, broker.number)  # which takes what it finds for synced


@pytest.mark.parametrize(
    "change", [_without_its_id, _with_another_id, _without_its_log, _cut_short, shutil.rmtree], ids=lambda c: c.__name__
)
@with_and_without
def test_a_replica_whose_log_is_gone_or_too_short_does_not_lead(
    rule: bool, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def lost_while_it_is_down(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=3)
        await write(cluster, client, 8)
        await asyncio.sleep(HIGH_WATERMARKS_EVERY * LOOK_S + 1)
        cluster[2].kill()
        change_while_it_is_down(cluster[2], change)
        await needed_before_it_can_fetch(cluster, client, 2)

    if not rule:
        monkeypatch.setattr(Suspicion, "act", trusting)
    tell(lost_while_it_is_down, tmp_path, rule=rule)


@pytest.mark.parametrize(
    ("owner", "name", "nothing"),
    [(Suspicion, "act", trusting), (Partitions, "_settle_beginning", lambda *arguments: None)],
    ids=["it stays in sync", "it keeps what there is"],
)
@with_and_without
def test_a_replica_that_lost_its_beginning_does_not_make_the_others_delete_theirs(
    rule: bool, owner: type, name: str, nothing: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def led_by_it() -> list[int]:
        """Where the replicas begin then."""
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2, **{"internal.segment.bytes": 200})
            await write(cluster, client, 12)
            await cluster.until_in_sync(TOPIC)
            for number in ALL:
                cluster[number].kill()
            change_while_it_is_down(cluster[1], _without_its_log)
            for number in ALL:
                await cluster[number].start()
                await asyncio.sleep(1)
            await cluster.until_in_sync(TOPIC)
            for number in (2, 3):
                await cluster[number].stop()
                await cluster[number].start()
                await cluster.until_in_sync(TOPIC)
            await cluster.until("it leads", lambda: cluster[1].knows(TOPIC).leader == 1)
            await asyncio.sleep(5)
            return [cluster[number].partition(TOPIC).log.start_offset for number in ALL]

    if not rule:
        monkeypatch.setattr(owner, name, nothing)
    assert (simulate(1, led_by_it) == [0, 0, 0]) is rule


@pytest.mark.parametrize("replicas", [ALL, [2, 1, 3]], ids=str)
@with_and_without
def test_the_last_one_in_sync_does_not_lead_with_nothing(
    rule: bool, replicas: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The others have all of it by chance, but nobody can know that: a person has to say who leads."""

    async def lost_by_the_last(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, replicas, min_insync_replicas=1)
        await write(cluster, client, 8)
        await asyncio.sleep(HIGH_WATERMARKS_EVERY * LOOK_S + 1)
        for number in (1, 3):
            cluster[number].kill()
        await cluster.until("it is alone", lambda: cluster[2].knows(TOPIC).isr == (2,))
        cluster[2].kill()
        change_while_it_is_down(cluster[2], shutil.rmtree)
        await cluster[2].start()
        await asyncio.sleep(5)
        if rule:
            assert cluster[2].knows(TOPIC).leader == NO_LEADER
        for number in (1, 3):
            await cluster[number].start()
        await asyncio.sleep(5)
        if rule:
            assert cluster[2].knows(TOPIC).leader == NO_LEADER
            assert [cluster[number].partition(TOPIC).log.end_offset for number in ALL] == [8, 0, 8]
            assert await elect_unclean(client) == 0
        client.forget_leader(TOPIC)
        await write(cluster, client, 2, "later")

    if not rule:
        monkeypatch.setattr(Partitions, "_miss", lambda *arguments: None)
    tell(lost_by_the_last, tmp_path, rule=rule)


async def elect_unclean(client: Client) -> int:
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])], timeout_ms=1000
    )
    found = await client.ask(1, request, 2, ElectLeadersResponse)
    assert found is not None
    return found.error_code or found.replica_election_results[0].partition_result[0].error_code


def _alive(cluster: SimulatedBrokers, number: int) -> set[int]:
    broker = cluster[number].broker
    assert broker is not None
    return set(broker.image.brokers)
