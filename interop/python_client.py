"""Our own Python client: the same program works against Penstock and, with --kafka, against Apache Kafka."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from interop.checks import check
from interop.site import Failed, Site
from penstock import AsyncConsumer, AsyncProducer, Consumer, Producer, Queue, QueueEmpty, Retry, Topic, steps
from penstock.client.delivery import DeliveryName
from penstock.client.retrying.headers import split

MESSAGES = 200
WAIT_S = 30.0
POISON = b"\xff not JSON"


def expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Failed(f"{what}: {found!r} instead of {expected!r}")


def fill(site: Site, topic: str, delivery: DeliveryName = "at-least-once") -> None:
    with Producer(site.address, delivery=delivery, value="json", key="text") as producer:
        for number in range(MESSAGES):
            producer.send(topic, number, key=f"key-{number % 7}", headers={"parity": str(number % 2)})


def reading(site: Site, group: str, topic: str, **options: Any) -> Consumer[str, int]:
    return Consumer(site.address, group, topic, value="json", key="text", handle_signals=False, **options)


def all_of(consumer: Consumer[str, int], count: int = MESSAGES) -> list[int]:
    """So many, and none behind them."""
    found = [message.value for message in consumer.messages(count, timeout=WAIT_S)]
    return found + [message.value for message in consumer.messages(timeout=0.5)]


def _in_mode(site: Site, delivery: DeliveryName) -> None:
    topic, group = site.topic(3), site.fresh("group")
    fill(site, topic, delivery)
    with reading(site, group, topic, delivery=delivery) as consumer:
        half = [message.value for message in consumer.messages(MESSAGES // 2, timeout=WAIT_S)]
    with reading(site, group, topic, delivery=delivery) as consumer:
        rest = [message.value for message in consumer.messages(MESSAGES, timeout=3.0)]
        expect(consumer.lag, 0, "the lag behind everything")
    if delivery == "at-least-once":
        expect(sorted(half + rest), list(range(MESSAGES)), "what two consumers of a group have read")
    else:  # what was taken and not processed is gone
        expect(Counter(half + rest).most_common(1)[0][1], 1, "how often the most frequent one was read")


@check("penstock client")
def reads_each_message_at_least_once(site: Site) -> None:
    _in_mode(site, "at-least-once")


@check("penstock client")
def reads_each_message_at_most_once(site: Site) -> None:
    _in_mode(site, "at-most-once")


@check("penstock client")
def copies_exactly_once_though_a_transaction_is_aborted(site: Site) -> None:
    source, target, group = site.topic(3), site.topic(3), site.fresh("group")
    fill(site, source)
    has_failed, copied = False, 0
    with (
        reading(site, group, source, delivery="exactly-once") as consumer,
        Producer(site.address, delivery="exactly-once", value="json") as producer,
    ):
        while copied < MESSAGES:
            count = 0
            try:
                with consumer.transaction(producer) as txn:
                    for message in txn.messages(50, timeout=WAIT_S if not copied else 1.0):
                        txn.send(target, message.value)
                        count += 1
                        if copied > MESSAGES // 2 and not has_failed:
                            has_failed = True
                            raise ValueError("on purpose")
            except ValueError:
                continue
            copied += count
    expect(has_failed, True, "whether a transaction was aborted")
    with reading(site, group, target, delivery="at-least-once", settings={"isolation.level": "read_committed"}) as copy:
        expect(sorted(all_of(copy)), list(range(MESSAGES)), "what was copied")


def _with_retries(site: Site, delivery: DeliveryName) -> None:
    """One in ten fails once, one always, and one can't be read."""
    topic, group = site.topic(2), site.fresh("group")
    fill(site, topic)
    with Producer(site.address) as producer:
        producer.send(topic, POISON)
    done: Counter[int] = Counter()
    tried: list[int] = []
    consumer = reading(site, group, topic, delivery=delivery, commit_interval_s=0.2)

    @consumer.handler(retry=Retry(attempts=3, backoff=steps("100ms", "200ms")), dead_letter=True)
    def handle(message: Any) -> None:
        is_deadly, is_first = message.value == 13, message.attempt == 1
        if is_deadly:
            tried.append(message.attempt)
        elif not (is_first and message.value % 10 == 0):
            done[message.value] += 1
        if len(done) == MESSAGES - 1 and len(tried) == 3:
            consumer.stop()
        if is_deadly or (is_first and message.value % 10 == 0):
            raise ValueError("on purpose")

    with consumer:
        consumer.run()
    expect(done, Counter({number: 1 for number in range(MESSAGES) if number != 13}), "what was handled, and how often")
    expect(tried, [1, 2, 3], "the attempts of what always fails")
    letters = Consumer[bytes, bytes](
        site.address, group, f"{topic}.{group}.dlq", settings={"isolation.level": "read_committed"}
    )
    with letters:
        found = {message.raw_value: split(message.headers)[1] for message in letters.messages(2, timeout=WAIT_S)}
    expect(sorted(found), [b"13", POISON], "the dead letters")
    expect(found[b"13"].attempts if found[b"13"] else None, 3, "the attempts in a dead letter")


@check("penstock client")
def retries_and_lays_down_at_least_once(site: Site) -> None:
    _with_retries(site, "at-least-once")


@check("penstock client")
def retries_and_lays_down_exactly_once(site: Site) -> None:
    _with_retries(site, "exactly-once")


@check("penstock client")
def a_queue_gives_a_failed_job_again(site: Site) -> None:
    with Queue(site.fresh("jobs"), site.address, handle_signals=False) as queue:
        for number in range(10):
            queue.put(number).result(WAIT_S)
        done = []
        has_failed = False
        while len(done) < 10:
            try:
                with queue.get(timeout=WAIT_S) as job:
                    if job.value == 5 and not has_failed:
                        has_failed = True
                        raise ValueError("on purpose")
                    done.append(job.value)
            except ValueError:
                continue
        expect(sorted(done), list(range(10)), "the jobs that were done")
        try:
            with queue.get(timeout=0.5):
                raise Failed("there is a job behind the last one")
        except QueueEmpty:
            pass


@check("penstock client")
def every_subscriber_reads_everything_and_filters_seeks_and_pauses(site: Site) -> None:
    topic = site.topic(2)
    began = datetime.now(UTC)
    with Topic(topic, site.address, value="json") as published:
        for number in range(20):
            published.publish(number, headers={"parity": str(number % 2)})
        published.flush()
        for group in (site.fresh("group"), site.fresh("group")):
            with published.subscribe(group, handle_signals=False) as consumer:
                expect(consumer.lag, 20, "the lag of a new group")
                expect(sorted(all_of(consumer, 20)), list(range(20)), "what a subscriber reads")
                consumer.seek_to_time(began - timedelta(minutes=1))
                expect(consumer.lag, 20, "the lag after going back")
                consumer.pause()
                expect(consumer.poll(0.5), None, "what a paused consumer reads")
                consumer.resume()
                expect(sorted(all_of(consumer, 20)), list(range(20)), "what it reads again")
        with published.subscribe(site.fresh("group"), where={"parity": "1"}, handle_signals=False) as consumer:
            expect(sorted(all_of(consumer, 10)), list(range(1, 20, 2)), "what the filter lets through")


@check("penstock client")
def sends_and_reads_with_asyncio(site: Site) -> None:
    topic, group = site.topic(1), site.fresh("group")

    async def both() -> list[int]:
        async with AsyncProducer(site.address, value="json") as producer:
            await asyncio.gather(*[await producer.send(topic, number) for number in range(MESSAGES)])
        async with AsyncConsumer[bytes, int](
            site.address, group, topic, value="json", handle_signals=False
        ) as consumer:
            return [message.value async for message in consumer.messages(MESSAGES, timeout=WAIT_S)]

    expect(asyncio.run(both()), list(range(MESSAGES)), "what was read")
