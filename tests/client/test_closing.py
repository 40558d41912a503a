"""What a producer says that is closed before everything has arrived."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.client import AsyncProducer, BrokerUnreachable, DeliveryFailed, Producer
from penstock.testing import PenstockBroker

WAIT_S = 20.0


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker() as broker:
        yield broker


def test_what_closing_gives_up_is_said_to_be_lost(broker: PenstockBroker) -> None:
    producer = Producer(broker.bootstrap)
    producer.send("orders", b"arrived").result(WAIT_S)
    broker.kill()
    lost = [producer.send("orders", b"lost") for _ in range(3)]
    with pytest.raises(BrokerUnreachable, match="still being sent") as unflushed:
        producer.flush(timeout=0.05)
    assert unflushed.value.retriable
    with pytest.raises(DeliveryFailed, match=r"3 messages were given up.*Send again") as caught:
        producer.close(timeout=0.05)
    assert "still being sent" not in str(caught.value)
    assert not caught.value.retriable
    assert all(isinstance(delivery.exception(), DeliveryFailed) for delivery in lost)
    broker.start()
    assert [message.text for message in broker.messages("orders")] == ["arrived"]


async def test_the_end_of_a_block_does_not_hide_what_was_given_up(broker: PenstockBroker) -> None:
    producer = AsyncProducer(broker.bootstrap)
    await producer.send_and_wait("orders", b"arrived")
    broker.kill()
    await producer.send("orders", b"lost")
    with pytest.raises(DeliveryFailed, match="1 message was given up"):
        await producer.close(timeout=0.05)
    await producer.close()
