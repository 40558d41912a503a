from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cluster.coordination import DATA_BYTES_MAX, Create, Delete, Set, Versioned
from penstock.cluster.model import BrokerState, Endpoint, PartitionState, TopicState
from penstock.cluster.nodes import (
    BrokerConfigNode,
    BrokerEpochNode,
    BrokerNode,
    ClusterNode,
    ForeignNode,
    GroupConfigNode,
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


# ---- what no broker has written

AN_ID = "00" * 15 + "01"


def topic_json(partitions: object, topic_id: object = AN_ID, config: object = None) -> Versioned:
    content = {"format": 1, "id": topic_id, "partitions": partitions, "config": {} if config is None else config}
    return Versioned(json.dumps(content).encode(), 0)


@pytest.mark.parametrize(
    "partitions",
    [
        [],
        [[1, None, [1, 2], [2]]],
        [["1", 0, ["1", "2"], ["1"]]],
        [[1, 0, [], []]],
        [[1, 0, ["a"], ["b"]]],
        [[1, 0, [1, 1], [1]]],
        [[1, 0, [1, 2], [3]]],
        [[1, 0, [1, 2], [1, 1]]],
        [[3, 0, [1, 2], [1]]],
        [[1, -1, [1], [1]]],
        [[True, 0, [1], [1]]],
        [[1, 0.0, [1], [1]]],
        [[1, 2**31, [1], [1]]],
        [[2**31, 0, [2**31], [2**31]]],
        [[-1, 0, [-1], []]],
        [[1, 0, [1, 2], [1], [3], [], [], -1]],
        [[1, 0, [1, 2], [1], [], [3], [], -1]],
        [[1, 0, [1, 2], [1], [], [], [], None]],
        [[1, 0, [1]]],
        [1],
    ],
)
def test_partitions_that_no_broker_would_write_are_no_topic(partitions: object) -> None:
    with pytest.raises(ForeignNode, match="/topics/t"):
        TopicNode.decode("t", topic_json(partitions))
    with pytest.raises(ForeignNode):
        TopicNode.decode_all({"t": topic_json(partitions)})


@pytest.mark.parametrize(
    ("topic_id", "config"),
    [("00", {}), ("x", {}), (7, {}), (AN_ID, []), (AN_ID, "x"), (AN_ID, {"retention.ms": 5}), (AN_ID, {"flush": None})],
)
def test_an_id_or_a_config_that_no_broker_would_write_is_no_topic(topic_id: object, config: object) -> None:
    with pytest.raises(ForeignNode, match="/topics/t"):
        TopicNode.decode("t", topic_json([[1, 0, [1], [1]]], topic_id, config))


def test_a_name_that_no_topic_can_have_is_no_topic() -> None:
    with pytest.raises(ForeignNode, match="other than ASCII"):
        TopicNode.decode("a b", topic_json([[1, 0, [1], [1]]]))


def test_a_partition_on_its_way_and_one_that_nobody_leads_are_read() -> None:
    moving = PartitionState(1, 3, (3, 1, 2), (1,), (2,), (3,), (1, 2))
    vacant = PartitionState(-1, 4, (1, 2), (), (1, 2), last_leader=1)
    topic = TopicState("t", bytes(range(16)), (moving, vacant), {})
    assert TopicNode.decode("t", Versioned(TopicNode(topic).encode(), 0)).topic == topic


@pytest.mark.parametrize(
    "data", ['{"format":1}', '{"format":1,"config":"x","id":1,"next":"x","count":-1}', "[" * 100_000]
)
def test_every_kind_of_node_says_where_it_is_when_no_broker_has_written_it(data: str) -> None:
    stored = Versioned(data.encode(), 0)
    decoders: dict[str, Callable[[], object]] = {
        "/config/brokers/default": lambda: BrokerConfigNode.decode(None, stored),
        "/config/brokers/1": lambda: BrokerConfigNode.decode(1, stored),
        "/config/groups/g": lambda: GroupConfigNode.decode("g", stored),
        "/cluster": lambda: ClusterNode.decode(stored),
        "/producer-ids": lambda: ProducerIdsNode.decode(stored),
        "/broker-epoch": lambda: BrokerEpochNode.decode(stored),
        "/brokers/1": lambda: BrokerNode.decode("1", stored),
    }
    for path, decode in decoders.items():
        with pytest.raises(ForeignNode, match=path):
            decode()


NO_RACK: Any = 7


@pytest.mark.parametrize("broker", [BrokerState(1, (Endpoint("P", "h", 70000),)), BrokerState(1, (), rack=NO_RACK)])
def test_a_broker_that_clients_could_not_be_told_of_is_none(broker: BrokerState) -> None:
    with pytest.raises(ForeignNode, match="/brokers/1"):
        BrokerNode.decode("1", Versioned(BrokerNode(broker).encode(), 0))
