"""Whoever commits, seeks or gives back in the midst of a batch: the group stands where the program said, not behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from penstock.client import AsyncQueue, Consumer, DeserializationError, MessageTooLarge, Producer, Queue, QueueStopped
from tests.client.conftest import MakeTopic

Unique = Callable[[str], str]
WAIT_S = 20.0


class Fails(Exception):
    pass


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=number % partitions)


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    """As it is stored, without becoming a member."""
    asker = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = asker.committed([TopicPartition(topic, each) for each in range(partitions)], WAIT_S)
    finally:
        asker.close()
    return [each.offset for each in found]


def test_a_commit_in_the_loop_does_not_count_the_next_message(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic, 6)

    def fail_at_2() -> None:
        with Consumer[bytes, str](bootstrap, group, topic, value="text") as consumer:
            for message in consumer:
                if message.value == "2":
                    raise Fails
                consumer.commit()

    with pytest.raises(Fails):
        fail_at_2()
    assert committed(bootstrap, group, topic) == [2]


def test_a_commit_at_most_once_never_goes_back(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic, 6)
    with Consumer(bootstrap, group, topic, delivery="at-most-once") as consumer:
        for message in consumer.messages(3, WAIT_S):
            if message.offset == 1:
                consumer.commit()
    assert committed(bootstrap, group, topic) == [6]


@pytest.mark.parametrize("handles", [False, True])
def test_no_more_is_processed_than_was_said_before_a_commit(
    bootstrap: str, make_topic: MakeTopic, unique: Unique, monkeypatch: pytest.MonkeyPatch, handles: bool
) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic, 30)
    sent: list[int] = []
    with Consumer(bootstrap, group, topic, commit_every=100, commit_interval_s=60) as consumer:
        committer = consumer.reader.commits.committer
        later = committer.later

        def note(offsets: list[TopicPartition]) -> bool:
            sent.extend(each.offset for each in offsets)
            return later(offsets)

        monkeypatch.setattr(committer, "later", note)

        def handle(message: object) -> None:
            nonlocal seen
            seen += 1
            if seen == 30:
                fill(bootstrap, topic, 420)
            if seen % 50 == 0:
                time.sleep(0.02)  # for the answer to the last one
            if seen == 450:
                consumer.stop()

        seen = 0
        consumer.handler(handle)
        if handles:
            consumer.run()
        else:
            for message in consumer:
                handle(message)
    assert sent == [100, 200, 300, 400]


def test_asking_for_the_lag_takes_nothing(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic, 6)
    with Consumer(bootstrap, group, topic, delivery="at-most-once") as consumer:
        assert consumer.lag == 6
    with Consumer(bootstrap, group, topic, delivery="at-most-once") as consumer:
        assert [message.offset for message in consumer.messages(6, WAIT_S)] == [*range(6)]


def test_a_seek_back_is_where_the_group_stands(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic, 8)

    def go_back_and_fail() -> None:
        seen = set()
        with Consumer(bootstrap, group, topic) as consumer:
            for message in consumer:
                if message.offset in seen:
                    raise Fails
                seen.add(message.offset)
                if message.offset == 5:
                    consumer.seek(topic, 0, 2)

    with pytest.raises(Fails):
        go_back_and_fail()
    assert committed(bootstrap, group, topic) == [2]


def test_a_job_that_was_given_back_is_not_done_by_another_that_is(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    """The worker dies later on, without a word."""
    topic, group = make_topic(partitions=2), unique("group")
    fill(bootstrap, topic, 6, partitions=2)
    queue = Queue(topic, bootstrap, group=group)
    failed = queue.take(WAIT_S)
    queue.fail(failed, Fails())
    while (job := queue.take(WAIT_S)).partition == failed.partition:
        queue.fail(job, Fails())
    queue.acknowledge()
    deadline_s = time.monotonic() + WAIT_S
    while (stored := committed(bootstrap, group, topic, 2))[job.partition] != job.offset + 1:
        assert time.monotonic() < deadline_s
    queue.close()
    assert stored[failed.partition] <= failed.offset


def test_what_will_never_be_written_is_not_to_be_tried_again(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    source, target = make_topic(), make_topic(max_message_bytes="2000")
    fill(bootstrap, source, 1)
    with (
        Producer(bootstrap, delivery="exactly-once") as producer,
        Consumer(bootstrap, unique("group"), source, delivery="exactly-once") as consumer,
    ):

        def send_too_much() -> None:
            with consumer.transaction(producer) as transaction:
                for _ in transaction.messages(1, WAIT_S):
                    transaction.send(target, random.randbytes(10_000))

        with pytest.raises(MessageTooLarge):
            send_too_much()


def test_a_message_that_can_not_be_read_is_passed_within_the_block(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    source, dead, group = make_topic(), make_topic(), unique("group")
    with Producer(bootstrap) as filling:
        filling.send(source, b"\xff")
        filling.send(source, b"well")
    with (
        Producer(bootstrap, delivery="exactly-once") as producer,
        Consumer[bytes, str](bootstrap, group, source, delivery="exactly-once", value="text") as consumer,
        consumer.transaction(producer) as transaction,
    ):
        try:
            list(transaction.messages(2, WAIT_S))
        except DeserializationError as poison:
            transaction.send(dead, poison.message.raw_value)
        assert [message.value for message in transaction.messages(1, WAIT_S)] == ["well"]
    assert committed(bootstrap, group, source)[0] >= 2
    with Consumer(bootstrap, unique("group"), dead) as reader:
        assert [message.value for message in reader.messages(1, WAIT_S)] == [b"\xff"]


def test_who_polls_commits_in_time_and_behind_as_many_messages_as_told(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 60)
    for options in ({"commit_interval_s": 0.1}, {"commit_every": 5, "commit_interval_s": 60}):
        group = unique("group")
        with Consumer(bootstrap, group, topic, **options) as consumer:
            deadline_s = time.monotonic() + WAIT_S
            for _ in range(40):
                assert consumer.poll(WAIT_S) is not None
                time.sleep(0.01)
            while committed(bootstrap, group, topic)[0] < 5:
                assert time.monotonic() < deadline_s, options


def test_a_callback_that_fails_takes_nobody_with_it(bootstrap: str, make_topic: MakeTopic) -> None:
    topic, called = make_topic(), threading.Event()
    with Producer(bootstrap) as producer:
        producer.send(topic, "a").add_done_callback(lambda _: [][0])
        time.sleep(0.1)
        producer.send(topic, "b").add_done_callback(lambda _: called.set())
        assert called.wait(WAIT_S)


async def test_a_queue_is_closed_though_a_task_waits_for_a_job(bootstrap: str, make_topic: MakeTopic) -> None:
    queue = AsyncQueue(make_topic(), bootstrap)

    async def wait_for_a_job() -> str:
        try:
            async with queue.get():
                return "a job"
        except QueueStopped:
            return "stopped"

    waiting = asyncio.create_task(wait_for_a_job())
    await asyncio.sleep(0.3)
    await asyncio.wait_for(queue.close(), WAIT_S)
    assert await waiting == "stopped"


def test_a_signal_is_for_every_loop_and_stop_for_one(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 6)
    with Consumer(bootstrap, unique("group"), topic) as consumer:
        for _ in consumer.messages(1, WAIT_S):
            consumer.stop()
        assert len(list(consumer.messages(1, WAIT_S))) == 1
        for _ in consumer.messages(1, WAIT_S):
            os.kill(os.getpid(), signal.SIGTERM)
        assert list(consumer.messages(1, WAIT_S)) == []
        assert consumer.stopping
