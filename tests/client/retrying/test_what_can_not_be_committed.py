"""Hand-overs and reads that fail cost no message: not in the run that ends with them, nor in work that goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition

from penstock.client.consumer import Consumer
from penstock.client.errors import MessageTooLarge, NotAuthorized, PenstockError, ProducerFenced
from penstock.client.message import Message
from penstock.client.retrying.parking import Transactional
from penstock.testing.broker import PenstockBroker
from tests.client.retrying.conftest import committed

MESSAGES, BAD = 5, 2
LARGE = b"x" * 5_000


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

    def committed_unheard(self: Transactional, consumer: object, offsets: list[TopicPartition]) -> None:
        if not commits:
            commit(self, consumer, offsets)  # type: ignore[arg-type]
        commits.append(offsets)
        self.is_in_doubt = True
        raise ProducerFenced("nobody knows.", "Start again.")

    monkeypatch.setattr(Transactional, "commit", committed_unheard)
    with pytest.raises(PenstockError, match="nobody knows"):
        lay_down_the_bad_one(broker, topic, group)
    [(position, _)] = committed(broker.bootstrap, group, topic)
    assert position == MESSAGES
    assert len(broker.messages(f"{topic}.{group}.dlq")) == 1
