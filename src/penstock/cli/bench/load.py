"""The load: producers and consumers, each a process of its own, that count into memory the parent reads.

A message starts with the time it was made, on the clock that all processes of a machine share; the consumer subtracts.
"""

from __future__ import annotations

import random
import signal
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.bench.histogram import BUCKETS, bucket_of

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from confluent_kafka import KafkaError, Message

STAMP_BYTES = 8
POLL_EVERY = 100
BATCH = 1_000
WAIT_S = 0.1
FLUSH_TIMEOUT_S = 60.0
WARM_UP_TIMEOUT_S = 10.0
UNCOUNTED = b""

# Places in a worker's memory; the histogram follows.
READY, COUNT, FAILED, FIRST_NS, LAST_NS, MAX_NS, DONE, HISTOGRAM = range(8)
SLOTS = HISTOGRAM + BUCKETS


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker does."""

    settings: dict[str, Any]
    topic: str
    size: int = 0
    messages: int | None = None
    duration_s: float | None = None
    rate_per_s: float | None = None
    partitions: tuple[int, ...] = ()


class _Counter:
    """Counts into the shared memory. One writer, so no lock; the parent may read a moment late."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def add(self, latency_ns: int, now_ns: int) -> None:
        memory = self.memory
        memory[COUNT] += 1
        memory[HISTOGRAM + bucket_of(latency_ns)] += 1
        memory[LAST_NS] = now_ns
        if latency_ns > memory[MAX_NS]:
            memory[MAX_NS] = latency_ns


def produce(plan: Plan, memory: Any, start: Event, stop: Event) -> None:
    from confluent_kafka import Producer

    _leave_interrupts_to_the_parent()
    counter = _Counter(memory)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            memory[FAILED] += 1
        else:
            counter.add(int((message.latency() or 0.0) * 1e9), time.monotonic_ns())

    producer = Producer({**plan.settings, "on_delivery": delivered})
    # Connections, metadata, a producer id: a message that nobody counts waits for them, so that the first one does not.
    producer.list_topics(plan.topic, timeout=10)
    producer.produce(plan.topic, UNCOUNTED, on_delivery=lambda error, message: None)
    producer.flush(WARM_UP_TIMEOUT_S)
    bodies = _bodies(plan.size - STAMP_BYTES)
    memory[READY] = 1
    start.wait()
    memory[FIRST_NS] = time.monotonic_ns()
    _send_all(plan, producer, bodies, stop)
    unanswered = producer.flush(FLUSH_TIMEOUT_S)  # which counts failures itself, as they come in
    memory[FAILED] += unanswered
    memory[DONE] = 1


def _send_all(plan: Plan, producer: Any, bodies: Sequence[bytes], stop: Event) -> None:
    started = time.monotonic()
    sent = 0
    while sent != plan.messages:
        if sent % POLL_EVERY == 0:
            producer.poll(0)
            if stop.is_set() or (plan.duration_s and time.monotonic() - started >= plan.duration_s):
                return
        if plan.rate_per_s:
            while (early := started + sent / plan.rate_per_s - time.monotonic()) > 0:
                producer.poll(early)
                if stop.is_set() or (plan.duration_s and time.monotonic() - started >= plan.duration_s):
                    return
        value = time.monotonic_ns().to_bytes(STAMP_BYTES, "big") + bodies[sent % len(bodies)]
        while True:
            try:
                producer.produce(plan.topic, value)
                break
            except BufferError:
                producer.poll(WAIT_S)
        sent += 1


def consume(plan: Plan, memory: Any, start: Event, stop: Event) -> None:
    from confluent_kafka import Consumer, TopicPartition

    _leave_interrupts_to_the_parent()
    consumer = Consumer({**plan.settings, "group.id": plan.topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(plan.topic, partition, 0) for partition in plan.partitions])
    counter = _Counter(memory)
    consumer.poll(0)
    memory[READY] = 1
    start.wait()
    while not stop.is_set():
        first = consumer.poll(WAIT_S)
        if first is None:
            continue
        # What has arrived with it is taken as well, without waiting for a batch to fill.
        for message in (first, *consumer.consume(BATCH, 0)):
            if message.error() is not None:
                memory[FAILED] += 1
                continue
            value = message.value() or UNCOUNTED
            if value == UNCOUNTED:
                continue
            now_ns = time.monotonic_ns()
            memory[FIRST_NS] = memory[FIRST_NS] or now_ns
            counter.add(now_ns - int.from_bytes(value[:STAMP_BYTES], "big"), now_ns)
    consumer.close()


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal; the parent ends the others, and reports what they did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _bodies(size: int) -> list[bytes]:
    """Letters and digits compress somewhat, like most of what people send."""
    alphabet = (string.ascii_letters + string.digits).encode()
    return [bytes(random.choices(alphabet, k=size)) for _ in range(16)]
