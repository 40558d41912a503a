"""Reads the result with read_committed, while it is made and once more in the end, and compares it to the input."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.faults.copier import transformed
from tests.faults.load import PATIENT

READ_MAX = 1000


class Violation(AssertionError):
    """A promise was broken."""


class Ledger:
    """What must come next in each partition."""

    def __init__(self, partitions: int) -> None:
        self.following = [0] * partitions

    def enter(self, partition: int, offset: int, value: bytes) -> None:
        expected = self.following[partition]
        if value != transformed(b"%d" % expected):
            raise Violation(f"{value!r} stands at {offset} of partition {partition}, where {expected} comes next")
        self.following[partition] += 1


def reader(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> Consumer:
    config = {"bootstrap.servers": bootstrap, "group.id": "auditor", "enable.auto.commit": False}
    reading = {"isolation.level": isolation, "fetch.wait.max.ms": 50, "auto.offset.reset": "error"}
    consumer = Consumer({**config, **reading, **PATIENT})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    return consumer


class Auditor:
    """Goes on reading until it is closed, whatever happens to the broker; `violation` is the first that it found."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.ledger = Ledger(partitions)
        self.violation: Violation | None = None
        self._consumer = reader(bootstrap, topic, partitions)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)
        self._thread.start()

    @property
    def seen(self) -> int:
        return sum(self.ledger.following)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                read_some(self._consumer, self.ledger)
            except Violation as violation:
                self.violation = violation
                return

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def read_some(consumer: Consumer, ledger: Ledger) -> None:
    for message in consumer.consume(READ_MAX, 0.1):
        error = message.error()
        if error is None:
            ledger.enter(message.partition(), message.offset(), message.value() or b"")
        elif not error.retriable() and error.code() > 0:
            raise Violation(f"the result can't be read: {error}")


def read_again(bootstrap: str, topic: str, expected: Sequence[int], timeout_s: float) -> None:
    """From the beginning, as one who comes later: exactly the input, and no more behind it."""
    ledger = Ledger(len(expected))
    consumer = reader(bootstrap, topic, len(expected))
    deadline = time.monotonic() + timeout_s
    while ledger.following != list(expected):
        read_some(consumer, ledger)
        if time.monotonic() > deadline:
            raise Violation(f"of {list(expected)} messages, {ledger.following} can be read")
    for _ in range(10):
        read_some(consumer, ledger)
    consumer.close()
    if ledger.following != list(expected):
        raise Violation(f"more than was sent: {ledger.following} of {list(expected)}")
