"""Rule 7: at the start the log is verified. What is damaged in the middle is fetched anew, and never leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.suspicion import Suspicion
from tests.rules.telling import ALL, TOPIC, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBroker, SimulatedBrokers
from tests.simulation.client import Client


def damage(broker: SimulatedBroker, at: float) -> None:
    """A few bytes of its log, at that part of it."""
    path = broker.machine.folder / f"{TOPIC}-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    place = int(len(content) * at)
    content[place : place + 8] = bytes(8)
    path.write_bytes(content)


@pytest.mark.parametrize("at", [0.3, 0.6])
@pytest.mark.parametrize("number", [1, 2], ids=["the leader", "a follower"])
@with_and_without
def test_a_replica_that_was_damaged_fetches_anew_and_does_not_lead(
    rule: bool, number: int, at: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is back before anyone has missed it, so it is in sync by what everyone knows; and then it is needed."""

    async def damaged_while_it_is_down(cluster: SimulatedBrokers, client: Client) -> None:
        others = [each for each in ALL if each != number]
        await client.create(TOPIC, ALL, min_insync_replicas=3)  # whoever leaves the set stays eligible
        await write(cluster, client, 8)
        cluster[number].kill()
        damage(cluster[number], at)
        for other in others:
            cluster.network.cut(f"b{number}", f"b{other}")  # it can't fetch yet
        await cluster[number].start()
        for other in others:
            cluster[other].kill()
        await cluster.until("their sessions are over", lambda: _alive(cluster, number) == {number})
        cluster.heal()
        for other in others:
            await cluster[other].start()
        client.forget_leader(TOPIC)
        await write(cluster, client, 2, "later")

    if not rule:

        async def trusting(self: Suspicion, *arguments: object) -> None:
            """Does nothing about it."""

        monkeypatch.setattr(Suspicion, "act", trusting)
    tell(damaged_while_it_is_down, tmp_path, rule=rule)


def _alive(cluster: SimulatedBrokers, number: int) -> set[int]:
    broker = cluster[number].broker
    assert broker is not None
    return set(broker.image.brokers)
