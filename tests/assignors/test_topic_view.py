from __future__ import annotations

from penstock.broker.topic_view import ImageTopics
from penstock.cluster.model import BrokerState, ClusterImage, PartitionState, TopicState

ID = bytes(range(16))


def image_of(*racks: str | None, partitions: int = 2) -> ClusterImage:
    image = ClusterImage("test", 0)
    for node_id, rack in enumerate(racks):
        image.brokers[node_id] = BrokerState(node_id, (), rack)
    image.put_topic(topic_of(partitions, len(racks)))
    image.put_topic(TopicState("__internal", bytes(16), (), {}, internal=True))
    return image


def topic_of(partitions: int, brokers: int, **config: str) -> TopicState:
    states = (PartitionState(n % brokers, 0, (n % brokers,), (n % brokers,)) for n in range(partitions))
    return TopicState("orders", ID, tuple(states), {name.replace("_", "."): text for name, text in config.items()})


def test_a_topic_has_its_shape_by_name_and_by_id() -> None:
    view = ImageTopics(image_of(None))
    shape = view.shape("orders")
    assert shape is not None
    assert (shape.topic_id, shape.name, shape.partitions, shape.racks) == (ID, "orders", 2, ())
    assert view.by_id(ID) is shape
    assert view.shape("nowhere") is view.by_id(b"x" * 16) is None


def test_patterns_do_not_see_internal_topics() -> None:
    assert list(ImageTopics(image_of(None)).names()) == ["orders"]


def test_replicas_are_in_the_racks_of_their_brokers() -> None:
    shape = ImageTopics(image_of("east", None)).shape("orders")
    assert shape is not None
    assert shape.racks == (frozenset({"east"}), frozenset())


def test_a_shape_is_that_of_now() -> None:
    image = image_of(None)
    view = ImageTopics(image)
    before, generation = view.shape("orders"), view.generation
    image.put_topic(topic_of(5, 1))
    after = view.shape("orders")
    assert before is not None
    assert after is not None
    assert (before.partitions, after.partitions) == (2, 5)
    assert view.generation != generation
    image.drop_topic("orders")
    assert view.shape("orders") is None


def test_groups_that_retention_waits_for_are_those_that_topics_name() -> None:
    image = image_of(None)
    view = ImageTopics(image)
    assert list(view.awaited_groups()) == []
    image.put_topic(topic_of(2, 1, retention_hold_group=" archive "))
    assert list(view.awaited_groups()) == ["archive"]
    image.put_topic(topic_of(2, 1, retention_hold_group=""))
    assert list(view.awaited_groups()) == []
