"""What is sent arrives, and is read by a group that remembers how far it got."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.client import Consumer, DeserializationError, Producer
from tests.client.conftest import MakeTopic

Unique = Callable[[str], str]
WAIT_S = 20.0


def send_all(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value)


def test_a_message_arrives_with_all_that_it_was_sent_with(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic = make_topic(partitions=3)
    with Producer(bootstrap, value="json") as producer:
        sent = producer.send(
            topic, {"total": 7}, key="k", headers={"region": "eu"}, timestamp_ms=1_700_000_000_123, partition=2
        )
        receipt = sent.result(WAIT_S)
    assert (receipt.topic, receipt.partition, receipt.offset) == (topic, 2, 0)
    with Consumer(bootstrap, unique("group"), topic, key="text", value="json") as consumer:
        message = consumer.poll(WAIT_S)
    assert message is not None
    assert (message.topic, message.partition, message.offset) == (topic, 2, 0)
    assert (message.key, message.value, message.raw_value) == ("k", {"total": 7}, b'{"total":7}')
    assert (message.headers, message.header("region"), message.header("none")) == ([("region", b"eu")], "eu", None)
    assert message.timestamp_ms == 1_700_000_000_123


def test_a_group_goes_on_behind_what_was_processed(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    send_all(bootstrap, topic, [b"%d" % number for number in range(10)])
    with Consumer(bootstrap, group, topic) as consumer:
        first = [message.value for message in consumer.messages(count=4)]
    with Consumer(bootstrap, group, topic) as consumer:
        second = [message.value for message in consumer.messages(count=6, timeout=WAIT_S)]
    assert first + second == [b"%d" % number for number in range(10)]


def test_a_message_whose_processing_failed_comes_again(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    send_all(bootstrap, topic, [b"a", b"b", b"c"])

    def read_until(bad: bytes) -> None:
        with Consumer(bootstrap, group, topic) as consumer:
            for message in consumer.messages(timeout=WAIT_S):
                if message.value == bad:
                    raise LookupError(bad)

    with pytest.raises(LookupError):
        read_until(b"b")
    with Consumer(bootstrap, group, topic) as consumer:
        assert [message.value for message in consumer.messages(count=2, timeout=WAIT_S)] == [b"b", b"c"]


def test_iteration_goes_on_behind_a_message_that_cannot_be_read(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic = make_topic()
    send_all(bootstrap, topic, [b"1", b"{", b"3"])
    with Consumer(bootstrap, unique("group"), topic, value="json") as consumer:
        seen = []
        with pytest.raises(DeserializationError, match="offset 1") as caught:
            seen += [message.value for message in consumer]
        assert caught.value.message.raw_value == b"{"
        seen += [message.value for message in consumer.messages(count=1, timeout=WAIT_S)]
    assert seen == [3]
