"""Groups of the consumer protocol (KIP-848) as administrators see them, and their way from one protocol to another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.clients.group_readers import Group, committed, send
from tests.clients.steps import wait_until
from tests.clients.wire import Wire

CONSUMER, CLASSIC = ConsumerGroupType.CONSUMER, ConsumerGroupType.CLASSIC


def kind_of(admin: AdminClient, group: str) -> ConsumerGroupType | None:
    listed = admin.list_consumer_groups(request_timeout=20).result(20).valid
    return next((each.type for each in listed if each.group_id == group), None)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_reads(
    home: str, group: Group, topic_of: Callable[[int], str], manager: AdminClient, strategy: str
) -> None:
    """One member after the other is replaced by one of the other protocol; nothing is lost or read twice."""
    topic = topic_of(6)
    classic = [group.join_classic(topic, partition_assignment_strategy=strategy) for _ in range(2)]
    group.settles(3, 3)
    send(home, topic, 60, 6)
    assert kind_of(manager, group.name) is CLASSIC
    modern = [group.join(topic)]
    group.settles(2, 2, 2)
    assert kind_of(manager, group.name) is CONSUMER
    send(home, topic, 60, 6)
    group.leave(classic.pop())
    group.settles(3, 3)
    modern.append(group.join(topic))
    group.leave(classic.pop())
    group.settles(3, 3)
    send(home, topic, 60, 6)
    classic = [group.join_classic(topic, partition_assignment_strategy=strategy)]
    group.settles(2, 2, 2)
    assert kind_of(manager, group.name) is CONSUMER
    for member in modern:
        group.leave(member)
    group.settles(6)
    assert kind_of(manager, group.name) is CLASSIC
    send(home, topic, 60, 6)
    wait_until(lambda: len(group.everything_read()) == 240)
    assert set(group.everything_read().values()) == {1}
    assert group.ledger.clashes == []


def test_a_group_has_settings_of_its_own_which_count_from_the_next_heartbeat_on(
    home: str, group: Group, topic_of: Callable[[int], str], manager: AdminClient
) -> None:
    topic = topic_of(1)
    resource = ConfigResource(ResourceType.GROUP, group.name)

    def interval() -> ConfigEntry:
        return manager.describe_configs([resource])[resource].result(20)["consumer.heartbeat.interval.ms"]

    def told_interval_ms() -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.name, member_id="me", rebalance_timeout_ms=1000, subscribed_topic_names=[topic],
            topic_partitions=[],
        )  # fmt: skip
        with Wire(home) as wire:
            answer = wire.ask(request)
        assert answer.error_code == 0, answer.error_message
        return answer.heartbeat_interval_ms

    group.join(topic)
    group.settles(1)
    assert (interval().value, told_interval_ms()) == ("200", 200)
    change = ConfigEntry("consumer.heartbeat.interval.ms", "300", incremental_operation=AlterConfigOpType.SET)
    manager.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group.name, incremental_configs=[change])])[
        resource
    ].result(20)
    assert (interval().value, told_interval_ms()) == ("300", 300)


def test_groups_are_listed_by_their_type_and_state(
    group: Group, topic_of: Callable[[int], str], manager: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = topic_of(1)
    group.join(topic)
    group.settles(1)
    with closing(Group(group.bootstrap, unique("classic"))) as other:
        other.join_classic(topic)
        other.settles(1)

        def listed(**filters: Any) -> set[str]:
            found = manager.list_consumer_groups(request_timeout=20, **filters).result(20)
            assert not found.errors
            return {each.group_id for each in found.valid} & {group.name, other.name}

        assert listed() == {group.name, other.name}
        assert listed(types={CONSUMER}) == {group.name}
        assert listed(types={CLASSIC}) == {other.name}
        wait_until(lambda: listed(states={ConsumerGroupState.STABLE}) == {group.name, other.name})
        assert listed(types={CONSUMER}, states={ConsumerGroupState.EMPTY}) == set()


def test_a_group_is_described_with_its_members_and_what_they_own(
    group: Group, topic_of: Callable[[int], str], manager: AdminClient
) -> None:
    topic = topic_of(4)
    members = [group.join(topic, group_instance_id=name, client_id=f"app-{name}") for name in ("a", "b")]
    group.settles(2, 2)

    def described() -> Any:
        return manager.describe_consumer_groups([group.name], include_authorized_operations=True)[group.name].result(20)

    wait_until(lambda: described().state is ConsumerGroupState.STABLE)
    found = described()
    assert found.type is CONSUMER
    assert found.authorized_operations
    owned = {
        member.group_instance_id: {(p.topic, p.partition) for p in member.assignment.topic_partitions}
        for member in found.members
    }
    assert owned == {"a": members[0].owned, "b": members[1].owned}
    for member in found.members:
        target = {(p.topic, p.partition) for p in member.target_assignment.topic_partitions}
        assert target == owned[member.group_instance_id]
        assert member.client_id == f"app-{member.group_instance_id}"
        assert "127.0.0.1" in member.host


def test_offsets_of_an_empty_group_are_moved_and_the_group_is_deleted(
    home: str, group: Group, topic_of: Callable[[int], str], manager: AdminClient
) -> None:
    topic = topic_of(1)
    send(home, topic, 10, 1)
    member = group.join(topic)
    wait_until(lambda: len(member.read) == 10)
    moved = ConsumerGroupTopicPartitions(group.name, [TopicPartition(topic, 0, 4)])
    (place,) = manager.alter_consumer_group_offsets([moved])[group.name].result(20).topic_partitions
    assert place.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaException) as refused:
        manager.delete_consumer_groups([group.name])[group.name].result(20)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    group.leave(member)
    assert committed(manager, group.name) == {(topic, 0): 10}
    manager.alter_consumer_group_offsets([moved])[group.name].result(20)
    assert committed(manager, group.name) == {(topic, 0): 4}
    again = group.join(topic)
    wait_until(lambda: len(again.read) == 6)
    group.leave(again)
    manager.delete_consumer_groups([group.name])[group.name].result(20)
    assert kind_of(manager, group.name) is None
