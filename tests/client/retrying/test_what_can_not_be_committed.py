"""Hand-overs and reads that fail cost no message: not in the run that ends with them, nor in work that goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from penstock.client import Queue, QueueEmpty, Retry
from penstock.client.consumer import Consumer
from penstock.client.errors import MessageTooLarge, NotAuthorized, PenstockError, ProducerFenced
from penstock.client.message import Message
from penstock.client.retrying.parking import Transactional
from penstock.testing.broker import PenstockBroker
from tests.client.retrying.conftest import committed

MESSAGES, BAD = 5, 2
LARGE = b"x" * 5_000
SOON_S, WAIT_S = 0.2, 5.0


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker: PenstockBroker, unique: Callable[[str], str]) -> Iterator[str]:
    name = unique("orders")
    broker.topic(name)
    broker.produce(name, *[LARGE if number == BAD else b"%d" % number for number in range(MESSAGES)])
    yield name
    broker.clear_faults()


def lay_down_the_bad_one(broker: PenstockBroker, topic: str, group: str, dead_letter: bool | str = True) -> list[int]:
    """Offsets in the order of the calls. Ends when each was called, and closes the consumer."""
    calls: list[int] = []
    with Consumer(broker.bootstrap, group, topic, delivery="exactly-once") as consumer:

        @consumer.handler(dead_letter=dead_letter)
        def handle(message: Message[bytes, bytes]) -> None:
            calls.append(message.offset)
            if message.offset == MESSAGES - 1:
                consumer.stop()
            if message.offset == BAD:
                raise ValueError("bad")

        consumer.run()
    return calls


# ---- in transactions


@pytest.mark.parametrize("refused", ["TxnOffsetCommit", "InitProducerId"])
def test_what_can_not_be_handed_over_stays_uncommitted_when_the_consumer_closes(
    broker: PenstockBroker, topic: str, group: str, refused: str
) -> None:
    error = "GROUP" if refused == "TxnOffsetCommit" else "TRANSACTIONAL_ID"
    broker.fail_next(refused, f"{error}_AUTHORIZATION_FAILED", times=100)
    with pytest.raises(NotAuthorized):
        lay_down_the_bad_one(broker, topic, group)
    assert committed(broker.bootstrap, group, topic) == [(BAD, "")], "and nobody takes it for a death"
    broker.clear_faults()
    assert lay_down_the_bad_one(broker, topic, group) == list(range(BAD, MESSAGES))
    assert [letter.value for letter in broker.messages(f"{topic}.{group}.dlq")] == [LARGE]
    assert committed(broker.bootstrap, group, topic) == [(MESSAGES, "")]


def test_a_copy_that_its_topic_does_not_take_stays_where_it_was_and_leaves_no_transaction_open(
    broker: PenstockBroker, topic: str, group: str, unique: Callable[[str], str]
) -> None:
    small = unique("small")
    broker.topic(small, max_message_bytes=1_000)
    with pytest.raises(MessageTooLarge, match="stays where it was"):
        lay_down_the_bad_one(broker, topic, group, small)
    assert committed(broker.bootstrap, group, topic) == [(BAD, "")], "which nobody is told while one is open"
    assert broker.messages(small) == []


def test_a_position_does_not_come_back_before_copies_that_may_be_committed(
    broker: PenstockBroker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the answer to the end of a transaction is lost, and the broker with it."""
    commit, commits = Transactional.commit, []

    def committed_unheard(self: Transactional, consumer: KafkaConsumer, offsets: list[TopicPartition]) -> None:
        if not commits:
            commit(self, consumer, offsets)
        commits.append(offsets)
        self.is_in_doubt = True
        raise ProducerFenced("nobody knows.", "Start again.")

    monkeypatch.setattr(Transactional, "commit", committed_unheard)
    with pytest.raises(PenstockError, match="nobody knows"):
        lay_down_the_bad_one(broker, topic, group)
    [(position, _)] = committed(broker.bootstrap, group, topic)
    assert position == MESSAGES
    assert len(broker.messages(f"{topic}.{group}.dlq")) == 1


# ---- in a queue, whose worker goes on after an error


@pytest.fixture
def jobs(broker: PenstockBroker, unique: Callable[[str], str]) -> Iterator[str]:
    name = unique("jobs")
    broker.topic(name)
    yield name
    broker.clear_faults()


def work_off(queue: Queue, wanted: int) -> tuple[list[int], list[PenstockError]]:
    """Until so many jobs are done, or none comes; with the errors of `get`."""
    done: list[int] = []
    errors: list[PenstockError] = []
    while len(done) < wanted:
        try:
            with queue.get(timeout=WAIT_S) as job:
                done.append(job.value)
        except QueueEmpty:
            break
        except PenstockError as error:
            errors.append(error)
    return done, errors


def test_jobs_that_were_read_before_a_mark_was_refused_are_done(broker: PenstockBroker, jobs: str) -> None:
    broker.produce(jobs, *[b"%d" % number for number in range(3)])
    with Queue(jobs, broker.bootstrap, retry=Retry(attempts=2)) as queue:
        broker.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=2)
        done, errors = work_off(queue, 3)
        assert committed(broker.bootstrap, jobs, jobs)[0][1], "nothing is handed out before the mark is there"
    assert done == [0, 1, 2]
    assert [type(error) for error in errors] == [NotAuthorized] * 2
    assert committed(broker.bootstrap, jobs, jobs) == [(3, "")]


def test_jobs_that_were_read_together_with_an_error_are_done(broker: PenstockBroker, jobs: str) -> None:
    broker.produce(jobs, b"0")
    patience = {"fetch.error.backoff.ms": 10, "fetch.wait.max.ms": 50}
    with Queue(jobs, broker.bootstrap, retry=Retry(attempts=2), consumer_settings=patience) as queue:
        assert work_off(queue, 1) == ([0], [])
        broker.produce(jobs, b"1", b"2")
        time.sleep(SOON_S)  # librdkafka has them
        broker.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=jobs)
        time.sleep(SOON_S)  # and this behind them
        broker.produce(jobs, b"3")
        done, errors = work_off(queue, 3)
    assert done == [1, 2, 3]
    assert [type(error) for error in errors] == [NotAuthorized]
