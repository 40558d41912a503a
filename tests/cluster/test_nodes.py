from __future__ import annotations

import json

import pytest

from penstock.cluster.coordination import DATA_BYTES_MAX, Create, Delete, Set, Versioned
from penstock.cluster.model import PartitionState, TopicState
from penstock.cluster.nodes import (
    BrokerConfigNode,
    ClusterNode,
    ForeignNode,
    ProducerIdsNode,
    TopicNode,
    save,
    size_at_most,
)

TOPIC = TopicState(
    "t", bytes(range(16)), (PartitionState(1, 3, (1, 2), (1,)), PartitionState(2, 0, (2, 1), (2, 1))), {"a": "b"}
)


def test_every_node_reads_what_it_wrote() -> None:
    assert TopicNode.decode("t", Versioned(TopicNode(TOPIC).encode(), 4)) == TopicNode(TOPIC, 4)
    assert ClusterNode.decode(Versioned(ClusterNode("id").encode(), 0)) == ClusterNode("id", 0)
    assert ProducerIdsNode.decode(Versioned(ProducerIdsNode(5000).encode(), 5)) == ProducerIdsNode(5000, 5)
    node = BrokerConfigNode(1, {"flush": "os"})
    assert BrokerConfigNode.decode(1, Versioned(node.encode(), 2)) == BrokerConfigNode(1, {"flush": "os"}, 2)


def test_the_json_of_a_topic_can_be_read_by_people() -> None:
    assert json.loads(TopicNode(TOPIC).encode()) == {
        "format": 1,
        "id": "000102030405060708090a0b0c0d0e0f",
        "partitions": [[1, 3, [1, 2], [1]], [2, 0, [2, 1], [2, 1]]],
        "config": {"a": "b"},
    }


def test_a_node_that_was_never_stored_is_created_and_a_known_one_set_at_its_version() -> None:
    assert isinstance(save(TopicNode(TOPIC)), Create)
    assert save(TopicNode(TOPIC, 3)) == Set("/topics/t", TopicNode(TOPIC).encode(), 3)
    assert TopicNode(TOPIC, 3).remove() == Delete("/topics/t", 3)


def test_settings_of_all_brokers_and_of_one_are_two_nodes() -> None:
    assert BrokerConfigNode(None, {}).path == "/config/brokers/default"
    assert BrokerConfigNode(7, {}).path == "/config/brokers/7"


def test_internal_topics_are_known_by_their_name() -> None:
    assert TopicNode.decode("__consumer_offsets", Versioned(TopicNode(TOPIC).encode(), 0)).topic.internal
    assert not TopicNode.decode("t", Versioned(TopicNode(TOPIC).encode(), 0)).topic.internal


def test_a_node_of_a_newer_broker_is_not_guessed_at() -> None:
    data = TopicNode(TOPIC).encode().replace(b'"format":1', b'"format":2')
    with pytest.raises(ForeignNode, match="written by a newer version"):
        TopicNode.decode("t", Versioned(data, 0))


def test_the_largest_topic_fits_into_a_node() -> None:
    partition = PartitionState(1001, 100_000, (1001, 1002, 1003), (1001, 1002, 1003))
    topic = TopicState("t" * 249, bytes(16), (partition,) * 10_000, {})
    assert len(TopicNode(topic).encode()) < DATA_BYTES_MAX


@pytest.mark.parametrize("value", ["", "1" * 1000, '"' * 1000, "\u2003" * 1000 + "5", "\x1c" * 1000 + "5"])
def test_no_state_of_a_topic_is_larger_than_it_was_said_to_be(value: str) -> None:
    ids = tuple(range(2_147_483_640, 2_147_483_647))
    partition = PartitionState(ids[0], 2_147_483_647, ids, ids, ids, ids, ids, ids[-1])
    topic = TopicState("t" * 249, bytes(16), (partition,) * 100, {"segment.ms": value})
    assert len(TopicNode(topic).encode()) <= size_at_most(topic)
