"""Groups of the consumer protocol (KIP-848), through librdkafka: the broker assigns, members follow."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.brokers import BrokerProcess
from tests.clients.group_readers import QUICK, Group, penstock, send
from tests.clients.steps import create_topic, wait_until

REPOSITORY = Path(__file__).parents[2]


def test_members_come_and_go_and_every_partition_has_one_reader(group: Group, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(12)
    first = group.join(topic)
    group.settles(12)
    for shares in ((6, 6), (4, 4, 4), (3, 3, 3, 3), (2, 2, 2, 3, 3)):
        group.join(topic)
        group.settles(*shares)
    group.leave(first)
    group.settles(3, 3, 3, 3)


def test_messages_are_read_once_while_members_come_and_go(
    home: str, group: Group, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(6)
    first = group.join(topic)
    send(home, topic, 60, 6)
    second = group.join(topic)
    group.settles(3, 3)
    send(home, topic, 60, 6)
    group.leave(first)
    group.settles(6)
    send(home, topic, 60, 6)
    group.join(topic)
    group.settles(3, 3)
    wait_until(lambda: len(group.everything_read()) == 180)
    assert set(group.everything_read().values()) == {1}
    assert second.error is None


def test_a_member_that_dies_is_replaced_after_its_session(group: Group, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(4)
    survivor = group.join(topic)
    group.settles(4)
    script = (
        "import sys, confluent_kafka\n"
        "consumer = confluent_kafka.Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],"
        " 'group.protocol': 'consumer', 'log_level': 0})\n"
        "consumer.subscribe([sys.argv[3]])\n"
        "for _ in range(600):\n"
        "    consumer.poll(0.1)\n"
        "    print(len(consumer.assignment()), flush=True)\n"
    )
    command = [sys.executable, "-c", script, group.bootstrap, group.name, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as victim:
        assert victim.stdout is not None
        assert any(line == "2\n" for line in victim.stdout)
        group.settles(2)
        victim.kill()
        began = time.monotonic()
    group.settles(4)
    assert time.monotonic() - began > 2
    assert len(survivor.owned) == 4


def test_a_static_member_that_returns_finds_its_partitions_untouched(
    group: Group, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(4)
    first = group.join(topic, group_instance_id="one")
    second = group.join(topic, group_instance_id="two")
    group.settles(2, 2)
    had, kept = first.owned, second.owned
    group.leave(first)
    time.sleep(1)
    assert second.owned == kept
    again = group.join(topic, group_instance_id="one")
    group.settles(2, 2)
    assert (again.owned, second.owned) == (had, kept)


def test_two_members_of_one_instance_id_are_not_served_both(group: Group, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(2)
    first = group.join(topic, group_instance_id="one")
    group.settles(2)
    second = group.join(topic, group_instance_id="one")
    wait_until(lambda: second.error is not None or first.error is not None)
    refused = second if second.error is not None else first
    assert refused.error is not None
    assert refused.error.code() in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


@pytest.mark.parametrize(
    ("assignor", "expected"), [("range", [{0, 1}, {2, 3}]), ("uniform", None)], ids=["range", "uniform"]
)
def test_a_group_is_assigned_as_it_asks(
    group: Group, topic_of: Callable[[int], str], manager: AdminClient, assignor: str, expected: list[set[int]] | None
) -> None:
    topics = [topic_of(4), topic_of(4)]
    members = [group.join(*topics, group_remote_assignor=assignor) for _ in range(2)]
    group.settles(4, 4)
    described = manager.describe_consumer_groups([group.name])[group.name].result(20)
    assert described.partition_assignor == assignor
    if expected:
        for topic in topics:
            shares = [{index for name, index in member.owned if name == topic} for member in members]
            assert sorted(shares, key=min) == expected


def test_an_assignor_that_does_not_exist_is_refused(group: Group, topic_of: Callable[[int], str]) -> None:
    member = group.join(topic_of(1), group_remote_assignor="astrology")
    wait_until(lambda: member.error is not None)
    assert member.error is not None
    assert member.error.code() in (KafkaError.UNSUPPORTED_ASSIGNOR, KafkaError._FATAL)


def test_a_pattern_finds_topics_that_are_and_topics_that_will_be(
    home: str, group: Group, unique: Callable[[str], str]
) -> None:
    prefix = unique("metrics")
    create_topic(home, f"{prefix}-cpu", 2)
    create_topic(home, f"other-{prefix}-cpu", 2)
    member = group.join(f"^{prefix}-.*")
    group.settles(2)
    create_topic(home, f"{prefix}-disk", 3)
    group.settles(5)
    assert {name for name, _ in member.owned} == {f"{prefix}-cpu", f"{prefix}-disk"}


def test_a_pattern_that_re2_does_not_have_is_refused(group: Group) -> None:
    member = group.join(r"^(a)\1")  # librdkafka has back-references, and lets it through
    wait_until(lambda: member.error is not None)
    assert member.error is not None
    assert member.error.code() in (KafkaError.INVALID_REGULAR_EXPRESSION, KafkaError._FATAL)


def test_new_partitions_are_picked_up(group: Group, topic_of: Callable[[int], str], manager: AdminClient) -> None:
    topic = topic_of(2)
    group.join(topic)
    group.join(topic)
    group.settles(1, 1)
    manager.create_partitions([NewPartitions(topic, 6)])[topic].result(20)
    group.settles(3, 3)


def test_a_topic_that_is_made_after_the_subscription_is_picked_up(
    home: str, group: Group, unique: Callable[[str], str]
) -> None:
    name = unique("later")
    group.join(name, allow_auto_create_topics=False)
    time.sleep(0.5)
    create_topic(home, name, 2)
    group.settles(2)


def test_a_group_goes_on_where_it_committed_and_shows_its_lag(
    home: str, group: Group, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(2)
    send(home, topic, 10, 2)
    first = group.join(topic)
    wait_until(lambda: len(first.read) == 10)
    document = penstock(home, "group", "describe", group.name)
    assert (document["type"], document["state"], document["assignor"]) == ("consumer", "stable", "uniform")
    (member,) = document["members"]
    assert member["state"] == "stable"
    assert member["epoch"] == document["epoch"] == document["assignment_epoch"]
    assert member["assignment"] == member["target"]
    assert len(member["assignment"]) == 2
    group.leave(first)
    send(home, topic, 6, 2)
    assert penstock(home, "group", "describe", group.name)["lag"] == 6
    second = group.join(topic)
    wait_until(lambda: len(second.read) == 6)
    assert set(group.everything_read().values()) == {1}


def test_a_group_outlives_its_broker(new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]) -> None:
    broker = new_broker(**QUICK)
    topic = create_topic(broker.bootstrap, unique("topic"), 4)
    with closing(Group(broker.bootstrap, unique("group"))) as group:
        members = [group.join(topic) for _ in range(2)]
        group.settles(2, 2)
        had = [member.owned for member in members]
        before = penstock(broker.bootstrap, "group", "describe", group.name)
        send(broker.bootstrap, topic, 20, 4)
        wait_until(lambda: len(group.everything_read()) == 20)
        broker.kill()
        broker.start()
        send(broker.bootstrap, topic, 20, 4)
        wait_until(lambda: len(group.everything_read()) == 40)
        after = penstock(broker.bootstrap, "group", "describe", group.name)
        assert after["epoch"] == before["epoch"], "nobody had to rebalance"
        assert [member.owned for member in members] == had
        group.join(topic)
        group.settles(1, 1, 2)
        assert set(group.everything_read().values()) == {1}
