"""Transactions whose beginning or end is cancelled, or that meet a signal, or a close: decided all the same."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.client import AsyncConsumer, AsyncProducer, Consumer, Producer, UsageError
from penstock.client.signals import ending_on_signals, holding_signals
from penstock.testing import PenstockBroker

WAIT_S = 20.0
SLOW_S, SOON_S = 0.3, 0.1


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        broker.produce("orders", "0", "1")
        broker.topic("target")
        yield broker


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """As in a program that has no handler of its own: Spark, which other tests begin, leaves one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


def test_a_consumer_that_is_closed_within_its_transaction_aborts_it(broker: PenstockBroker) -> None:
    with Producer(broker.bootstrap, delivery="exactly-once") as producer:
        consumer = Consumer[bytes, bytes](broker.bootstrap, "group", "orders", delivery="exactly-once")

        def copy_and_close() -> None:
            with consumer.transaction(producer) as txn:
                for message in txn.messages(2, WAIT_S):
                    txn.send("target", message.value)
                consumer.close()

        with pytest.raises(UsageError, match=r"was aborted.* Close it behind"):
            copy_and_close()
        with producer.transaction() as writing:
            writing.send("target", b"last")
    assert [message.text for message in broker.messages("target")] == ["last"]


@pytest.mark.parametrize("error", [None, LookupError()])
async def test_an_async_consumer_that_is_closed_within_its_transaction_aborts_it(
    broker: PenstockBroker, error: Exception | None
) -> None:
    async with AsyncProducer(broker.bootstrap, delivery="exactly-once") as producer:
        consumer = AsyncConsumer[bytes, bytes](broker.bootstrap, "group", "orders", delivery="exactly-once")

        async def write_and_close() -> None:
            async with consumer.transaction(producer) as txn:
                await txn.send("target", b"aborted")
                await consumer.close()
                if error is not None:
                    raise error

        with pytest.raises(UsageError if error is None else LookupError):
            await write_and_close()
        async with producer.transaction() as writing:
            await writing.send("target", b"last")
    assert [message.text for message in broker.messages("target")] == ["last"]


# ---- signals, and transactions that only write


def test_a_signal_that_ends_the_program_waits_until_a_transaction_is_decided(broker: PenstockBroker) -> None:
    with Producer(broker.bootstrap, delivery="exactly-once") as producer:
        steps: list[str] = []

        def write(value: str, signals: int) -> None:
            with producer.transaction() as txn:
                txn.send("target", value)
                for _ in range(signals):
                    os.kill(os.getpid(), signal.SIGINT)
                    steps.append(value)
                txn.send("target", f"{value} again")

        with pytest.raises(KeyboardInterrupt):
            write("0", signals=1)
        with pytest.raises(KeyboardInterrupt):
            write("aborted", signals=2)
        assert steps == ["0", "aborted"], "a second one is not held"
    assert [message.text for message in broker.messages("target")] == ["0", "0 again"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_waits_only_for_what_had_begun_when_it_came() -> None:
    early, late = holding_signals(), holding_signals()
    early.__enter__()
    os.kill(os.getpid(), signal.SIGINT)
    late.__enter__()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)  # a second one is not held, though something began behind the first
    with pytest.raises(KeyboardInterrupt):
        early.__exit__(None, None, None)
    late.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_begins_to_read_while_a_signal_is_held_is_told_of_it() -> None:
    told: list[str] = []
    with holding_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with ending_on_signals(lambda: told.append("stop")):
            assert told == ["stop"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_consumer_that_another_thread_closes_while_its_transaction_is_decided_is_closed_behind_that(
    broker: PenstockBroker,
) -> None:
    with Producer(broker.bootstrap, delivery="exactly-once") as producer:
        consumer = Consumer[bytes, bytes](broker.bootstrap, "group", "orders", delivery="exactly-once")
        with consumer.transaction(producer) as txn:
            for message in txn.messages(2, WAIT_S):
                txn.send("target", message.value)
            broker.delay("EndTxn", SLOW_S, times=1)
            closing = threading.Timer(SOON_S, consumer.close)
            closing.start()
        closing.join()
    with Consumer[bytes, bytes](broker.bootstrap, "group", "orders") as again:
        assert again.lag == len(broker.messages("orders")) - 2
    assert [message.text for message in broker.messages("target")] == ["0", "1"]


def test_who_reads_is_told_of_a_signal_within_a_transaction_and_the_program_goes_on(broker: PenstockBroker) -> None:
    with (
        Producer(broker.bootstrap, delivery="exactly-once") as producer,
        Consumer[bytes, bytes](broker.bootstrap, "group", "orders") as consumer,
    ):
        for message in consumer:
            with producer.transaction() as txn:
                txn.send("target", message.value)
                os.kill(os.getpid(), signal.SIGINT)
    assert [message.text for message in broker.messages("target")] == ["0"]


def test_a_handler_of_the_programs_own_hears_of_a_signal_at_once(broker: PenstockBroker) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with (
            Producer(broker.bootstrap, delivery="exactly-once") as producer,
            producer.transaction(),
        ):
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


KILLED = """
import asyncio, os, signal, sys
from penstock import AsyncProducer

async def write():
    async with AsyncProducer(sys.argv[1], delivery="exactly-once") as producer:
        for number in range(2):
            async with producer.transaction() as txn:
                await txn.send("target", str(number))
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.01)
                await txn.send("target", f"{number} again")

asyncio.run(write())
"""


def test_a_process_that_is_terminated_within_a_transaction_ends_behind_it(broker: PenstockBroker) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, broker.bootstrap], check=False, timeout=WAIT_S)
    assert ended.returncode == -signal.SIGTERM
    assert [message.text for message in broker.messages("target")] == ["0", "0 again"]
