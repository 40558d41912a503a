"""Batches to their leaders: each acknowledged, or sent again, or refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.pipeline.brokers import LATEST, Brokers, TopicPartition
from penstock.pipeline.columns import Encoded
from penstock.pipeline.connection import ClientSettings, Connection
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.producing import Producer
from penstock.pipeline.transactions import init_idempotent
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.record_batch import HEADER_SIZE, Record, build_batch
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics


def encoded(place: TopicPartition, value: bytes) -> Encoded:
    now_ms = int(time.time() * 1000)
    return Encoded(*place, build_batch([Record(0, now_ms, None, value)])[HEADER_SIZE:], 1, now_ms, now_ms)


def test_what_an_answer_leaves_out_is_sent_again(
    broker: BrokerProcess, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition(new_topic(), 0)
    receive, silent = Connection.receive, [True, True]

    def saying_nothing(connection: Connection, number: int) -> Any:
        answer = receive(connection, number)
        if isinstance(answer, ProduceResponse) and silent:
            silent.pop()
            answer.responses = []
        return answer

    monkeypatch.setattr(Connection, "receive", saying_nothing)
    with Brokers(ClientSettings((("127.0.0.1", broker.port),))) as brokers:
        producer = Producer(brokers, init_idempotent(brokers))
        producer.send(encoded(place, b"one"))
        producer.send(encoded(place, b"two"))
        producer.flush()
        assert silent == []
        assert brokers.offsets({place: LATEST}) == {place: 2}, "each once"
        assert producer.first == (place, 0)


def test_a_leader_that_never_says_what_came_of_it_fails_the_write(
    broker: BrokerProcess, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition(new_topic(), 0)
    receive = Connection.receive

    def saying_nothing(connection: Connection, number: int) -> Any:
        answer = receive(connection, number)
        if isinstance(answer, ProduceResponse):
            answer.responses = []
        return answer

    monkeypatch.setattr(Connection, "receive", saying_nothing)
    with Brokers(ClientSettings((("127.0.0.1", broker.port),), patience_s=0.5)) as brokers:
        producer = Producer(brokers, init_idempotent(brokers))
        producer.send(encoded(place, b"one"))
        with pytest.raises(PipelineError, match="does not say"):
            producer.flush()


def test_rows_whose_offset_nobody_tells_are_not_taken_for_none(
    broker: BrokerProcess, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader may know that it has a batch, and no longer where."""
    place = TopicPartition(new_topic(), 0)
    receive = Connection.receive

    def without_offset(connection: Connection, number: int) -> Any:
        answer = receive(connection, number)
        if isinstance(answer, ProduceResponse):
            answer.responses[0].partition_responses[0].base_offset = -1
        return answer

    monkeypatch.setattr(Connection, "receive", without_offset)
    with Brokers(ClientSettings((("127.0.0.1", broker.port),))) as brokers:
        producer = Producer(brokers, init_idempotent(brokers))
        assert producer.first is None
        producer.send(encoded(place, b"one"))
        producer.flush()
        with pytest.raises(PipelineError, match="at which offset"):
            _ = producer.first


def test_other_questions_are_answered_while_rows_are_under_way(broker: BrokerProcess, new_topic: Topics) -> None:
    """A task that writes to several topics asks about each when its first row comes."""
    place, other = TopicPartition(new_topic(), 0), new_topic(2)
    with Brokers(ClientSettings((("127.0.0.1", broker.port),))) as brokers:
        producer = Producer(brokers, init_idempotent(brokers))
        for value in (b"one", b"two", b"three"):
            producer.send(encoded(place, value))  # which dispatches the one before
        assert len(producer._under_way) == 2
        assert len(brokers.topics([other])[other].leaders) == 2
        producer.flush()
        assert brokers.offsets({place: LATEST}) == {place: 3}


def test_a_batch_that_is_too_large_names_the_setting(broker: BrokerProcess, new_topic: Topics) -> None:
    place = TopicPartition(new_topic(max_message_bytes=1000), 0)
    with Brokers(ClientSettings((("127.0.0.1", broker.port),))) as brokers:
        producer = Producer(brokers, init_idempotent(brokers))
        producer.send(encoded(place, b"x" * 2000))
        with pytest.raises(PipelineError, match=rf"topic {place.topic} needs a larger max\.message\.bytes"):
            producer.flush()
