from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.cluster.model import NO_LEADER
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.server.handlers import elect_leaders
from tests.server.admin_broker import AdminBroker

PREFERRED, UNCLEAN = 0, 1


async def ask(
    broker: AdminBroker, *topics: tuple[str, list[int]], election: int = PREFERRED, version: int = 2
) -> ElectLeadersResponse:
    """Of all partitions, if none are named."""
    named = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics] or None
    request = ElectLeadersRequest(election_type=election, topic_partitions=named, timeout_ms=1000)
    return await broker.ask(elect_leaders.handle, request, ElectLeadersResponse, version)


def shown(response: ElectLeadersResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.topic: [(result.partition_id, result.error_code) for result in topic.partition_result]
        for topic in response.replica_election_results
    }


@pytest.fixture
async def broker(admin_broker: AdminBroker) -> AdminBroker:
    """Broker 1 leads all three partitions; broker 2 is preferred for the first, and 3, which is down, for the last."""
    admin_broker.add_broker(2)
    admin_broker.add_broker(3)
    await admin_broker.administration.create_topic("t", assignments=[(0, [2, 1]), (1, [1, 2]), (2, [3, 1])])
    topic = admin_broker.image.topics["t"]
    states = tuple(replace(state, leader=1) for state in topic.partitions)
    await admin_broker.cluster.catalog.write_topics([replace(topic, partitions=states)])
    del admin_broker.image.brokers[3]
    return admin_broker


def leaders(broker: AdminBroker) -> list[int]:
    return [state.leader for state in broker.image.topics["t"].partitions]


@pytest.mark.parametrize("version", range(3))
async def test_every_version_elects_preferred_leaders(broker: AdminBroker, version: int) -> None:
    response = await ask(broker, ("t", [0, 1, 2, 9]), ("nowhere", [0]), version=version)
    assert response.error_code == ErrorCode.NONE
    assert shown(response) == {
        "t": [
            (0, ErrorCode.NONE),
            (1, ErrorCode.ELECTION_NOT_NEEDED),
            (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        "nowhere": [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }
    assert leaders(broker) == [2, 1, 1]


async def test_of_all_partitions_those_are_told_for_which_there_was_something_to_do(broker: AdminBroker) -> None:
    response = await ask(broker)
    assert shown(response) == {"t": [(0, ErrorCode.NONE), (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]}
    assert leaders(broker) == [2, 1, 1]


async def test_a_topic_that_is_named_twice_is_answered_once(broker: AdminBroker) -> None:
    response = await ask(broker, ("t", [0]), ("t", [1, 0]))
    assert shown(response) == {
        "t": [(0, ErrorCode.NONE), (1, ErrorCode.ELECTION_NOT_NEEDED), (0, ErrorCode.ELECTION_NOT_NEEDED)]
    }


async def test_an_unclean_election_is_for_partitions_that_nobody_leads(broker: AdminBroker) -> None:
    topic = broker.image.topics["t"]
    lost = replace(topic.partitions[2], leader=NO_LEADER, isr=(), eligible=(3,), last_leader=3)
    await broker.cluster.catalog.write_topics([replace(topic, partitions=(*topic.partitions[:2], lost))])
    response = await ask(broker, ("t", [0, 2]), election=UNCLEAN)
    assert shown(response) == {"t": [(0, ErrorCode.ELECTION_NOT_NEEDED), (2, ErrorCode.NONE)]}
    assert leaders(broker) == [1, 1, 1]


@pytest.mark.parametrize("election", [2, -1])
async def test_other_elections_there_are_not(broker: AdminBroker, election: int) -> None:
    response = await ask(broker, ("t", [0]), election=election)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert shown(response) == {"t": [(0, ErrorCode.INVALID_REQUEST)]}
    assert leaders(broker) == [1, 1, 1]


async def test_nothing_asked_is_nothing_done(broker: AdminBroker) -> None:
    request = ElectLeadersRequest(topic_partitions=[])
    assert shown(await broker.ask(elect_leaders.handle, request, ElectLeadersResponse)) == {}
    assert leaders(broker) == [1, 1, 1]
