"""Groups as an administrator sees and changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.structs import OffsetAndMetadata

from penstock.protocol.errors import ErrorCode
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Commit, send_all
from tests.clients.drivers.face import poll_until
from tests.clients.members import Member
from tests.clients.steps import wait_until

CONFLUENT = CLIENTS["confluent"]


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def other_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = CONFLUENT.consumer(bootstrap, group=group)
    consumer.assign((topic, 0))
    consumer.commit({(topic, 0): Commit(offset, "a note")})
    consumer.close()


def committed(admin: AdminClient, group: str, *partitions: TopicPartition) -> dict[tuple[str, int], int]:
    asked = ConsumerGroupTopicPartitions(group, list(partitions) or None)
    (found,) = admin.list_consumer_group_offsets([asked]).values()
    return {(p.topic, p.partition): p.offset for p in found.result(20).topic_partitions}


def code_of(failure: pytest.ExceptionInfo[KafkaException]) -> int:
    return failure.value.args[0].code()


def test_a_group_is_listed_with_its_state(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    topic = new_topic()

    def state() -> ConsumerGroupState | None:
        found = admin.list_consumer_groups(request_timeout=20).result(20)
        assert not found.errors
        return next((g.state for g in found.valid if g.group_id == group), None)

    assert state() is None
    with closing(Member(CONFLUENT, bootstrap, group, topic)):
        wait_until(lambda: state() is ConsumerGroupState.STABLE)
        listed = {g["group_id"]: g for g in other_admin.list_groups()}
        assert listed[group]["protocol_type"] == "consumer"
        assert listed[group]["group_state"] == "Stable"
        assert listed[group]["group_type"].lower() == "classic"
    wait_until(lambda: state() in (ConsumerGroupState.EMPTY, None))


def test_groups_are_listed_by_their_state(
    bootstrap: str, new_topic: Topics, group: str, other_admin: KafkaAdminClient
) -> None:
    topic = new_topic()
    commit(bootstrap, f"{group}-empty", topic, 1)
    with closing(Member(CONFLUENT, bootstrap, f"{group}-stable", topic)) as member:
        wait_until(lambda: member.owned)
        stable = {g["group_id"] for g in other_admin.list_groups(states_filter=["Stable"])}
        empty = {g["group_id"] for g in other_admin.list_groups(states_filter=["Empty"])}
    assert f"{group}-stable" in stable - empty
    assert f"{group}-empty" in empty - stable


def test_a_group_is_described_with_its_members_and_what_they_own(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    topic = new_topic(partitions=4)
    first, second = (
        Member(CONFLUENT, bootstrap, group, topic, instance=name, assignor="range", **{"client.id": f"app-{name}"})
        for name in ("a", "b")
    )
    with closing(first), closing(second):
        wait_until(lambda: len(first.owned) == len(second.owned) == 2)
        described = admin.describe_consumer_groups([group])[group].result(20)
        assert described.state is ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        assert described.coordinator.id == 1
        owned = {
            m.group_instance_id: {(p.topic, p.partition) for p in m.assignment.topic_partitions}
            for m in described.members
        }
        assert owned == {"a": first.owned, "b": second.owned}
        assert {m.client_id for m in described.members} == {"app-a", "app-b"}
        assert all("127.0.0.1" in m.host for m in described.members)
        as_seen_by_the_other = other_admin.describe_groups([group])[group]
        assert as_seen_by_the_other["group_state"] == "Stable"
        assert len(as_seen_by_the_other["members"]) == 2


def test_a_group_that_does_not_exist_is_dead(admin: AdminClient, other_admin: KafkaAdminClient, group: str) -> None:
    assert admin.describe_consumer_groups([group])[group].result(20).state is ConsumerGroupState.DEAD
    described = other_admin.describe_groups([group])[group]
    assert described["group_state"] == "Dead"
    assert "GroupIdNotFound" in described["error"]  # from DescribeGroups v6 on (KIP-1043)


def test_committed_offsets_are_shown(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    topic = new_topic(partitions=2)
    commit(bootstrap, group, topic, 17)
    assert committed(admin, group) == {(topic, 0): 17}
    assert committed(admin, group, TopicPartition(topic, 1)) == {(topic, 1): -1001}
    found = other_admin.list_group_offsets([group])[group]
    offset, note, _ = found[kafka.TopicPartition(topic, 0)]
    assert (offset, note.rstrip("\0")) == (17, "a note")  # confluent-kafka sends its strings' final NUL


def test_an_administrator_moves_an_empty_group(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"%d" % n for n in range(10)])
    commit(bootstrap, group, topic, 10)
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    (answer,) = admin.alter_consumer_group_offsets([moved]).values()
    assert not answer.result(20).topic_partitions[0].error
    consumer = CONFLUENT.consumer(bootstrap, group=group)
    consumer.subscribe(topic)
    assert [m.value for m in poll_until(consumer, 6)] == [b"%d" % n for n in range(4, 10)]
    consumer.close()


def test_a_group_with_members_is_not_moved(bootstrap: str, new_topic: Topics, group: str, admin: AdminClient) -> None:
    topic = new_topic()
    with closing(Member(CONFLUENT, bootstrap, group, topic)) as member:
        wait_until(lambda: member.owned)
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
        (answer,) = admin.alter_consumer_group_offsets([moved]).values()
        assert answer.result(20).topic_partitions[0].error.code() == ErrorCode.UNKNOWN_MEMBER_ID


def test_kafka_python_moves_a_group_too(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    topic = new_topic()
    other_admin.alter_group_offsets(group, {kafka.TopicPartition(topic, 0): OffsetAndMetadata(3, "moved", -1)})
    assert committed(admin, group) == {(topic, 0): 3}


def test_an_empty_group_is_deleted_with_its_offsets(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient
) -> None:
    topic = new_topic()
    commit(bootstrap, group, topic, 17)
    admin.delete_consumer_groups([group])[group].result(20)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(20).valid}
    assert committed(admin, group) == {}
    with pytest.raises(KafkaException) as failure:
        admin.delete_consumer_groups([group])[group].result(20)
    assert code_of(failure) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted(bootstrap: str, new_topic: Topics, group: str, admin: AdminClient) -> None:
    topic = new_topic()
    with closing(Member(CONFLUENT, bootstrap, group, topic)) as member:
        wait_until(lambda: member.owned)
        with pytest.raises(KafkaException) as failure:
            admin.delete_consumer_groups([group])[group].result(20)
        assert code_of(failure) == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_topic_nobody_reads_are_deleted(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    read, unread = new_topic(), new_topic()
    commit(bootstrap, group, unread, 5)
    commit(bootstrap, group, read, 6)
    with closing(Member(CONFLUENT, bootstrap, group, read)) as member:
        wait_until(lambda: member.owned)
        answers = other_admin.delete_group_offsets(
            group, [kafka.TopicPartition(unread, 0), kafka.TopicPartition(read, 0)]
        )
        errors = {partition.topic: getattr(error, "errno", 0) for partition, error in answers.items()}
        assert errors == {unread: 0, read: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert committed(admin, group) == {(read, 0): 6}


def test_a_member_is_removed_by_its_static_name(
    bootstrap: str, new_topic: Topics, group: str, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    topic = new_topic()
    member = Member(CONFLUENT, bootstrap, group, topic, instance="gone")
    wait_until(lambda: member.owned)
    member.stop()
    other_admin.remove_group_members(group, [MemberToRemove(group_instance_id="gone", reason="a test")])

    def members() -> int:
        return len(admin.describe_consumer_groups([group])[group].result(20).members)

    wait_until(lambda: members() == 0)
    member.consumer.close()
