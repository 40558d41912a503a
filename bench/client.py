"""What the Python client costs over bare confluent-kafka, under the same settings and on the same broker.

Bare means as its examples have it: produce with a callback and `poll(0)` for each message, consume with `consume(500)`
or `poll()`, with a look at `error()`. Each message is asked for its value, and nothing else is done with it. Both are
open at the same time and take turns of a few milliseconds, so that whatever else the machine does meets both of a pair;
the figure is the median of many pairs, and the spread that of the middle half of them.

Who reads is given the time to have its next turn fetched: it is the client's own work that is measured, as a program
meets it that has more to read than it can process.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as BareConsumer
from confluent_kafka import Producer as BareProducer

from bench.peers import Peer, penstock
from bench.results import Measure
from penstock import Consumer, Producer

PAIRS, QUICK_PAIRS = 60, 20
SENT, READ, ROUND_TRIPS = 20_000, 10_000, 40  # in a turn
VALUE = b"x" * 200
THROUGHPUT_LIMIT = 10.0  # percent
LATENCY_LIMIT_US = 20.0
BATCH = 500
WAIT_S = 60.0
FETCH_S = 0.1
WRITTEN_LATER = {"flush": "os"}  # else it would be the device that is measured
TOPIC, ECHO = "client", "client-echo"

Turn = Callable[[int], float]  # seconds for so many messages
Client = Callable[[Peer], AbstractContextManager[Turn]]


def overhead(work: Path, quick: bool) -> Iterator[Measure]:
    pairs = QUICK_PAIRS if quick else PAIRS
    with penstock(work / "client", WRITTEN_LATER) as peer:
        peer.create_topics([TOPIC], 3, {"retention.bytes": str(1 << 31)})
        peer.create_topics([ECHO], 1)
        yield _share("client-produce", "producing", _turns(peer, _producing_bare, _producing, pairs, SENT))
        for name, bare in (("consume(500)", _consuming_bare), ("poll()", _polling_bare)):
            found = _turns(peer, bare, _consuming, pairs, READ, FETCH_S)
            yield _share(f"client-{name.split('(')[0]}", f"consuming, against {name}", found)
        yield _latency(_turns(peer, _round_trips_bare, _round_trips, pairs, ROUND_TRIPS))


def _turns(
    peer: Peer, bare: Client, ours: Client, pairs: int, count: int, pause_s: float = 0.0
) -> list[tuple[float, float]]:
    """Seconds for a message, bare and ours. Neither of the two is always the first, and the first pair warms up."""
    found = []
    with bare(peer) as bare_turn, ours(peer) as our_turn:
        for number in range(pairs + 1):
            took_s = {}
            for turn in (bare_turn, our_turn) if number % 2 else (our_turn, bare_turn):
                time.sleep(pause_s)
                took_s[turn] = turn(count)
            found.append((took_s[bare_turn], took_s[our_turn]))
    return found[1:]


def _share(name: str, what: str, found: Sequence[tuple[float, float]]) -> Measure:
    """Throughput that is lost, in percent of the bare client's."""
    shares = [(1 - bare_s / ours_s) * 100 for bare_s, ours_s in found]
    bare_ns, ours_ns = (statistics.median(each) * 1e9 for each in zip(*found))
    note = f"{middle(shares, '%')}, {ours_ns:.0f} ns a message instead of {bare_ns:.0f}"
    return Measure(name, f"throughput lost by {what}", statistics.median(shares), "%", THROUGHPUT_LIMIT, note)


def _latency(found: Sequence[tuple[float, float]]) -> Measure:
    more_us = [(ours_s - bare_s) * 1e6 for bare_s, ours_s in found]
    bare_us = statistics.median(bare_s for bare_s, _ in found) * 1e6
    note = f"{middle(more_us, 'µs')}, on {bare_us:.0f} µs from send to read"
    title = "latency added from send to read, p50"
    return Measure("client-latency", title, statistics.median(more_us), "µs", LATENCY_LIMIT_US, note)


def middle(figures: Sequence[float], unit: str) -> str:
    """Where the middle half of the pairs is."""
    low, _, high = statistics.quantiles(figures, n=4)
    return f"{low:+.0f} to {high:+.0f} {unit} in the middle half of {len(figures)} pairs"


# ---- producing: until everything of the turn is acknowledged


@contextmanager
def _producing(peer: Peer) -> Iterator[Turn]:
    with Producer(peer.address) as producer:

        def turn(messages: int) -> float:
            began = time.perf_counter()
            for _ in range(messages):
                producer.send(TOPIC, VALUE)
            producer.flush()
            return (time.perf_counter() - began) / messages

        yield turn


@contextmanager
def _producing_bare(peer: Peer) -> Iterator[Turn]:
    with Producer(peer.address) as model:
        producer = BareProducer(dict(model.settings))
    failed = []

    def settled(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    def turn(messages: int) -> float:
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
        return (time.perf_counter() - began) / messages

    yield turn
    assert not failed


# ---- consuming


@contextmanager
def _consuming(peer: Peer) -> Iterator[Turn]:
    with Consumer[bytes, bytes](peer.address, uuid.uuid4().hex, TOPIC, handle_signals=False) as consumer:
        assert consumer.poll(WAIT_S) is not None

        def turn(messages: int) -> float:
            size = 0
            began = time.perf_counter()
            for message in consumer.messages(messages):
                size += len(message.value)
            took_s = time.perf_counter() - began
            assert size == messages * len(VALUE)
            return took_s / messages

        yield turn


def _bare_consumer(peer: Peer, topic: str, **options: Any) -> BareConsumer:
    """With librdkafka's own commits, each second."""
    with Consumer[bytes, bytes](peer.address, uuid.uuid4().hex, topic, **options) as model:
        settings = {**model.settings, "enable.auto.commit": True, "enable.auto.offset.store": True}
    consumer = BareConsumer({**settings, "auto.commit.interval.ms": 1000})
    consumer.subscribe([topic])
    return consumer


@contextmanager
def _consuming_bare(peer: Peer) -> Iterator[Turn]:
    consumer = _bare_consumer(peer, TOPIC)
    assert consumer.poll(WAIT_S) is not None

    def turn(messages: int) -> float:
        read = size = 0
        began = time.perf_counter()
        while read < messages:
            batch = consumer.consume(BATCH, 1.0)
            for message in batch:
                if message.error() is None:
                    size += len(message.value())  # type: ignore[arg-type]  # each has one; to ask would cost
            read += len(batch)
        took_s = time.perf_counter() - began
        assert size == read * len(VALUE)  # the last batch may be more than was asked for
        return took_s / read

    yield turn
    consumer.close()


@contextmanager
def _polling_bare(peer: Peer) -> Iterator[Turn]:
    consumer = _bare_consumer(peer, TOPIC)
    assert consumer.poll(WAIT_S) is not None

    def turn(messages: int) -> float:
        read = size = 0
        began = time.perf_counter()
        while read < messages:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                size += len(message.value())  # type: ignore[arg-type]  # each has one; to ask would cost
                read += 1
        took_s = time.perf_counter() - began
        assert size == read * len(VALUE)
        return took_s / read

    yield turn
    consumer.close()


# ---- latency: the median of the seconds from a send to its read, one at a time


@contextmanager
def _round_trips(peer: Peer) -> Iterator[Turn]:
    group = uuid.uuid4().hex
    consumer = Consumer[bytes, bytes](
        peer.address, group, ECHO, profile="latency", start="latest", handle_signals=False
    )
    with consumer, Producer(peer.address, profile="latency") as producer:
        _meet(lambda: producer.send(ECHO, VALUE).result(WAIT_S), lambda: consumer.poll(0.1))

        def turn(count: int) -> float:
            took_s = []
            while consumer.poll(0.05) is not None:  # what the other one has sent
                pass
            messages = consumer.messages()
            for _ in range(count):
                began = time.perf_counter()
                producer.send(ECHO, VALUE)
                next(messages)
                took_s.append(time.perf_counter() - began)
            return statistics.median(took_s)

        yield turn


@contextmanager
def _round_trips_bare(peer: Peer) -> Iterator[Turn]:
    with Producer(peer.address, profile="latency") as model:
        producer = BareProducer(dict(model.settings))
    consumer = _bare_consumer(peer, ECHO, profile="latency", start="latest")

    def settled(error: Any, message: Any) -> None:
        assert error is None

    def send() -> None:
        producer.produce(ECHO, VALUE, on_delivery=settled)
        producer.flush()

    _meet(send, lambda: consumer.poll(0.1))

    def turn(count: int) -> float:
        took_s = []
        while consumer.poll(0.05) is not None:
            pass
        for _ in range(count):
            began = time.perf_counter()
            producer.produce(ECHO, VALUE, on_delivery=settled)
            producer.poll(0)
            message = consumer.poll(1.0)
            took_s.append(time.perf_counter() - began)
            assert message is not None
        return statistics.median(took_s)

    yield turn
    consumer.close()


def _meet(send: Callable[[], object], read: Callable[[], object]) -> None:
    """Until the consumer, which begins at the end, gets what is sent."""
    deadline_s = time.monotonic() + WAIT_S
    while read() is None:
        assert time.monotonic() < deadline_s
        send()
