"""What the Python client costs over bare confluent-kafka, under the same settings and on the same broker.

Bare means as its examples have it: produce with a callback and `poll(0)` for each message, consume with `consume(500)`
or `poll()`. The two take turns, and the figure is the median of the pairs: what disturbs the machine for longer than a
moment disturbs both of a pair.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as BareConsumer
from confluent_kafka import Producer as BareProducer

from bench.peers import Peer, penstock
from bench.results import Measure
from penstock import Consumer, Producer

PAIRS, QUICK_PAIRS = 7, 3
MESSAGES, QUICK_MESSAGES = 500_000, 300_000
ROUND_TRIPS = 1000
VALUE = b"x" * 200
THROUGHPUT_LIMIT = 10.0  # percent
LATENCY_LIMIT_US = 20.0
BATCH = 500
WAIT_S = 60.0
WRITTEN_LATER = {"flush": "os"}  # else it would be the device that is measured
TOPIC, ECHO = "client", "client-echo"

Run = Callable[[Peer, int], float]


def overhead(work: Path, quick: bool) -> Iterator[Measure]:
    pairs, messages = (QUICK_PAIRS, QUICK_MESSAGES) if quick else (PAIRS, MESSAGES)
    with penstock(work / "client", WRITTEN_LATER) as peer:
        peer.create_topics([TOPIC], 3, {"retention.bytes": str(1 << 31)})
        peer.create_topics([ECHO], 1)
        yield _share("client-produce", "producing", _produce_bare, _produce, peer, pairs, messages)
        for name, bare in (("consume(500)", _consume_bare), ("poll()", _poll_bare)):
            title = f"consuming, against {name}"
            yield _share(f"client-{name.split('(')[0]}", title, bare, _consume, peer, pairs, messages)
        yield _latency(peer, pairs)


def _share(name: str, what: str, bare: Run, ours: Run, peer: Peer, pairs: int, messages: int) -> Measure:
    """Throughput that is lost, in percent of the bare client's."""
    ours(peer, messages // 10)
    shares, rates = [], []
    for number in range(pairs):
        bare_s, ours_s = _turns(bare, ours, peer, messages, number)
        shares.append((1 - bare_s / ours_s) * 100)
        rates.append(messages / ours_s)
    spread = f"{min(shares):+.0f} to {max(shares):+.0f} % in {pairs} pairs"
    note = f"{spread}, {statistics.median(rates) / 1000:.0f}k messages/s"
    return Measure(name, f"throughput lost by {what}", statistics.median(shares), "%", THROUGHPUT_LIMIT, note)


def _latency(peer: Peer, pairs: int) -> Measure:
    _round_trips(peer, 50)
    found = [_turns(_round_trips_bare, _round_trips, peer, ROUND_TRIPS, number) for number in range(pairs)]
    more_us = [(ours_s - bare_s) * 1e6 for bare_s, ours_s in found]
    bare_us = statistics.median(bare_s for bare_s, _ in found) * 1e6
    note = f"{min(more_us):+.0f} to {max(more_us):+.0f} µs in {pairs} pairs, on {bare_us:.0f} µs from send to read"
    title = "latency added from send to read, p50"
    return Measure("client-latency", title, statistics.median(more_us), "µs", LATENCY_LIMIT_US, note)


def _turns(bare: Run, ours: Run, peer: Peer, count: int, number: int) -> tuple[float, float]:
    """Neither of the two is always the first."""
    if number % 2:
        ours_s = ours(peer, count)
        return bare(peer, count), ours_s
    return bare(peer, count), ours(peer, count)


# ---- producing: seconds until everything is acknowledged


def _produce(peer: Peer, messages: int) -> float:
    with Producer(peer.address) as producer:
        producer.send(TOPIC, VALUE).result(WAIT_S)
        began = time.perf_counter()
        for _ in range(messages):
            producer.send(TOPIC, VALUE)
        producer.flush()
        return time.perf_counter() - began


def _produce_bare(peer: Peer, messages: int) -> float:
    producer = BareProducer(_settings_of(Producer(peer.address)))
    failed = []

    def settled(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(TOPIC, VALUE, on_delivery=settled)
    producer.flush()
    began = time.perf_counter()
    for _ in range(messages):
        while True:
            try:
                producer.produce(TOPIC, VALUE, on_delivery=settled)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    assert not failed
    return time.perf_counter() - began


# ---- consuming: seconds from the first message to the last


def _consume(peer: Peer, messages: int) -> float:
    size = 0
    with Consumer[bytes, bytes](peer.address, uuid.uuid4().hex, TOPIC, handle_signals=False) as consumer:
        assert consumer.poll(WAIT_S) is not None
        began = time.perf_counter()
        for message in consumer.messages(messages):
            size += len(message.value)
        took_s = time.perf_counter() - began
    assert size >= messages * len(VALUE)
    return took_s


def _bare_consumer(peer: Peer, topic: str) -> BareConsumer:
    """With librdkafka's own commits, each second."""
    model = Consumer[bytes, bytes](peer.address, uuid.uuid4().hex, topic)
    settings = {**_settings_of(model), "enable.auto.commit": True, "enable.auto.offset.store": True}
    model.close()
    consumer = BareConsumer({**settings, "auto.commit.interval.ms": 1000})
    consumer.subscribe([topic])
    return consumer


def _consume_bare(peer: Peer, messages: int) -> float:
    consumer = _bare_consumer(peer, TOPIC)
    assert consumer.poll(WAIT_S) is not None
    read = size = 0
    began = time.perf_counter()
    while read < messages:
        for message in consumer.consume(BATCH, 1.0):
            if message.error() is None:
                size += len(message.value() or b"")
                read += 1
    took_s = (time.perf_counter() - began) * messages / read  # the last batch may be more than was asked for
    consumer.close()
    return took_s


def _poll_bare(peer: Peer, messages: int) -> float:
    consumer = _bare_consumer(peer, TOPIC)
    assert consumer.poll(WAIT_S) is not None
    read = size = 0
    began = time.perf_counter()
    while read < messages:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            size += len(message.value() or b"")
            read += 1
    took_s = time.perf_counter() - began
    consumer.close()
    return took_s


# ---- latency: the median of the seconds from a send to its read, one at a time


def _round_trips(peer: Peer, count: int) -> float:
    took_s = []
    consumer = Consumer[bytes, bytes](
        peer.address, uuid.uuid4().hex, ECHO, profile="latency", start="latest", handle_signals=False
    )
    with consumer, Producer(peer.address, profile="latency") as producer:
        messages = consumer.messages()
        _meet(lambda: producer.send(ECHO, VALUE).result(WAIT_S), lambda: consumer.poll(0.1))
        while consumer.poll(0.2) is not None:
            pass
        for _ in range(count):
            began = time.perf_counter()
            producer.send(ECHO, VALUE)
            next(messages)
            took_s.append(time.perf_counter() - began)
    return statistics.median(took_s)


def _round_trips_bare(peer: Peer, count: int) -> float:
    took_s = []
    producer = BareProducer(_settings_of(Producer(peer.address, profile="latency")))
    model = Consumer[bytes, bytes](peer.address, uuid.uuid4().hex, ECHO, profile="latency", start="latest")
    consumer = BareConsumer(_settings_of(model))
    model.close()
    consumer.subscribe([ECHO])

    def settled(error: Any, message: Any) -> None:
        assert error is None

    def send() -> None:
        producer.produce(ECHO, VALUE, on_delivery=settled)
        producer.flush()

    _meet(send, lambda: consumer.poll(0.1))
    while consumer.poll(0.2) is not None:
        pass
    for _ in range(count):
        began = time.perf_counter()
        producer.produce(ECHO, VALUE, on_delivery=settled)
        producer.poll(0)
        message = consumer.poll(1.0)
        took_s.append(time.perf_counter() - began)
        assert message is not None
    consumer.close()
    return statistics.median(took_s)


def _meet(send: Callable[[], object], read: Callable[[], object]) -> None:
    """Until the consumer, which begins at the end, gets what is sent."""
    deadline_s = time.monotonic() + WAIT_S
    while read() is None:
        assert time.monotonic() < deadline_s
        send()


def _settings_of(client: Any) -> dict[str, Any]:
    return dict(client.settings)
