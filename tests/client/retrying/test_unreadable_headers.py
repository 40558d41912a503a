"""A header whose name is not UTF-8: brokers let it in, and confluent-kafka can't read it. It blocks nobody."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import Consumer, DeserializationError, Retry, fixed
from penstock.protocol.record_batch import batch_crc
from penstock.testing import PenstockBroker, messages
from tests.client.retrying.conftest import committed, running, wait_until

NAME, BENT = b"name", b"\xff\xfe\xfd\xfc"
WAIT_S = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    """Three messages, and the headers of the second can't be read."""
    build = messages.build_batch

    def build_bent(*arguments: Any) -> bytes:
        data = bytearray(bytes(build(*arguments)).replace(NAME, BENT))
        struct.pack_into(">I", data, 17, batch_crc(data) & 0xFFFFFFFF)
        return bytes(data)

    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker, pytest.MonkeyPatch.context() as patch:
        broker.topic("orders")
        broker.produce("orders", "0", headers={"kind": b"good"})
        patch.setattr(messages, "build_batch", build_bent)
        broker.produce("orders", "1", headers={NAME.decode(): b"value"})
        patch.undo()
        broker.produce("orders", "2", headers={"kind": b"good"})
        yield broker


@pytest.mark.parametrize("where", [None, {"kind": "good"}])
def test_what_fails_or_is_chosen_by_them_is_laid_down_without_them(
    broker: PenstockBroker, group: str, where: dict[str, str] | None
) -> None:
    consumer: Consumer[Any, Any] = Consumer(broker.bootstrap, group, "orders", value="text", where=where)
    calls: list[tuple[str, int]] = []

    @consumer.handler(retry=Retry(attempts=2, backoff=fixed("10ms")), dead_letter=True)
    def handle(message: Any) -> None:
        calls.append((message.value, message.attempt))
        if message.value == "1":
            raise ValueError("fails")

    with running(consumer):
        wait_until(lambda: ("2", 1) in calls, "handled")
    assert calls == ([("0", 1), ("2", 1)] if where else [("0", 1), ("1", 1), ("2", 1)])
    [letter] = broker.messages(f"orders.{group}.dlq")
    assert letter.value == b"1"
    assert committed(broker.bootstrap, group, "orders") == [(3, "")]


def test_a_loop_that_chooses_by_them_is_told_and_goes_on_behind(broker: PenstockBroker, group: str) -> None:
    with Consumer[bytes, str](broker.bootstrap, group, "orders", value="text", where={"kind": "good"}) as consumer:
        assert [message.value for message in consumer.messages(1, WAIT_S)] == ["0"]
        with pytest.raises(DeserializationError, match="not UTF-8") as raised:
            list(consumer.messages(1, WAIT_S))
        assert raised.value.message.offset == 1
        assert [message.value for message in consumer.messages(1, WAIT_S)] == ["2"]


def test_a_message_that_is_asked_for_them_says_so(broker: PenstockBroker, group: str) -> None:
    with Consumer[bytes, str](broker.bootstrap, group, "orders", value="text") as consumer:
        first, bent, last = consumer.messages(3, WAIT_S)
    assert first.header("kind") == last.header("kind") == "good"
    for _ in range(3):  # confluent-kafka says it once
        with pytest.raises(DeserializationError, match="at offset 1 can't be read: the name of one is not UTF-8"):
            _ = bent.headers
    assert bent.value == "1"
