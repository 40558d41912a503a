"""The same from asyncio: nothing blocks the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    DeliveryFailed,
    DeserializationError,
    Producer,
    QueueEmpty,
)
from tests.brokers import BrokerProcess
from tests.client.conftest import MakeTopic, create_topic

Unique = Callable[[str], str]
WAIT_S = 20.0


async def test_what_is_sent_is_read(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    async with AsyncProducer(bootstrap, value="json") as producer:
        sent = [await producer.send(topic, number) for number in range(100)]
        receipts = await asyncio.gather(*sent)
        assert [receipt.offset for receipt in receipts] == list(range(100))
        assert (await producer.send_and_wait(topic, 100)).offset == 100
    async with AsyncConsumer[bytes, int](bootstrap, group, topic, value="json") as consumer:
        assert [message.value async for message in consumer.messages(60, timeout=WAIT_S)] == list(range(60))
        assert await consumer.lag() == 41
    async with AsyncConsumer[bytes, int](bootstrap, group, topic, value="json") as consumer:
        message = await consumer.poll(WAIT_S)
        assert message is not None
        assert message.value == 60
        assert [message.value async for message in consumer.messages(40, timeout=WAIT_S)] == list(range(61, 101))
        assert await consumer.poll(0.1) is None


async def test_back_pressure_waits_without_blocking(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with AsyncProducer(bootstrap, settings={"queue.buffering.max.messages": 10}) as producer:
        sent = [await producer.send(topic, b"%d" % number) for number in range(100)]
        assert (await sent[-1]).offset == 99


async def test_headers_that_can_be_asked_for_once_are_sent_when_there_is_room(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, full = make_topic(), {"queue.buffering.max.messages": 2, "linger.ms": 1}
    with Producer(bootstrap, settings=full) as producer:
        for number in range(10):
            producer.send(topic, b"", headers=iter([("number", str(number))]))
    async with AsyncProducer(bootstrap, settings=full) as asynchronous:
        for number in range(10, 20):
            await asynchronous.send(topic, b"", headers=iter([("number", str(number))]))
    async with AsyncConsumer[bytes, bytes](bootstrap, unique("group"), topic) as consumer:
        names = [message.header("number") async for message in consumer.messages(20, WAIT_S)]
    assert names == [str(number) for number in range(20)]


async def test_a_full_local_queue_raises_what_it_raises_without_asyncio(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, "topic")
    full = {"queue.buffering.max.messages": 1, "message.timeout.ms": 60_000}
    with Producer(broker.bootstrap, settings=full, send_timeout_s=0.3) as producer:
        asynchronous = AsyncProducer(broker.bootstrap, settings=full, send_timeout_s=0.3)
        producer.send("topic", b"").result(WAIT_S)
        await asynchronous.send_and_wait("topic", b"")
        broker.kill()
        producer.send("topic", b"")
        await asynchronous.send("topic", b"")
        with pytest.raises(DeliveryFailed, match="no room") as expected:
            producer.send("topic", b"")
        with pytest.raises(DeliveryFailed, match="no room") as raised:
            await asynchronous.send("topic", b"")
        assert str(raised.value) == str(expected.value)
        for each in (producer, asynchronous.producer):
            with pytest.raises(DeliveryFailed, match="1 message was given up"):
                each.close(timeout=0.0)


async def test_closing_is_quick_after_something_was_awaited(bootstrap: str, make_topic: MakeTopic) -> None:
    producer = AsyncProducer(bootstrap)
    topic = make_topic()
    await producer.send_and_wait(topic, b"")
    await asyncio.sleep(0.02)  # the thread that listens waits for what comes next
    await producer.send_and_wait(topic, b"")
    began_s = time.monotonic()
    await producer.close(timeout=WAIT_S)
    assert time.monotonic() - began_s < 0.5


async def test_a_loop_can_be_stopped_while_it_waits(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    async with AsyncConsumer[bytes, bytes](bootstrap, unique("group"), make_topic()) as consumer:
        asyncio.get_running_loop().call_later(0.3, consumer.stop)
        assert [message async for message in consumer] == []


async def test_who_asks_on_after_a_signal_does_not_spin(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    async with AsyncConsumer[bytes, bytes](bootstrap, unique("group"), make_topic()) as consumer:
        consumer.consumer.reader.stop_for_good()  # which signals do
        began_s = time.monotonic()
        assert [await consumer.poll(1.0) for _ in range(3)] == [None] * 3
        assert 0.5 < time.monotonic() - began_s < 2


async def test_a_message_that_cannot_be_read(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic()
    async with AsyncProducer(bootstrap) as producer:
        for value in (b"{", b"2"):
            await producer.send_and_wait(topic, value)
    async with AsyncConsumer[bytes, int](bootstrap, unique("group"), topic, value="json") as consumer:
        with pytest.raises(DeserializationError):
            await consumer.poll(WAIT_S)
        message = await consumer.poll(WAIT_S)
        assert message is not None
        assert message.value == 2


async def fail_in_the_midst(consumer: AsyncConsumer[bytes, bytes], producer: AsyncProducer, target: str) -> None:
    async with consumer.transaction(producer) as txn:
        async for message in txn.messages(5, timeout=WAIT_S):
            await txn.send(target, message.value)
        raise LookupError


async def test_a_transaction(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    source, target, group = make_topic(), make_topic(), unique("group")
    async with AsyncProducer(bootstrap) as filler:
        for number in range(10):
            await filler.send(source, b"%d" % number)
    async with (
        AsyncProducer(bootstrap, delivery="exactly-once") as producer,
        AsyncConsumer[bytes, bytes](bootstrap, group, source, delivery="exactly-once") as consumer,
    ):
        with pytest.raises(LookupError):
            await fail_in_the_midst(consumer, producer, target)
        async with consumer.transaction(producer) as txn:
            async for message in txn.messages(10, timeout=WAIT_S):
                await txn.send(target, message.value)
        async with producer.transaction() as writing:
            await writing.send(target, b"last")
    async with AsyncConsumer[bytes, bytes](bootstrap, unique("group"), target) as consumer:
        read = [message.value async for message in consumer.messages(11, timeout=WAIT_S)]
    assert read == [*(b"%d" % number for number in range(10)), b"last"]


async def test_a_queue(bootstrap: str, make_topic: MakeTopic) -> None:
    async with AsyncQueue(make_topic(), bootstrap) as queue:
        await (await queue.put({"job": 1}))
        with pytest.raises(LookupError):
            async with queue.get(WAIT_S) as job:
                raise LookupError
        async with queue.get(WAIT_S) as job:
            assert job.value == {"job": 1}
        with pytest.raises(QueueEmpty):
            async with queue.get(0.1):
                pass


async def test_a_queue_goes_on_after_a_wait_that_was_cancelled(bootstrap: str, make_topic: MakeTopic) -> None:
    async with AsyncQueue(make_topic(), bootstrap) as queue:
        await queue.put(1)
        async with queue.get(WAIT_S) as job:
            assert job.value == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), queue.get():
                pass
        await queue.put(2)
        async with queue.get(WAIT_S) as job:
            assert job.value == 2


async def test_a_signal_ends_the_work_on_a_queue(bootstrap: str, make_topic: MakeTopic) -> None:
    done = []
    async with AsyncQueue(make_topic(), bootstrap) as queue:
        await queue.put(1)
        while True:
            async with queue.get(WAIT_S) as job:
                done.append(job.value)
                os.kill(os.getpid(), signal.SIGTERM)
    assert done == [1]


async def test_a_message_that_is_looked_at_counts_as_unprocessed(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    """As another task asks, through the consumer's thread, while this one takes the message."""
    topic = make_topic()
    async with AsyncProducer(bootstrap) as producer:
        for number in range(3):
            await producer.send(topic, str(number))
    asked: list[int] = []

    def ask(headers: object) -> bool:
        asked.append(consumer.consumer.reader.unprocessed()[topic, 0])
        return True

    async with AsyncConsumer[bytes, bytes](bootstrap, unique("group"), topic, where=ask) as consumer:
        assert [message.offset async for message in consumer.messages(3, 20)] == asked == [0, 1, 2]
