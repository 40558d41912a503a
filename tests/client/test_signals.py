"""SIGTERM and Ctrl-C: the first ends what reads, in order; a second one is not ours. And what a stop is for."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.client import AsyncConsumer, AsyncProducer, AsyncQueue, Consumer
from penstock.testing import PenstockBroker

WAIT_S = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        for topic in ("orders", "others"):
            broker.produce(topic, *(str(number) for number in range(4)))
        broker.topic("empty")
        broker.topic("target")
        yield broker


@pytest.fixture
def passed() -> Iterator[list[int]]:
    """The signals that got through to the program's own handler."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    own = signal.getsignal(signal.SIGTERM)
    yield seen
    assert signal.getsignal(signal.SIGTERM) is own
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_a_transaction_is_decided_before_a_signal_ends_the_work(
    broker: PenstockBroker, passed: list[int]
) -> None:
    async with (
        AsyncProducer(broker.bootstrap, delivery="exactly-once") as producer,
        AsyncConsumer[bytes, bytes](broker.bootstrap, "transaction", "orders", delivery="exactly-once") as consumer,
    ):
        while not consumer.stopping:
            async with consumer.transaction(producer) as txn:
                async for message in txn.messages(timeout=WAIT_S):
                    await txn.send("target", message.value)
                    if message.offset == 1:
                        terminate()
    assert [message.text for message in broker.messages("target")] == ["0", "1"]
    assert passed == []


async def test_a_signal_ends_a_poll_and_a_second_one_gets_through(broker: PenstockBroker, passed: list[int]) -> None:
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, "poll", "empty") as consumer:
        asyncio.get_running_loop().call_later(0.1, terminate)
        began_s = time.monotonic()
        assert await consumer.poll(WAIT_S) is None
        assert time.monotonic() - began_s < WAIT_S / 2
        assert consumer.stopping
        assert passed == []
        asyncio.get_running_loop().call_soon(terminate)
        assert await consumer.poll(WAIT_S) is None
        assert passed == [signal.SIGTERM]


def test_who_asks_on_after_a_signal_neither_spins_nor_keeps_the_second_one(
    broker: PenstockBroker, passed: list[int]
) -> None:
    def count(ask: Callable[[], object]) -> int:
        asked, until_s = 0, time.monotonic() + 0.3
        while time.monotonic() < until_s:
            assert not ask()
            asked += 1
        return asked

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Consumer[bytes, bytes](broker.bootstrap, "spin", "empty") as consumer:
        threading.Timer(0.1, terminate).start()
        assert consumer.poll(WAIT_S) is None
        assert consumer.stopping
        assert passed == []
        assert count(lambda: consumer.poll(1.0)) <= 3
        assert count(lambda: list(consumer.messages(timeout=1.0))) <= 3
        began_s = time.monotonic()
        assert consumer.poll() is None
        assert time.monotonic() - began_s < 0.1, "who does not wait need not"
        before = signal.signal(signal.SIGTERM, interrupt)
        threading.Timer(0.05, terminate).start()
        with pytest.raises(KeyboardInterrupt):
            count(lambda: consumer.poll(WAIT_S))
        signal.signal(signal.SIGTERM, before)


async def test_a_second_signal_is_not_kept_from_a_loop_that_hangs(broker: PenstockBroker, passed: list[int]) -> None:
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, "loop", "orders") as consumer:
        async for _ in consumer:
            terminate()
            await asyncio.sleep(0.01)
            assert consumer.stopping
            assert passed == []
            terminate()
            await asyncio.sleep(0.01)
            assert passed == [signal.SIGTERM]


async def test_a_second_signal_is_not_kept_from_a_job_that_hangs(broker: PenstockBroker, passed: list[int]) -> None:
    async with AsyncQueue("jobs", broker.bootstrap, partitions=1) as queue:
        await queue.put("job")
        async with queue.get(WAIT_S):
            terminate()
            await asyncio.sleep(0.01)
            assert passed == []
            terminate()
            await asyncio.sleep(0.01)
            assert passed == [signal.SIGTERM]


async def test_one_signal_ends_all_that_read(broker: PenstockBroker, passed: list[int]) -> None:
    async def read(topic: str, count: int | None) -> None:
        async with AsyncConsumer[bytes, bytes](broker.bootstrap, f"all-{topic}", topic) as consumer:
            async for _ in consumer.messages(count):
                pass

    reading = [asyncio.ensure_future(read(topic, count)) for topic, count in (("orders", 4), ("others", None))]
    last = asyncio.ensure_future(read("empty", None))
    await reading[0]  # the first to begin ends first, and leaves the others their handler
    asyncio.get_running_loop().call_later(0.1, terminate)
    await asyncio.wait_for(asyncio.gather(reading[1], last), WAIT_S)
    assert passed == []


def test_two_loops_that_end_out_of_order_leave_the_handlers_as_they_were(
    broker: PenstockBroker, passed: list[int]
) -> None:
    with (
        Consumer[bytes, bytes](broker.bootstrap, "one", "orders") as one,
        Consumer[bytes, bytes](broker.bootstrap, "other", "others") as other,
    ):
        first, second = one.messages(), other.messages()
        next(first)
        next(second)
        first.close()  # type: ignore[attr-defined]
        terminate()
        assert other.stopping
        assert list(second) == []
    terminate()
    assert passed == [signal.SIGTERM]


async def test_a_stop_ends_the_loop_that_is_left_and_not_the_next_one(broker: PenstockBroker) -> None:
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, "stop", "orders") as consumer:
        async for _ in consumer:
            consumer.stop()
            break
        assert [message.value async for message in consumer.messages(3, WAIT_S)] == [b"1", b"2", b"3"]
