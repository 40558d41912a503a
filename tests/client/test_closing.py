"""What a producer says that is closed before everything has arrived; and whoever is closed twice, or in use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    BrokerUnreachable,
    DeliveryFailed,
    Producer,
    ProducerFenced,
    Queue,
    QueueStopped,
    Retry,
    UsageError,
)
from penstock.testing import PenstockBroker

WAIT_S = 20.0
SOON_S = 5.0


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


def be_fenced(broker: PenstockBroker, producer: Producer) -> None:
    with producer.transaction() as txn:
        txn.send("orders", b"too late")
        producer.flush(WAIT_S)
        broker.advance(seconds=20)


def test_a_transaction_that_took_too_long_is_told_so_by_what_left_the_block(broker: PenstockBroker) -> None:
    with (
        pytest.raises(ProducerFenced, match=r"gave the transaction up.* 15 s") as caught,
        Producer(broker.bootstrap, delivery="exactly-once") as producer,
    ):
        be_fenced(broker, producer)
    assert "transactional_id" not in str(caught.value), "nobody else has one that was made up"


def test_a_fenced_producer_can_be_closed_and_says_why_it_is_not_used(broker: PenstockBroker) -> None:
    with Producer(broker.bootstrap, delivery="exactly-once", transactional_id="till") as producer:
        with pytest.raises(ProducerFenced, match="same transactional_id"):
            be_fenced(broker, producer)
        with pytest.raises(ProducerFenced, match="flushing"):
            producer.flush()
        with pytest.raises(ProducerFenced, match="beginning a transaction"), producer.transaction():
            pass


def send_when_fenced(broker: PenstockBroker, producer: Producer) -> None:
    with producer.transaction() as txn:
        txn.send("orders", b"first").result(WAIT_S)
        broker.advance(seconds=20)
        with pytest.raises(ProducerFenced, match=r"not delivered.* gave the transaction up"):
            txn.send("orders", b"too late").result(WAIT_S)
        txn.send("orders", b"later still")


def test_what_is_sent_in_a_transaction_that_was_given_up_says_so(broker: PenstockBroker) -> None:
    with (
        Producer(broker.bootstrap, delivery="exactly-once") as producer,
        pytest.raises(ProducerFenced, match=r"sending to 'orders'.* gave the transaction up.* 15 s"),
    ):
        send_when_fenced(broker, producer)


async def test_what_is_awaited_in_a_transaction_that_was_given_up_is_told(broker: PenstockBroker) -> None:
    producer = AsyncProducer(broker.bootstrap, delivery="exactly-once")

    async def take_too_long() -> None:
        async with asyncio.timeout(WAIT_S), producer.transaction() as txn:
            await (await txn.send("orders", b"first"))
            broker.advance(seconds=20)
            await (await txn.send("orders", b"too late"))

    with pytest.raises(ProducerFenced, match="not delivered"):
        await take_too_long()
    await producer.close()


async def test_closing_twice_is_closing_once(broker: PenstockBroker) -> None:
    broker.produce("orders", "1")
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, "group", "orders") as consumer:
        assert await consumer.poll(WAIT_S) is not None
        await consumer.close()
        await consumer.close()
        with pytest.raises(UsageError, match="is closed"):
            await consumer.commit()
    async with AsyncQueue("jobs", broker.bootstrap) as queue:
        await (await queue.put(1))
        await queue.close()
        await queue.close()
        with pytest.raises(UsageError, match="is closed"):
            await queue.get().__aenter__()


@pytest.mark.parametrize("retry", [None, Retry(attempts=2)])
def test_a_queue_is_closed_twice_and_with_a_job_in_hand(broker: PenstockBroker, retry: Retry | None) -> None:
    with Queue("jobs", broker.bootstrap, partitions=1, retry=retry) as queue:
        queue.put(1)
        with pytest.raises(UsageError, match="will be done again"), queue.get(WAIT_S):
            queue.close()
        queue.close()
        with pytest.raises(UsageError, match="is closed"), queue.get():
            pass
    with Queue("jobs", broker.bootstrap) as queue, queue.get(WAIT_S) as job:
        assert job.value == 1


def test_the_end_of_a_queue_does_not_hide_why_its_block_ended(broker: PenstockBroker) -> None:
    queue = Queue("jobs", broker.bootstrap, producer_settings={"message.timeout.ms": 10})
    queue.put(1).result(WAIT_S)
    broker.kill()
    queue.put(2)
    with pytest.raises(ZeroDivisionError) as caught, queue:
        raise ZeroDivisionError
    assert "could not be closed well" in caught.value.__notes__[0]


async def test_a_task_whose_consumer_is_closed_ends_its_loop(broker: PenstockBroker) -> None:
    broker.produce("orders", "1", "2")
    consumer = AsyncConsumer[bytes, bytes](broker.bootstrap, "group", "orders", commit_interval_s=0.001)
    reads, go_on = asyncio.Event(), asyncio.Event()
    seen = []

    async def read() -> None:
        async for message in consumer:
            seen.append(message.value)
            reads.set()
            await go_on.wait()

    reading = asyncio.create_task(read())
    await reads.wait()
    await consumer.close()
    go_on.set()
    await reading
    assert seen == [b"1"]


async def test_a_job_whose_queue_is_closed_says_so(broker: PenstockBroker) -> None:
    queue = AsyncQueue("jobs", broker.bootstrap, partitions=1)
    await queue.put(1)
    with pytest.raises(UsageError, match="will be done again"):
        async with queue.get(WAIT_S):
            await queue.close()


async def test_a_task_that_waits_for_a_job_ends_when_the_queue_is_closed(broker: PenstockBroker) -> None:
    queue = AsyncQueue("jobs", broker.bootstrap)

    async def wait() -> None:
        with pytest.raises(QueueStopped):
            await queue.get().__aenter__()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0.1)
    await queue.close()
    await waiting


async def test_what_was_done_is_committed_by_a_task_that_is_cancelled_twice(broker: PenstockBroker) -> None:
    """The second time it waits for its thread, which has a last look for messages before it closes."""
    done: asyncio.Queue[str] = asyncio.Queue()

    async def read() -> None:
        async with AsyncConsumer[bytes, bytes](broker.bootstrap, "group", "orders") as consumer:
            async for message in consumer:
                await done.put(message.value.decode())

    async def work() -> None:
        async with AsyncQueue("jobs", broker.bootstrap, value="text") as queue:
            while True:
                async with queue.get() as job:
                    await done.put(job.value)

    for topic, reading in (("orders", read), ("jobs", work)):
        for name in ("first", "second"):
            broker.produce(topic, name)
            task = asyncio.create_task(reading())
            assert await asyncio.wait_for(done.get(), WAIT_S) == name
            await asyncio.sleep(0.05)  # so that it waits for the next one
            task.cancel()
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.parametrize("retry", [None, Retry(attempts=2)], ids=["plain", "retry"])
def test_who_waits_for_a_job_is_told_that_another_thread_has_closed_the_queue(
    broker: PenstockBroker, retry: Retry | None
) -> None:
    queue = Queue("jobs", broker.bootstrap, partitions=1, handle_signals=False, retry=retry)
    queue.put(1)
    with queue.get(WAIT_S):
        pass
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(queue.take)
        time.sleep(0.05)
        threads.submit(queue.close).result(SOON_S)
        with pytest.raises(QueueStopped):
            waiting.result(SOON_S)
