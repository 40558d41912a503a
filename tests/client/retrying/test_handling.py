"""Handlers that fail: what is tried again, what is laid down, and what goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.consumer import Consumer
from penstock.client.errors import (
    DeserializationError,
    HandlerTimedOut,
    QueueEmpty,
    SettingsError,
    UsageError,
)
from penstock.client.queue import Queue
from penstock.client.retrying.handling import work_of
from penstock.client.retrying.policy import Retry, fixed, steps
from tests.brokers import BrokerProcess
from tests.client.conftest import MakeTopic, create_topic
from tests.client.retrying.conftest import WAIT_S, committed, copies, produce, running, wait_until

QUICK = Retry(attempts=3, backoff=steps("50ms", "100ms"))


def test_what_fails_is_tried_again_and_at_last_laid_down(
    bootstrap: str, make_topic: MakeTopic, group: str, delivery: Any
) -> None:
    topic = make_topic(partitions=2)
    produce(bootstrap, topic, range(40))
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json", key="text", delivery=delivery)
    calls: list[int] = []
    seen: dict[int, set[tuple[Any, ...]]] = {}

    @consumer.handler(retry=QUICK, dead_letter=True)
    def handle(message: Any) -> None:
        calls.append(message.value)
        place = (message.topic, message.partition, message.offset, message.timestamp_ms, message.key)
        seen.setdefault(message.value, set()).add((*place, tuple(message.headers)))
        if message.value == 7 and calls.count(7) < 3:
            raise ValueError("not yet")
        if message.value == 11:
            raise KeyError("never")

    letters = f"{topic}.{group}.dlq"
    with running(consumer):
        wait_until(lambda: len(calls) >= 44, "all handled")
        wait_until(lambda: copies(bootstrap, letters), "laid down")
    assert Counter(calls) == Counter([*range(40), 7, 7, 11, 11])
    assert all(len(places) == 1 for places in seen.values()), "a message looks the same on every attempt"
    (letter,) = copies(bootstrap, letters)
    assert (letter.value, letter.key, letter.headers) == (b"11", b"11", [("sent-by", b"test")])
    parked = letter.parked
    assert (parked.origin.topic, parked.attempts, parked.failure.type, parked.failure.error) == (
        topic, 3, "KeyError", "'never'",
    )  # fmt: skip
    assert (parked.origin.topic, parked.origin.partition, parked.origin.offset) in {p[:3] for p in seen[11]}
    assert 'raise KeyError("never")' in parked.failure.stack
    assert parked.first_failed_at < parked.failed_at
    assert sum(offset for offset, _ in committed(bootstrap, group, topic, 2)) == 40
    assert {metadata for _, metadata in committed(bootstrap, group, topic, 2)} == {""}, "it ended in order"


def test_a_poisoned_message_is_laid_down_at_once_with_its_bytes(
    bootstrap: str, make_topic: MakeTopic, group: str, delivery: Any
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [1, b"\xff\x00{", 2], key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json", delivery=delivery)
    calls: list[Any] = []
    consumer.handler(retry=QUICK, dead_letter=True)(lambda message: calls.append(message.value))
    with running(consumer):
        wait_until(lambda: copies(bootstrap, f"{topic}.{group}.dlq"), "laid down")
        wait_until(lambda: calls == [1, 2], "handled")
    (letter,) = copies(bootstrap, f"{topic}.{group}.dlq")
    assert (letter.value, letter.key, letter.headers) == (b"\xff\x00{", None, [("sent-by", b"test")])
    assert (letter.parked.attempts, letter.parked.origin.offset) == (0, 1)
    assert letter.parked.failure.type.endswith("DeserializationError")


def test_a_parked_message_blocks_neither_its_partition_nor_other_tiers(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, ["long", "short", *range(100)], key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    calls: list[Any] = []

    class Long(Exception):
        pass

    # The first failure of each goes to a short tier, the second to a long one.
    @consumer.handler(retry=Retry(attempts=3, backoff=steps("50ms", "1h")), dead_letter=True)
    def handle(message: Any) -> None:
        calls.append(message.value)
        if message.value == "long" or (message.value == "short" and calls.count("short") == 1):
            raise Long

    with running(consumer):
        wait_until(lambda: calls.count("long") == 2 and calls.count("short") == 2, "both tried again")
        produce(bootstrap, topic, ["late"], key=lambda value: None)
        wait_until(lambda: "late" in calls, "handled what came later")
    assert Counter(calls) == Counter(["long", "long", "short", "short", *range(100), "late"])
    (waiting,) = copies(bootstrap, f"{topic}.{group}.retry.1h")
    assert waiting.value == b'"long"'
    assert committed(bootstrap, group, topic)[0][0] == 103
    assert committed(bootstrap, group, f"{topic}.{group}.retry.1h")[0][0] <= 0, "it has not been taken"


def test_a_call_that_hangs_past_its_limit_has_failed(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(3), key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    calls: list[int] = []
    released = threading.Event()

    @consumer.handler(retry=Retry(attempts=2, backoff=fixed("50ms")), dead_letter=True, timeout="200ms")
    def handle(message: Any) -> None:
        calls.append(message.value)
        if message.value == 1:
            released.wait(60)

    with running(consumer):
        wait_until(lambda: copies(bootstrap, f"{topic}.{group}.dlq"), "laid down")
        wait_until(lambda: len(calls) == 4, "handled")
    released.set()
    assert Counter(calls) == Counter([0, 1, 2, 1])
    (letter,) = copies(bootstrap, f"{topic}.{group}.dlq")
    assert letter.parked.attempts == 2
    assert letter.parked.failure.type.endswith(HandlerTimedOut.__name__)
    assert "200ms" in letter.parked.failure.error


def test_handlers_that_all_hang_end_the_run(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(20), key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    released = threading.Event()
    consumer.handler(dead_letter=True, timeout="20ms")(lambda message: released.wait(60))
    with pytest.raises(UsageError, match="hang"), running(consumer) as thread:
        thread.join(30)
    released.set()


def test_without_a_policy_the_error_ends_the_run_and_the_message_is_the_next_one(
    bootstrap: str, make_topic: MakeTopic, group: str, delivery: Any
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(5), key=lambda value: None)
    calls: list[int] = []
    for fails in (True, False):
        consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json", delivery=delivery)

        def handle(message: Any, fails: bool = fails) -> None:
            calls.append(message.value)
            if fails and message.value == 2:
                raise OSError("disk")

        consumer.handler()(handle)
        if fails:
            with pytest.raises(OSError, match="disk"), running(consumer) as thread:
                thread.join(30)
        else:
            with running(consumer):
                wait_until(lambda: len(calls) >= 6, "handled the rest")
    assert calls == [0, 1, 2, 2, 3, 4]


def test_poison_without_dead_letters_ends_the_run(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [b"\xff"], key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    consumer.handler(retry=QUICK)(lambda message: None)
    with pytest.raises(DeserializationError), running(consumer) as thread:
        thread.join(30)
    assert committed(bootstrap, group, topic)[0][0] <= 0


def test_what_the_filter_leaves_out_counts_as_done(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(5), key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json", where={"sent-by": "nobody"})
    consumer.handler(dead_letter=True)(lambda message: pytest.fail("not wanted"))
    with running(consumer):
        wait_until(lambda: committed(bootstrap, group, topic)[0][0] == 5, "committed")


def test_tiers_of_an_earlier_policy_are_read_too(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, ["x"], key=lambda value: None)
    first: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    failed = threading.Event()

    @first.handler(retry=Retry(attempts=3, backoff=fixed("300ms")), dead_letter=True)
    def fail(message: Any) -> None:
        failed.set()
        raise ValueError

    with running(first):
        wait_until(failed.is_set, "failed")
    second: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    calls: list[Any] = []
    second.handler(retry=QUICK, dead_letter=True)(lambda message: calls.append(message.value))
    with running(second):
        wait_until(lambda: calls, "tried again")
    assert calls == ["x"]


def test_a_message_as_large_as_the_topic_allows_can_be_laid_down(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(max_message_bytes="20000")
    produce(bootstrap, topic, [b"x" * 19_000], key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic)

    @consumer.handler(dead_letter=True)
    def handle(message: Any) -> None:
        raise ValueError("y" * 5000)

    with running(consumer):
        wait_until(lambda: copies(bootstrap, f"{topic}.{group}.dlq"), "laid down")


def test_options_that_make_no_sense_are_refused(bootstrap: str, group: str) -> None:
    def refused(
        match: str, settings: dict[str, Any] | None = None, delivery: Any = "at-least-once", **options: Any
    ) -> None:
        consumer: Consumer[Any, Any] = Consumer(bootstrap, group, "orders", delivery=delivery, settings=settings)
        with pytest.raises(SettingsError, match=match):
            consumer.handler(**options)(print)
        consumer.close()

    refused("Did you mean 'retry'", retri=QUICK)
    refused("no policy", retry=5)
    refused("dead_letter", dead_letter=3)
    refused("at-most-once", delivery="at-most-once", retry=QUICK)
    refused("at-most-once", delivery="at-most-once", dead_letter=True)
    refused("no retry", ordered=True)
    refused("max.poll.interval.ms", timeout="5m")
    refused("no duration", timeout="soon")
    refused("assignment.strategy", {"partition.assignment.strategy": "cooperative-sticky"}, retry=QUICK, ordered=True)
    refused("group.protocol", {"group.protocol": "consumer"}, retry=QUICK, ordered=True)


def test_calls_that_make_no_sense_are_refused(bootstrap: str, group: str) -> None:
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, "there-is-no-such-topic")
    with pytest.raises(UsageError, match="no handler"):
        consumer.run()
    consumer.handler(dead_letter=True)(print)
    with pytest.raises(UsageError, match=r"already.* of different groups"):
        consumer.handler()(print)
    consumer.close()


def test_a_handler_may_begin_before_its_topic_exists(bootstrap: str, unique: Callable[[str], str], group: str) -> None:
    topic = unique("later")
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    calls: list[int] = []

    @consumer.handler(retry=QUICK)
    def handle(message: Any) -> None:
        calls.append(message.value)
        if len(calls) == 1:
            raise ValueError("not yet")

    came: list[Any] = []
    consumer.on_assign(came.extend)
    with running(consumer):
        wait_until(lambda: came, "given something to read")
        produce(bootstrap, topic, [1], key=lambda value: None)
        wait_until(lambda: calls == [1, 1], "tried again")


def test_at_most_once_hands_each_message_to_its_handler(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(5), key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json", delivery="at-most-once")
    calls: list[int] = []
    consumer.handler()(lambda message: calls.append(message.value))
    with running(consumer):
        wait_until(lambda: calls == [0, 1, 2, 3, 4], "handled")


def test_a_message_that_was_given_back_is_the_next_one_again(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(3), key=lambda value: None)
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    consumer.handler(retry=Retry(attempts=1))(print)
    work = work_of(consumer, consumer.handlers.options)
    work.start()
    taken = []
    for step in ("give back", "fail", "succeed", "succeed", "succeed"):
        message = work.next(30)
        assert message is not None
        taken.append(message.value)
        if step == "give back":
            work.give_back()
        elif step == "fail":
            with pytest.raises(ValueError, match="no dead letters"):
                work.failed(ValueError("no dead letters"))
        else:
            work.succeeded()
    work.close()
    consumer.close()
    assert taken == [0, 0, 0, 1, 2]
    assert committed(bootstrap, group, topic)[0] == (3, "")


async def test_a_coroutine_is_cancelled_when_its_time_is_over(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(3), key=lambda value: None)
    consumer: AsyncConsumer[Any, Any] = AsyncConsumer(bootstrap, group, topic, value="json")
    calls: list[int] = []
    cancelled: list[int] = []

    @consumer.handler(retry=Retry(attempts=2, backoff=fixed("50ms")), dead_letter=True, timeout="200ms")
    async def handle(message: Any) -> None:
        calls.append(message.value)
        if message.value == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(message.value)
                raise

    running_task = asyncio.create_task(consumer.run())
    letters = f"{topic}.{group}.dlq"
    await asyncio.to_thread(wait_until, lambda: copies(bootstrap, letters), "laid down")
    await asyncio.to_thread(wait_until, lambda: len(calls) == 4, "handled")
    consumer.stop()
    await running_task
    await consumer.close()
    assert cancelled == [1, 1]
    assert Counter(calls) == Counter([0, 1, 2, 1])


def test_a_slow_handler_commits_and_takes_part_in_the_group_long_before_its_batch_is_done(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    produce(bootstrap, topic, range(200))
    slow: Consumer[Any, Any] = Consumer(
        bootstrap, group, topic, value="json", commit_interval_s=0.1, settings={"heartbeat.interval.ms": 200}
    )
    other: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json")
    calls: list[int] = []
    others: list[int] = []

    @slow.handler(retry=QUICK, dead_letter=True)
    def handle(message: Any) -> None:
        time.sleep(0.02)
        calls.append(message.value)

    other.handler(retry=QUICK, dead_letter=True)(lambda message: others.append(message.value))
    with running(slow):
        wait_until(lambda: calls, "at work")
        wait_until(lambda: max(at for at, _ in committed(bootstrap, group, topic, 2)) >= 5, "committed")
        assert len(calls) < 100, "while the batch was not done"
        with running(other):
            wait_until(lambda: others, "shared with another member")
            assert len(calls) < 190, "while the batch was not done"
            wait_until(lambda: len(set(calls) | set(others)) == 200, "all handled")
    assert Counter(calls) + Counter(others) == Counter(range(200))


def test_a_queue_tries_its_jobs_again_and_lays_them_down(bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    seen: list[int] = []
    with Queue(name, bootstrap, retry=Retry(attempts=2, backoff=fixed("50ms")), dead_letter=True) as queue:
        for number in range(3):
            queue.put(number)
        while seen.count(1) < 2 or len(seen) < 4:
            with suppress(LookupError), queue.get(WAIT_S) as job:
                seen.append(job.value)
                if job.value == 1:
                    raise LookupError("no such customer")
        with pytest.raises(QueueEmpty):
            queue.take(0.2)
        wait_until(lambda: copies(bootstrap, f"{name}.{name}.dlq"), "laid down")
    assert sorted(seen) == [0, 1, 1, 2]
    (letter,) = copies(bootstrap, f"{name}.{name}.dlq")
    assert (letter.value, letter.parked.attempts, letter.parked.failure.error) == (b"1", 2, "no such customer")
    assert committed(bootstrap, name, name)[0] == (3, "")


def test_a_broker_that_restarts_during_retries_costs_no_message_and_no_attempt(
    new_broker: Callable[..., BrokerProcess], group: str, delivery: Any
) -> None:
    """The handler outlives it: what it had done stays done, and what waited is tried again."""
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "orders", 2)
    count, failing = 300, set(range(0, 300, 30))
    produce(broker.bootstrap, topic, range(count))
    consumer: Consumer[Any, Any] = Consumer(
        broker.bootstrap, group, topic, value="json", delivery=delivery, commit_interval_s=0.1
    )
    calls: list[int] = []

    @consumer.handler(retry=Retry(attempts=3, backoff=fixed("300ms")), dead_letter=True)
    def handle(message: Any) -> None:
        time.sleep(0.002)
        calls.append(message.value)
        if message.value in failing:
            raise ValueError(f"{message.value} fails")

    letters = f"{topic}.{group}.dlq"
    with running(consumer):
        wait_until(lambda: len(calls) > 40, "at work")
        broker.kill()
        broker.start()
        wait_until(lambda: max(Counter(calls).values()) > 1, "trying again")
        broker.kill()
        broker.start()
        wait_until(lambda: len(copies(broker.bootstrap, letters)) >= len(failing), "laid down")
        wait_until(lambda: set(calls) == set(range(count)), "all handled")
    assert Counter(int(letter.value) for letter in copies(broker.bootstrap, letters)) == Counter(failing), "each once"
    assert {letter.parked.attempts for letter in copies(broker.bootstrap, letters)} == {3}
    assert Counter(calls) == Counter([*range(count), *failing, *failing]), "nothing was called twice after success"
    assert sum(at for at, _ in committed(broker.bootstrap, group, topic, 2)) == count


@pytest.mark.parametrize("handles", [True, False])
def test_who_took_too_long_for_its_group_joins_again_and_goes_on(
    bootstrap: str, make_topic: MakeTopic, group: str, handles: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(3), key=lambda value: None)
    short = {"max.poll.interval.ms": 500, "session.timeout.ms": 500, "heartbeat.interval.ms": 50}
    consumer: Consumer[Any, Any] = Consumer(bootstrap, group, topic, value="json", settings=short, commit_interval_s=60)
    calls: list[int] = []

    def handle(message: Any) -> None:
        calls.append(message.value)
        if len(calls) == 1:
            time.sleep(1.2)
        if message.value == 2:
            consumer.stop()

    if handles:
        consumer.handler(retry=QUICK, dead_letter=True)(handle)
        consumer.run()
    else:
        for message in consumer.messages(timeout=WAIT_S):
            handle(message)
        consumer.reader.count_in_hand()
    consumer.close()
    assert calls == [0, 0, 1, 2]
    assert committed(bootstrap, group, topic) == [(3, "")]
    assert "max.poll.interval.ms" in caplog.text
