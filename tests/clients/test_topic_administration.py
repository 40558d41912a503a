"""Topics as an administrator makes, sees, grows and removes them, with confluent-kafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Outgoing, Refused, read_all, send_all
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire

CONFLUENT = CLIENTS["confluent"]


def code_of(failure: pytest.ExceptionInfo[KafkaException]) -> int:
    return failure.value.args[0].code()


def create(admin: AdminClient, topic: NewTopic, **options: object) -> None:
    (answer,) = admin.create_topics([topic], **options).values()
    answer.result(20)


def names(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=20).topics)


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: topic not in names(admin))


def offset(admin: AdminClient, topic: str, spec: OffsetSpec, partition: int = 0) -> int:
    (answer,) = admin.list_offsets({TopicPartition(topic, partition): spec}).values()
    return answer.result(20).offset


# ---- making


def test_a_new_topic_has_the_partitions_and_settings_asked_for(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic(partitions=3, retention_ms=3_600_000)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    assert described.name == topic
    assert not described.is_internal
    assert [p.id for p in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader.id == 1
        assert [node.id for node in partition.replicas] == [node.id for node in partition.isr] == [1]


def test_a_topic_that_asks_for_no_number_gets_the_broker_s(admin: AdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("default")
    create(admin, NewTopic(topic))
    wait_until(lambda: topic in names(admin))
    assert len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == 1


def test_a_topic_may_say_which_broker_holds_which_partition(admin: AdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("assigned")
    create(admin, NewTopic(topic, 2, replica_assignment=[[1], [1]]))
    wait_until(lambda: topic in names(admin))
    assert len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == 2


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (NewTopic("wrong", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("wrong", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("wrong", 1, replica_assignment=[[77]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("wrong/name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("wrong", 1, 1, config={"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("wrong", 1, 1, config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("wrong", 1, 1, config={"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("wrong", 1, 1, config={"min.cleanable.dirty.ratio": "1.5"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("wrong", 1, 1, config={"compression.type": "rar"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("wrong", 1, 1, config={"message.timestamp.type": "Tuesday"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("wrong", 1, 1, config={"segment.bytes": "10"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(admin: AdminClient, wrong: NewTopic, code: ErrorCode) -> None:
    with pytest.raises(KafkaException) as failure:
        create(admin, wrong)
    assert code_of(failure) == code
    assert wrong.topic not in names(admin)


def test_a_topic_that_exists_is_not_made_again(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    with pytest.raises(KafkaException) as failure:
        create(admin, NewTopic(topic, 1, 1))
    assert code_of(failure) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_names_that_differ_only_in_dots_and_underscores_collide(
    admin: AdminClient, unique: Callable[[str], str], bootstrap: str
) -> None:
    name = unique("collide")
    create_topic(bootstrap, f"{name}.x")
    with pytest.raises(KafkaException) as failure:
        create(admin, NewTopic(f"{name}_x", 1, 1))
    assert code_of(failure) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_of_several_topics_each_gets_an_answer_of_its_own(admin: AdminClient, unique: Callable[[str], str]) -> None:
    good, bad = unique("good"), unique("bad")
    answers = admin.create_topics([NewTopic(good, 1, 1), NewTopic(bad, 1, 9)])
    answers[good].result(20)
    with pytest.raises(KafkaException) as failure:
        answers[bad].result(20)
    assert code_of(failure) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_dry_run_makes_nothing(admin: AdminClient, unique: Callable[[str], str], new_topic: Topics) -> None:
    topic = unique("dry")
    create(admin, NewTopic(topic, 2, 1), validate_only=True)
    with pytest.raises(KafkaException):
        create(admin, NewTopic(topic, 2, 5), validate_only=True)
    assert topic not in names(admin)
    there = new_topic(partitions=2)
    admin.create_partitions([NewPartitions(there, 5)], validate_only=True)[there].result(20)
    assert len(admin.list_topics(there, timeout=20).topics[there].partitions) == 2


# ---- growing


def test_a_topic_grows(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    wait_until(lambda: len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == 4)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"x", partition=3)])
    assert [m.value for m in read_all(CONFLUENT, bootstrap, topic, 1, partitions=[3])] == [b"x"]


@pytest.mark.parametrize(("wanted", "code"), [(1, ErrorCode.INVALID_PARTITIONS), (2, ErrorCode.INVALID_PARTITIONS)])
def test_a_topic_never_shrinks(admin: AdminClient, new_topic: Topics, wanted: int, code: ErrorCode) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(KafkaException) as failure:
        admin.create_partitions([NewPartitions(topic, wanted)])[topic].result(20)
    assert code_of(failure) == code


def test_a_topic_that_is_not_there_does_not_grow(admin: AdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("nowhere")
    with pytest.raises(KafkaException) as failure:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    assert code_of(failure) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- removing


def test_a_deleted_topic_is_gone(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"x"])
    delete(admin, topic)
    with pytest.raises(KafkaException) as failure:
        admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    assert code_of(failure) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaException) as failure:
        admin.delete_topics([topic])[topic].result(20)
    assert code_of(failure) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_again_is_empty_and_is_another_one(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"old"] * 5)
    first = admin.describe_topics(TopicCollection([topic]))[topic].result(20).topic_id
    delete(admin, topic)
    create_topic(bootstrap, topic, 2)
    second = admin.describe_topics(TopicCollection([topic]))[topic].result(20).topic_id
    assert str(first) != str(second)
    assert offset(admin, topic, OffsetSpec.latest()) == 0
    assert send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"new", partition=0)])[0].offset == 0
    assert [m.value for m in read_all(CONFLUENT, bootstrap, topic, 1)] == [b"new"]


def test_a_producer_goes_on_with_a_topic_that_was_made_again(
    admin: AdminClient, new_topic: Topics, bootstrap: str
) -> None:
    topic = new_topic()
    producer = CONFLUENT.producer(bootstrap, **{"topic.metadata.refresh.interval.ms": 100})
    producer.send(topic, Outgoing(b"old"))
    producer.finish()
    admin.delete_topics([topic])[topic].result(20)
    try:
        create_topic(bootstrap, topic)
    except KafkaException as failure:
        if failure.args[0].code() != ErrorCode.TOPIC_ALREADY_EXISTS:  # the producer has asked for it, and so made it
            raise

    def accepted() -> bool:
        try:
            producer.send(topic, Outgoing(b"new"))
            producer.finish()
        except Refused:
            return False
        return True

    wait_until(accepted)
    producer.close()
    wait_until(lambda: offset(admin, topic, OffsetSpec.latest()) >= 1)


# ---- cutting


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic(partitions=2)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, partition=0) for n in range(10)])
    (answer,) = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    assert answer.result(20).low_watermark == 6
    assert offset(admin, topic, OffsetSpec.earliest()) == 6
    assert offset(admin, topic, OffsetSpec.latest()) == 10
    assert [m.offset for m in read_all(CONFLUENT, bootstrap, topic, 4)] == [6, 7, 8, 9]
    (answer,) = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    assert answer.result(20).low_watermark == 10
    assert offset(admin, topic, OffsetSpec.earliest()) == 10
    assert send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"next", partition=0)])[0].offset == 10


def test_records_that_are_not_there_are_not_deleted(
    wire: Wire, admin: AdminClient, new_topic: Topics, bootstrap: str
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"x"] * 10)
    (answer,) = admin.delete_records([TopicPartition(topic, 0, 11)]).values()
    with pytest.raises(KafkaException) as failure:
        answer.result(20)
    assert code_of(failure) == ErrorCode.OFFSET_OUT_OF_RANGE
    # A client looks for the partition's leader first, and would not ask this.
    missing = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=7, offset=1)])
    answered = wire.ask(DeleteRecordsRequest(topics=[missing], timeout_ms=1000)).topics[0].partitions[0]
    assert answered.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_compacted_topics_are_not_cut(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic(cleanup_policy="compact")
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"v", b"k")])
    (answer,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    with pytest.raises(KafkaException) as failure:
        answer.result(20)
    assert code_of(failure) == ErrorCode.POLICY_VIOLATION


# ---- looking


def test_offsets_are_listed_by_place_and_by_time(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    start = 1_700_000_000_000
    stamps = [start, start + 5_000, start + 9_000, start + 2_000]
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"x", timestamp_ms=stamp) for stamp in stamps])
    assert offset(admin, topic, OffsetSpec.earliest()) == 0
    assert offset(admin, topic, OffsetSpec.latest()) == 4
    assert offset(admin, topic, OffsetSpec.max_timestamp()) == 2
    assert offset(admin, topic, OffsetSpec.for_timestamp(start + 1)) == 1
    assert offset(admin, topic, OffsetSpec.for_timestamp(start + 6_000)) == 2
    assert offset(admin, topic, OffsetSpec.for_timestamp(start + 60_000)) == -1


def test_an_empty_partition_has_offsets_too(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    assert offset(admin, topic, OffsetSpec.earliest()) == 0
    assert offset(admin, topic, OffsetSpec.latest()) == 0
    assert offset(admin, topic, OffsetSpec.max_timestamp()) == -1
    assert offset(admin, topic, OffsetSpec.for_timestamp(int(time.time() * 1000))) == -1


def test_the_last_stable_offset_is_the_end_where_there_are_no_transactions(
    admin: AdminClient, new_topic: Topics, bootstrap: str
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"x"] * 3)
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
    (answer,) = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED).values()
    assert answer.result(20).offset == 3


def test_the_cluster_describes_itself(admin: AdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster().result(20)
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [bootstrap]
    assert described.controller.id == described.nodes[0].id == 1
    assert len(described.cluster_id) == 22
    assert admin.list_topics(timeout=20).cluster_id == described.cluster_id


def test_a_topic_that_is_not_there_is_not_described(admin: AdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("nowhere")
    with pytest.raises(KafkaException) as failure:
        admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    assert code_of(failure) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in names(admin)
