"""Which offsets are stored, and that an old commit never has the last word."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client import Consumer, Producer
from penstock.client.commits import Commits
from penstock.client.errors import CommitFailed
from penstock.testing.broker import PenstockBroker

A, B = ("a", 0), ("a", 1)


class FakeKafka:
    """Notes what is committed; answers what waits with the next of `errors`."""

    def __init__(self) -> None:
        self.later: list[dict[tuple[str, int], int]] = []
        self.now: list[dict[tuple[str, int], int]] = []
        self.metadata: list[str | None] = []
        self.errors: list[int] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.metadata = [each.metadata for each in offsets]
        (self.later if asynchronous else self.now).append(
            {(each.topic, each.partition): each.offset for each in offsets}
        )
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return offsets


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def commits(kafka: FakeKafka) -> Commits:
    made: Any = Commits(interval_s=1.0, every=10)
    made.committer.kafka = kafka
    return made


def answer(commits: Commits, offsets: dict[tuple[str, int], int], error: KafkaError | None = None) -> None:
    commits.committer.answered(error, [TopicPartition(*place, offset) for place, offset in offsets.items()])


def test_only_what_is_new_is_committed(kafka: FakeKafka, commits: Commits) -> None:
    commits.later({A: 5, B: 7}, 0.0)
    answer(commits, {A: 5, B: 7})
    commits.later({A: 5, B: 7}, 1.0)
    commits.later({A: 6, B: 7}, 2.0)
    assert kafka.later == [{A: 5, B: 7}, {A: 6}]


def test_one_commit_at_a_time_is_under_way(kafka: FakeKafka, commits: Commits) -> None:
    commits.later({A: 5}, 0.0)
    commits.later({A: 6}, 1.0)
    assert kafka.later == [{A: 5}]
    answer(commits, {A: 5})
    commits.later({A: 7}, 2.0)
    assert kafka.later == [{A: 5}, {A: 7}]


def test_what_was_not_stored_is_committed_again(kafka: FakeKafka, commits: Commits) -> None:
    commits.later({A: 5}, 0.0)
    answer(commits, {A: 5}, KafkaError(KafkaError._TRANSPORT))
    commits.later({A: 5}, 1.0)
    assert kafka.later == [{A: 5}, {A: 5}]


def test_an_old_commit_that_is_answered_late_is_made_good(kafka: FakeKafka, commits: Commits) -> None:
    commits.later({A: 5}, 0.0)
    commits.now({A: 9})
    answer(commits, {A: 5})
    commits.later({A: 9}, 1.0)
    assert kafka.later == [{A: 5}, {A: 9}]


def test_a_commit_that_waits_is_tried_again_while_the_coordinator_moves(kafka: FakeKafka, commits: Commits) -> None:
    kafka.errors = [KafkaError.NOT_COORDINATOR]
    commits.now({A: 5})
    assert kafka.now == [{A: 5}, {A: 5}]


def test_a_commit_of_a_member_that_was_put_out_fails(kafka: FakeKafka, commits: Commits) -> None:
    kafka.errors = [KafkaError.ILLEGAL_GENERATION]
    with pytest.raises(CommitFailed, match="another member"):
        commits.now({A: 5})


def test_a_commit_to_a_group_that_has_ended_says_what_becomes_of_it(kafka: FakeKafka, commits: Commits) -> None:
    kafka.errors = [KafkaError.GROUP_ID_NOT_FOUND]
    with pytest.raises(CommitFailed, match=r"GROUP_ID_NOT_FOUND.*read again"):
        commits.now({A: 5})


def test_metadata_is_committed_though_the_offset_is_not_new(kafka: FakeKafka, commits: Commits) -> None:
    commits.now({A: 5})
    commits.now({A: 5}, {A: "note"})
    assert kafka.now == [{A: 5}, {A: 5}]
    assert kafka.metadata == ["note"]


def test_a_quick_reader_does_not_commit_all_the_time() -> None:
    """A commit costs as much as hundreds of messages: without a word about it, it is a matter of seconds."""
    with PenstockBroker() as broker, Producer(broker.bootstrap) as producer:
        broker.topic("topic", partitions=1)
        for number in range(5_000):
            producer.send("topic", b"%d" % number)
        producer.flush()
        with Consumer[bytes, bytes](broker.bootstrap, "group", "topic", commit_interval_s=60) as consumer:
            sent: list[object] = []
            commits = consumer.reader.commits
            commits.later = lambda *positions: sent.append(positions)  # type: ignore[method-assign]
            assert sum(1 for _ in consumer.messages(5_000, timeout=20)) == 5_000
            assert sent == []
        with Consumer[bytes, bytes](broker.bootstrap, "group", "topic") as consumer:
            assert consumer.lag == 0, "what was processed is committed in the end"
