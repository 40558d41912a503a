"""What retries and dead letters cost: a handler that is given poison, against the plain loop over sound messages.

Both read as many messages of JSON; of the handler's, one in a hundred can't be read, and is laid down. They take
turns, and the figure is the median of the pairs: what disturbs the machine for longer than a moment disturbs both
of a pair. The time is that from the first message to the last, which leaves out joining the group.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.client import middle
from bench.peers import Peer, penstock
from bench.results import Measure
from penstock.client.consumer import Consumer
from penstock.client.retrying.policy import Retry, fixed

PAIRS, QUICK_PAIRS = 15, 5
MESSAGES = 100_000
POISON_EVERY = 100
LOSS_LIMIT = 10.0  # percent
WRITTEN_LATER = {"flush": "os"}  # else it would be the device that is measured
SOUND, POISONED = "sound", "poisoned"


def with_poison(work: Path, quick: bool) -> Iterator[Measure]:
    with penstock(work / "client-retry", WRITTEN_LATER) as peer:
        peer.create_topics([SOUND, POISONED], 3)
        _fill(peer)
        _handled(peer, POISONED, MESSAGES // POISON_EVERY)
        found = [_turns(peer, number) for number in range(QUICK_PAIRS if quick else PAIRS)]
    lost = [(1 - plain_s / handled_s) * 100 for plain_s, handled_s in found]
    rate = MESSAGES / statistics.median(handled_s for _, handled_s in found) / 1000
    note = f"{middle(lost, '%')}, {rate:.0f}k messages/s"
    title = "throughput lost by retries and dead letters, 1 % poison"
    yield Measure("client-retry", title, statistics.median(lost), "%", LOSS_LIMIT, note)


def _fill(peer: Peer) -> None:
    producer = Producer({"bootstrap.servers": peer.address, "queue.buffering.max.messages": 3 * MESSAGES})
    for number in range(MESSAGES):
        value, key = json.dumps({"id": number, "text": "x" * 60}).encode(), str(number).encode()
        producer.produce(SOUND, value, key)
        producer.produce(POISONED, b"\xff" + value if number % POISON_EVERY == 0 else value, key)
    producer.flush()


def _turns(peer: Peer, number: int) -> tuple[float, float]:
    """Neither of the two is always the first."""
    if number % 2:
        handled_s = _handled(peer, POISONED, MESSAGES // POISON_EVERY)
        return _plain(peer), handled_s
    return _plain(peer), _handled(peer, POISONED, MESSAGES // POISON_EVERY)


class _Stopwatch:
    """What a handler does with a message here, and what the plain loop calls for each one too."""

    def __init__(self, consumer: Consumer[Any, Any], count: int) -> None:
        self._consumer = consumer
        self._left = count
        self._began_s = 0.0
        self.took_s = 0.0

    def handle(self, message: Any) -> None:
        if not self._began_s:
            self._began_s = time.perf_counter()
        self._left -= 1
        if not self._left:
            self.took_s = time.perf_counter() - self._began_s
            self._consumer.stop()


def _plain(peer: Peer) -> float:
    consumer: Consumer[Any, Any] = Consumer(peer.address, uuid.uuid4().hex, SOUND, value="json", handle_signals=False)
    watch = _Stopwatch(consumer, MESSAGES)
    with consumer:
        for message in consumer:
            watch.handle(message)
    return watch.took_s


def _handled(peer: Peer, topic: str, poisoned: int) -> float:
    consumer: Consumer[Any, Any] = Consumer(peer.address, uuid.uuid4().hex, topic, value="json", handle_signals=False)
    watch = _Stopwatch(consumer, MESSAGES - poisoned)
    consumer.handler(retry=Retry(attempts=3, backoff=fixed("1s")), dead_letter=True)(watch.handle)
    consumer.run()
    consumer.close()
    return watch.took_s
