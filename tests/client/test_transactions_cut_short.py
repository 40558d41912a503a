"""Transactions whose beginning or end is cancelled, or whose commit meets a signal: decided all the same."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.client import AsyncConsumer, AsyncProducer, Consumer, Producer
from penstock.testing import PenstockBroker

WAIT_S = 20.0
SLOW_S, SOON_S = 0.3, 0.1


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        broker.produce("orders", "0", "1")
        broker.topic("target")
        yield broker


async def begin_too_slowly(broker: PenstockBroker, transaction: Any) -> None:
    broker.delay("InitProducerId", SLOW_S, times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON_S), transaction:
            pytest.fail("it has not begun")


async def test_a_beginning_that_was_cancelled_leaves_no_transaction_open(broker: PenstockBroker) -> None:
    options: dict[str, Any] = {"delivery": "exactly-once"}
    async with (
        AsyncProducer(broker.bootstrap, **options) as producer,
        AsyncConsumer[bytes, bytes](broker.bootstrap, "group", "orders", **options) as consumer,
    ):
        await begin_too_slowly(broker, consumer.transaction(producer))
        async with consumer.transaction(producer) as txn:
            async for message in txn.messages(2, WAIT_S):
                await txn.send("target", message.value)
    async with AsyncProducer(broker.bootstrap, **options) as producer:
        await begin_too_slowly(broker, producer.transaction())
        async with producer.transaction() as writing:
            await writing.send("target", b"last")
    assert [message.text for message in broker.messages("target")] == ["0", "1", "last"]


def test_a_signal_during_the_commit_ends_the_work_behind_it(broker: PenstockBroker) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with (
            Producer(broker.bootstrap, delivery="exactly-once") as producer,
            Consumer[bytes, bytes](broker.bootstrap, "group", "orders", delivery="exactly-once") as consumer,
        ):
            rounds = 0
            while not consumer.stopping:
                rounds += 1
                with consumer.transaction(producer) as txn:
                    for message in txn.messages(2, WAIT_S):
                        txn.send("target", message.value)
                    broker.delay("EndTxn", SLOW_S, times=1)
                    threading.Timer(SOON_S, os.kill, (os.getpid(), signal.SIGTERM)).start()
                    began_s = time.monotonic()
                assert time.monotonic() - began_s > SOON_S
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rounds == 1
    assert seen == [], "else it would have killed the process"
    assert [message.text for message in broker.messages("target")] == ["0", "1"]


async def cancel_at_the_end(transaction: Any, last: Callable[[], object]) -> None:
    """Twice, while the block's end waits or is under way."""

    async def write() -> None:
        async with transaction as txn:
            await txn.send("target", b"written")
            last()
            asyncio.get_running_loop().call_later(SOON_S / 2, writing.cancel)
            asyncio.get_running_loop().call_later(SOON_S, writing.cancel)

    writing = asyncio.create_task(write())
    with pytest.raises(asyncio.CancelledError):
        await writing


async def test_an_end_that_was_cancelled_decides_the_transaction(broker: PenstockBroker) -> None:
    options: dict[str, Any] = {"delivery": "exactly-once"}
    async with AsyncProducer(broker.bootstrap, **options) as producer:
        async with AsyncConsumer[bytes, bytes](broker.bootstrap, "group", "orders", **options) as consumer:
            others = consumer.transaction(producer)
            await cancel_at_the_end(others, lambda: consumer._thread.submit(time.sleep, SLOW_S))  # as for others
        await cancel_at_the_end(producer.transaction(), lambda: broker.delay("EndTxn", SLOW_S, times=1))
        async with producer.transaction() as writing:
            await writing.send("target", b"last")
    assert [message.text for message in broker.messages("target")] == ["written", "written", "last"]
