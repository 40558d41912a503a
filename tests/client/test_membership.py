"""When a consumer joins its group, what it says of its partitions meanwhile, and what becomes of a message in hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from penstock.client import AsyncConsumer, CommitFailed, Consumer, Retry, UsageError, fixed
from penstock.client.message import Place
from penstock.testing.broker import PenstockBroker

WAIT_S = 20.0
TOPIC = "orders"
LATE = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    """With ten messages, which are their numbers, in two partitions."""
    with PenstockBroker() as broker:
        broker.topic(TOPIC, partitions=2)
        for number in range(10):
            broker.produce(TOPIC, str(number), partition=number % 2)
        yield broker


def make(broker: PenstockBroker, group: str = "group", **options: Any) -> Consumer[bytes, str]:
    return Consumer(broker.bootstrap, group, TOPIC, value="text", handle_signals=False, **options)


def read(consumer: Consumer[bytes, str], count: int) -> list[str]:
    return [message.value for message in consumer.messages(count, timeout=WAIT_S)]


@contextmanager
def in_thread(call: Callable[[], object], *, release: Callable[[], object]) -> Iterator[None]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        release()
        thread.join(WAIT_S)
    assert not thread.is_alive()
    assert not failures, failures


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def committed(broker: PenstockBroker, group: str = "group") -> dict[int, int]:
    consumer = KafkaConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(TOPIC, number) for number in range(2)], 10)
    consumer.close()
    return {place.partition: place.offset for place in found}


# ---- joining


def test_the_lag_of_a_consumer_that_has_read_nothing_is_what_there_is(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        assert consumer.lag == 10
        consumer.seek_to_time(LATE)
        assert consumer.lag == 0
    with make(broker, "another") as consumer:
        consumer.seek_to_time(datetime.fromtimestamp(0, UTC))
        assert consumer.lag == 10
        assert len(read(consumer, 10)) == 10
        assert consumer.lag == 0
        consumer.seek(TOPIC, 1, 2)
        assert consumer.lag == 3
        assert read(consumer, 3) == ["5", "7", "9"]
        assert consumer.lag == 0


def test_the_lag_of_a_group_that_has_read_before(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        read(consumer, 4)
    with make(broker) as consumer:
        assert consumer.lag == 6


def test_a_member_without_partitions_has_no_lag_and_nothing_to_seek_in(broker: PenstockBroker) -> None:
    broker.topic("narrow", partitions=1)
    first, second = (
        Consumer[bytes, bytes](
            broker.bootstrap, "group", "narrow", settings={"group.instance.id": name, "heartbeat.interval.ms": 100}
        )
        for name in ("a", "b")  # members are served in the order of their names
    )
    with first:
        assert first.lag == 0
        with second, in_thread(lambda: list(first), release=first.stop):
            assert second.lag == 0
            with pytest.raises(UsageError, match="no partition"):
                second.seek("narrow", 0, 0)


def test_seeking_before_the_first_read(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        consumer.seek(TOPIC, 0, 4)
        consumer.seek(TOPIC, 1, 3)
        assert sorted(read(consumer, 3)) == ["7", "8", "9"]


def test_pausing_before_the_first_read(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        consumer.pause((TOPIC, 0))
        assert read(consumer, 5) == ["1", "3", "5", "7", "9"]
        assert consumer.poll(0.2) is None
        consumer.pause()
        consumer.resume()
        assert read(consumer, 5) == ["0", "2", "4", "6", "8"]


@pytest.mark.parametrize("handles", [False, True])
def test_the_assignment_is_known_to_who_is_told_of_it(broker: PenstockBroker, handles: bool) -> None:
    """librdkafka has it only after all listeners were called, which another thread would see as nothing assigned."""
    told: list[list[Place]] = []
    with make(broker) as consumer:
        consumer.on_assign(lambda _: told.append(consumer.assignment))
        consumer.handler(lambda message: consumer.stop())
        if handles:
            consumer.run()
            assert consumer.assignment == []  # it has left the group
        else:
            read(consumer, 1)
            assert consumer.assignment == [(TOPIC, 0), (TOPIC, 1)]
    assert told == [[(TOPIC, 0), (TOPIC, 1)]]


def test_the_lag_of_a_consumer_that_runs_its_handler(broker: PenstockBroker) -> None:
    seen: list[int] = []
    with make(broker) as consumer:

        @consumer.handler
        def handle(message: Any) -> None:
            seen.append(consumer.lag)
            if len(seen) == 10:
                consumer.stop()

        consumer.run()
    assert seen[0] == 10
    assert min(seen) >= 1
    assert seen == sorted(seen, reverse=True)


# ---- beginning again


def test_a_loop_after_stop_reads_on(broker: PenstockBroker) -> None:
    seen = []
    with make(broker) as consumer:
        for message in consumer:
            seen.append(message.value)
            consumer.stop()
        assert consumer.stopping
        assert consumer.poll(0.1) is None, "who polls has not begun anew"
        seen += read(consumer, 9)
        assert not consumer.stopping
    assert sorted(seen) == [str(number) for number in range(10)]


def test_a_loop_that_was_left_behind_its_stop_is_over_too(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        for _ in consumer:
            consumer.stop()
            break
        assert len(read(consumer, 9)) == 9


def test_a_stop_before_the_first_loop_ends_that_one(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        consumer.stop()
        assert read(consumer, 10) == []
        assert len(read(consumer, 10)) == 10


async def test_a_loop_of_asyncio_after_stop_reads_on(broker: PenstockBroker) -> None:
    seen = []
    async with AsyncConsumer[bytes, str](broker.bootstrap, "group", TOPIC, value="text") as consumer:
        async for message in consumer:
            seen.append(message.value)
            consumer.stop()
        seen += [message.value async for message in consumer.messages(9, timeout=WAIT_S)]
    assert sorted(seen) == [str(number) for number in range(10)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"partition.assignment.strategy": "cooperative-sticky"}, {"group.protocol": "consumer"}],
    ids=["eager", "cooperative", "consumer"],
)
def test_a_handler_and_loops_take_turns(broker: PenstockBroker, settings: dict[str, str]) -> None:
    seen: list[str] = []
    with make(broker, settings=settings) as consumer:

        @consumer.handler
        def handle(message: Any) -> None:
            seen.append(message.value)
            if len(seen) % 3 == 0:
                consumer.stop()

        consumer.run()
        assert len(seen) == 3
        consumer.run()
        assert len(seen) == 6
        seen += read(consumer, 2)
        consumer.run()
    assert len(seen) == 9
    assert len(set(seen)) == 9, "none twice"


def test_the_lag_of_partitions_that_are_paused(broker: PenstockBroker) -> None:
    with make(broker) as consumer:
        assert len(read(consumer, 3)) == 3
        consumer.reader.count_in_hand()
        consumer.pause()
        assert consumer.lag == 7, "what was taken and put back is not processed"
        broker.produce(TOPIC, "more", partition=0)
        assert consumer.lag == 8
        consumer.resume()
        assert len(read(consumer, 8)) == 8
        consumer.reader.count_in_hand()
        assert consumer.lag == 0


def test_the_lag_of_who_is_slower_than_what_is_fetched_for_it(broker: PenstockBroker) -> None:
    """librdkafka fetches no more while it has enough, and does not learn how far the end is."""
    broker.produce("narrow", *range(200), partition=0)
    consumer = Consumer[bytes, bytes](broker.bootstrap, "group", "narrow", settings={"queued.min.messages": 1})
    with consumer:
        assert consumer.poll(WAIT_S) is not None
        time.sleep(0.1)
        broker.produce("narrow", *range(100), partition=0)
        wait_until(lambda: consumer.lag == 300)
        broker.delay("ListOffsets", 5)
        began_s = time.monotonic()
        assert [consumer.lag for _ in range(20)] == [300] * 20
        assert time.monotonic() - began_s < 0.5, "nobody was asked again so soon"


# ---- pauses when partitions go


def test_a_partition_that_was_taken_away_is_not_paused_when_it_comes_back(broker: PenstockBroker) -> None:
    """librdkafka would keep the pause, and nothing of the partition would ever be read."""
    broker.topic("more")
    with make(broker) as consumer:
        consumer.pause((TOPIC, 0))
        assert read(consumer, 5) == ["1", "3", "5", "7", "9"]
        consumer.also_read(["more"])
        assert read(consumer, 5) == ["0", "2", "4", "6", "8"]
        consumer.reader.count_in_hand()
        assert consumer.lag == 0


def test_a_handler_is_called_for_what_a_loop_had_paused(broker: PenstockBroker) -> None:
    seen: list[str] = []
    with make(broker) as consumer:
        consumer.pause()

        @consumer.handler
        def handle(message: Any) -> None:
            seen.append(message.value)
            if len(seen) == 10:
                consumer.stop()

        with in_thread(consumer.run, release=lambda: (wait_until(lambda: len(seen) == 10), consumer.stop())):
            pass


def test_a_rebalance_leaves_nothing_paused_that_a_handler_waits_for(broker: PenstockBroker) -> None:
    """A retry is not due yet when another member comes, takes a partition, and goes."""
    quick = {"heartbeat.interval.ms": 20}
    seen: list[tuple[str, int]] = []
    held: list[list[Place]] = []
    with make(broker, settings=quick) as consumer:

        @consumer.handler(retry=Retry(attempts=2, backoff=fixed("700ms")), dead_letter=True)
        def handle(message: Any) -> None:
            seen.append((message.value, message.attempt))
            if message.value in "01" and message.attempt == 1:
                raise ValueError

        consumer.on_revoke(lambda _: held.append([] if consumer.running is None else consumer.running.paused()))
        with in_thread(consumer.run, release=consumer.stop):
            wait_until(lambda: len(seen) == 10 and len(consumer.running.paused()) == 2)
            with KafkaConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "group", **quick}) as other:
                other.subscribe([TOPIC])
                wait_until(lambda: other.poll(0.02) is None and bool(other.assignment()))
            broker.produce(TOPIC, "last", partition=1)
            wait_until(lambda: {("0", 2), ("1", 2), ("last", 1)} <= set(seen))
    assert len(held[0]) == 2, "both waited when the group was balanced anew"


# ---- a message in hand when its partition goes


@pytest.mark.parametrize("handles", [False, True])
def test_a_message_in_hand_of_a_partition_that_went_is_the_next_members_alone(
    broker: PenstockBroker, handles: bool
) -> None:
    """The old member is taken for dead while it handles its first message, and must not say later that it did."""
    has_one, may_go_on = threading.Event(), threading.Event()
    lost: list[Place] = []
    old = make(broker, commit_interval_s=0.05)
    old.on_lost(lost.extend)

    def handle(message: Any) -> None:
        if not has_one.is_set():
            has_one.set()
            assert may_go_on.wait(WAIT_S)

    def loop() -> None:
        for message in old:
            handle(message)

    old.handler(handle)
    with in_thread(old.run if handles else loop, release=lambda: (may_go_on.set(), old.stop())):
        assert has_one.wait(WAIT_S)
        broker.advance(minutes=10)
        with make(broker) as new:
            assert sorted(read(new, 10)) == [str(number) for number in range(10)], "nothing is lost"
            new.commit()
            assert committed(broker) == {0: 5, 1: 5}
            may_go_on.set()
            deadline_s = time.monotonic() + WAIT_S
            while not lost and time.monotonic() < deadline_s:
                new.poll(0.02)
            assert sorted(lost) == [(TOPIC, 0), (TOPIC, 1)]
        assert committed(broker) == {0: 5, 1: 5}, "the old one has said nothing of what it finished too late"
    old.close()


# ---- attempts


def test_a_message_says_which_attempt_it_is(broker: PenstockBroker) -> None:
    seen: list[int] = []
    with Consumer[bytes, str](broker.bootstrap, "group", TOPIC, value="text", handle_signals=False) as consumer:

        @consumer.handler(retry=Retry(attempts=3, backoff=fixed("20ms")), dead_letter=True)
        def handle(message: Any) -> None:
            if message.value == "3":
                seen.append(message.attempt)
                if message.attempt == 3:
                    consumer.stop()
                raise ValueError
            assert message.attempt == 1

        consumer.run()
    assert seen == [1, 2, 3]
    assert [letter.value for letter in broker.messages(f"{TOPIC}.group.dlq")] == [b"3"]


# ---- listeners that fail


def test_a_listener_that_fails_keeps_nobody_from_being_told_and_nothing_from_being_stored(
    broker: PenstockBroker,
) -> None:
    told: list[list[Place]] = []
    with make(broker, commit_interval_s=60) as consumer:
        consumer.on_revoke(lambda places: [][0])
        consumer.on_revoke(told.append)
        assert len(read(consumer, 10)) == 10
        consumer.reader.count_in_hand()
        broker.topic("more")
        consumer.also_read(["more"])
        with pytest.raises(IndexError):
            consumer.poll(WAIT_S)
        assert [sorted(places) for places in told] == [[(TOPIC, 0), (TOPIC, 1)]]
        assert consumer.assignment == []
        assert consumer.reader.positions == {}
        assert committed(broker) == {0: 5, 1: 5}
        consumer.reader.on_revoke.clear()


def test_a_handlers_listener_that_fails_ends_the_run_with_everything_stored(broker: PenstockBroker) -> None:
    quick = {"heartbeat.interval.ms": 50}
    with make(broker, commit_interval_s=60, settings=quick) as consumer, make(broker, settings=quick) as other:
        done: list[str] = []
        told: list[list[Place]] = []
        consumer.handler(lambda message: done.append(message.value))

        @consumer.on_revoke
        def fail_once(places: list[Place]) -> None:
            told.append(places)
            if len(told) == 1:
                raise LookupError

        def run() -> None:
            with pytest.raises(LookupError):
                consumer.run()

        with in_thread(run, release=consumer.stop):
            deadline_s = time.monotonic() + WAIT_S
            while not told and time.monotonic() < deadline_s:
                if len(done) == 10:
                    assert other.poll(0.05) is None
        assert committed(broker) == {0: 5, 1: 5}


# ---- listeners that commit


def test_a_listener_may_commit_also_when_the_consumer_is_closed(broker: PenstockBroker) -> None:
    stored: list[dict[int, int]] = []
    with make(broker, commit_interval_s=60) as consumer:

        @consumer.on_revoke
        def commit(places: list[Place]) -> None:
            consumer.commit()
            stored.append(committed(broker))

        read(consumer, 10)
        broker.produce("more", "last")
        consumer.also_read(["more"])
        read(consumer, 1)
        consumer.reader.count_in_hand()
    assert stored == [{0: 5, 1: 5}, {0: 5, 1: 5}]


def test_a_listener_does_not_wait_for_a_coordinator_that_is_gone_as_long_as_a_session_lasts(
    broker: PenstockBroker,
) -> None:
    told: list[CommitFailed] = []
    with make(broker, commit_interval_s=60) as consumer:
        consumer.reader.commits.committer.timeout_s = 0.1

        @consumer.on_revoke
        def commit(places: list[Place]) -> None:
            broker.kill()
            with pytest.raises(CommitFailed, match="coordinator does not answer") as caught:
                consumer.commit()
            told.append(caught.value)

        read(consumer, 10)
        consumer.also_read(["more"])
        begun_s = time.monotonic()
        assert consumer.poll(1.0) is None
        assert time.monotonic() - begun_s < 10
        assert len(told) == 1
        broker.start()
