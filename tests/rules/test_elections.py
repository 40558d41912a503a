"""Rule 3: who may lack what is committed leads only if a person says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cluster import controller
from penstock.cluster.elections import Brokers, settle_topic
from penstock.cluster.model import NO_LEADER, TopicState
from tests.rules.telling import ALL, TOPIC, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import Client


@with_and_without
def test_nobody_leads_rather_than_one_who_was_not_in_sync(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def only_the_one_who_lacks_it_is_back(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        cluster[3].kill()
        await cluster.until("the two are left", lambda: set(cluster[1].knows(TOPIC).isr) == {1, 2})
        await write(cluster, client, 3, "by two")
        for number in (1, 2):
            cluster[number].kill()
        await cluster[3].start()
        awaited = NO_LEADER if rule else 3
        await cluster.until("it is decided who leads", lambda: cluster[3].knows(TOPIC).leader == awaited, 30)
        for number in (1, 2):
            await cluster[number].start()

    if not rule:

        def unclean(topic: TopicState, brokers: Brokers, min_insync: int, unclean: bool = False) -> TopicState:
            return settle_topic(topic, brokers, min_insync, True)

        monkeypatch.setattr(controller, "settle_topic", unclean)
    tell(only_the_one_who_lacks_it_is_back, tmp_path, rule=rule)
