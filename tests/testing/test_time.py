"""Time travel: what takes minutes and weeks happens at once, and on the way there in its order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock import Message, Retry, client, steps, wall_clock
from penstock.testing import PenstockBroker
from penstock.testing.clock import Clock, TravellingLoop, advance, duration_s
from penstock.testing.kit import Kit
from tests.testing.conftest import QUICK, WAIT_S, read

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


def state_of(kit: Kit, group: str) -> tuple[ConsumerGroupState, int]:
    """Of a group, and how many members it has."""
    admin = AdminClient({"bootstrap.servers": kit.bootstrap, **QUICK})
    found = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    return found.state, len(found.members)


def test_a_member_that_is_not_heard_of_is_put_out_of_its_group(
    broker: PenstockBroker, new_consumer: NewConsumer
) -> None:
    broker.produce("orders", "one")
    consumer = new_consumer(broker, "orders", session_timeout_ms=45_000, heartbeat_interval_ms=40_000)
    read(consumer, 1)
    broker.advance(seconds=44)
    assert state_of(broker, "readers") == (ConsumerGroupState.STABLE, 1)
    broker.advance(seconds=2)
    assert state_of(broker, "readers") == (ConsumerGroupState.EMPTY, 0)


def test_a_member_of_the_new_protocol_is_put_out_too(broker: PenstockBroker, new_consumer: NewConsumer) -> None:
    broker.produce("orders", "one")
    read(new_consumer(broker, "orders", group_protocol="consumer"), 1)
    assert state_of(broker, "readers")[1] == 1
    broker.delay("ConsumerGroupHeartbeat", seconds=3600)
    broker.advance(minutes=1)
    assert state_of(broker, "readers")[1] == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_are_heard_of_on_the_way_stay(
    broker: PenstockBroker, new_consumer: NewConsumer, protocol: str
) -> None:
    broker.produce("orders", "one")
    consumer = new_consumer(broker, "orders", group_protocol=protocol)
    read(consumer, 1)
    broker.delay("Heartbeat", seconds=3600)
    broker.delay("ConsumerGroupHeartbeat", seconds=3600)
    broker.advance(minutes=30, heartbeats=True)
    assert state_of(broker, "readers") == (ConsumerGroupState.STABLE, 1)


def test_what_a_handler_put_off_is_due(broker: PenstockBroker) -> None:
    broker.produce("payments", "1")
    attempts: list[int] = []
    with client.Consumer(broker.bootstrap, "till", "payments", value="text", handle_signals=False) as consumer:

        @consumer.handler(retry=Retry(attempts=3, backoff=steps("10m", "1h")), dead_letter=True)
        def pay(message: Message) -> None:
            attempts.append(message.attempt)
            raise ConnectionError("the bank is closed")

        running = threading.Thread(target=consumer.run)
        running.start()
        broker.messages("payments.till.retry.10m", at_least=1)
        broker.advance(minutes=9, heartbeats=True)
        assert attempts == [1]
        broker.advance(minutes=1, heartbeats=True)
        broker.messages("payments.till.retry.1h", at_least=1)
        broker.advance(hours=1, heartbeats=True)
        broker.messages("payments.till.dlq", at_least=1)
        consumer.stop()
        running.join()
    assert attempts == [1, 2, 3]


def test_the_clients_time_is_this_machines_again_after_the_test() -> None:
    with PenstockBroker() as broker:
        broker.advance(days=1)
        assert wall_clock.now_ms() > time.time() * 1000 + 23 * 3_600_000
    assert abs(wall_clock.now_ms() - time.time() * 1000) < 60_000


def test_a_rebalance_does_not_wait_for_a_member_that_never_comes(
    broker: PenstockBroker, new_consumer: NewConsumer
) -> None:
    broker.produce("orders", "one")
    first = new_consumer(broker, "orders")
    assert read(first, 1)[0].value() == b"one"  # from here on it does not poll, and so does not join again
    second = new_consumer(broker, "orders")
    while state_of(broker, "readers")[0] is not ConsumerGroupState.PREPARING_REBALANCING:
        second.poll(0.01)
    assert not second.assignment()
    broker.advance(minutes=6)
    deadline = time.monotonic() + WAIT_S
    while not second.assignment() and time.monotonic() < deadline:
        second.poll(0.05)
    assert second.assignment()


def test_a_transaction_that_takes_too_long_is_aborted(broker: PenstockBroker, new_producer: NewProducer) -> None:
    producer = new_producer(broker, transactional_id="payments", transaction_timeout_ms=60_000)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", b"never seen")
    assert producer.flush(WAIT_S) == 0
    broker.produce("orders", "behind it")
    assert broker.messages("orders") == [], "an open transaction holds everyone up"
    assert len(broker.messages("orders", isolation="read_uncommitted")) == 2
    broker.advance(minutes=2)
    assert [message.text for message in broker.messages("orders", at_least=1)] == ["behind it"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)


def test_retention_deletes_what_has_become_old(broker: PenstockBroker) -> None:
    broker.topic("orders", retention_ms=int(timedelta(days=1) / timedelta(milliseconds=1)))
    broker.produce("orders", "old")
    broker.advance(hours=23)
    assert [message.text for message in broker.messages("orders")] == ["old"]
    broker.advance(timedelta(hours=2))
    assert broker.messages("orders") == []
    assert broker.produce("orders", "new")[0].offset == 1


def test_offsets_of_a_group_that_is_gone_expire(broker: PenstockBroker, new_consumer: NewConsumer) -> None:
    broker.produce("orders", "one")
    consumer = new_consumer(broker, enable_auto_commit=False)
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    place = [TopicPartition("orders", 0)]
    broker.advance(days=6)
    assert consumer.committed(place, WAIT_S)[0].offset == 1
    broker.advance(days=2)
    assert consumer.committed(place, WAIT_S)[0].offset < 0


def test_messages_bear_the_broker_s_time_where_the_topic_says_so(broker: PenstockBroker) -> None:
    broker.topic("orders", message_timestamp_type="LogAppendTime")
    broker.advance(days=3)
    broker.produce("orders", "one")
    ahead_ms = broker.messages("orders")[0].timestamp_ms - time.time() * 1000
    assert ahead_ms == pytest.approx(timedelta(days=3) / timedelta(milliseconds=1), abs=60_000)
    assert broker.now_ms - time.time() * 1000 == pytest.approx(ahead_ms, abs=60_000)


def test_clients_go_on_behind_a_leap(
    broker: PenstockBroker, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    broker.topic("orders")
    producer, consumer = new_producer(broker), new_consumer(broker)
    consumer.assign([TopicPartition("orders", 0, 0)])
    for n in range(3):
        producer.produce("orders", b"%d" % n)
        assert producer.flush(WAIT_S) == 0
        assert read(consumer, 1)[0].value() == b"%d" % n
        broker.advance(hours=1)


@pytest.mark.parametrize(
    ("given", "seconds"), [({"by": 3}, 3), ({"by": timedelta(hours=1)}, 3600), ({"minutes": 1, "seconds": 1}, 61)]
)
def test_how_far_can_be_said_in_several_ways(given: dict[str, float], seconds: float) -> None:
    assert duration_s(given.pop("by", None), **given) == seconds


@pytest.mark.parametrize("given", [{}, {"seconds": 0}, {"minutes": -1}, {"seconds": float("nan")}])
def test_time_goes_forward_only(broker: PenstockBroker, given: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        broker.advance(**given)


# ---- the loop


class OnLoop:
    """A travelling loop in a thread."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = TravellingLoop(self.clock)

    def run(self, scenario: Callable[[], object]) -> None:
        """Calls it in this thread while the loop turns in another."""
        import threading

        thread = threading.Thread(target=self.loop.run_forever)
        thread.start()
        try:
            scenario()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join()
            self.loop.close()


def test_timers_that_are_set_on_the_way_are_met_on_the_way() -> None:
    on, fired = OnLoop(), []

    def fire(left: int) -> None:
        fired.append(round(on.loop.time() - began))
        if left:
            on.loop.call_later(60, fire, left - 1)

    began = on.loop.time()
    on.loop.call_later(60, fire, 4)
    on.run(lambda: advance(on.clock, [on.loop], 600))
    assert fired == [60, 120, 180, 240, 300]


def test_a_leap_returns_when_what_it_has_set_going_in_threads_is_done() -> None:
    on, done = OnLoop(), []

    async def work() -> None:
        await asyncio.sleep(300)
        await on.loop.run_in_executor(None, time.sleep, 0.05)
        done.append(True)

    def scenario() -> None:
        working = asyncio.run_coroutine_threadsafe(work(), on.loop)
        advance(on.clock, [on.loop], 301)
        assert done
        working.result()
        asyncio.run_coroutine_threadsafe(on.loop.shutdown_default_executor(), on.loop).result()

    on.run(scenario)


def test_a_leap_of_years_takes_no_longer_than_a_timer_that_never_rests_allows() -> None:
    on, ticks = OnLoop(), []

    def tick() -> None:
        ticks.append(on.loop.time())
        on.loop.call_later(0.1, tick)

    on.loop.call_later(0.1, tick)
    on.run(lambda: advance(on.clock, [on.loop], 3 * 365 * 24 * 3600))
    assert len(ticks) < 1000
