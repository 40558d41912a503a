"""An application that reads, transforms and writes in transactions, as a process of its own that can be killed.

    python -m tests.faults.copier BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID ASSIGNOR

Every message of SOURCE is written to the same partition of TARGET, transformed, in one transaction with the offset that
says so (KIP-447). Several such processes share the work in GROUP, each with a transactional id of its own. What goes
wrong on the way is handled as a careful application would: an abortable error aborts and reads again from the group's
committed offsets; a fatal one ends the process with FATAL, the error's name as its last line.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.faults.load import PATIENT

REPOSITORY = Path(__file__).parents[2]
FATAL = 3
BATCH_MAX = 200
BATCH_WAIT_S = 0.05
WORK_S = (0.0, 0.0, 0.01, 0.1, 0.3)
CALL_TIMEOUT_S = 5.0
REWIND_TIMEOUT_S = 30.0
SESSION_TIMEOUT_MS = 3000
TRANSACTION_TIMEOUT_MS = 5000

# librdkafka 2.16 forgets a broker when it can reach none, but not that it was the group's coordinator, and then waits
# for it for ever (confluentinc/librdkafka#5511).
FAITHFUL = {"metadata.recovery.strategy": "none"}


def transformed(value: bytes) -> bytes:
    return b"copy of " + value


class CopierProcess:
    """One such process, as the test sees it."""

    def __init__(self, folder: Path, name: str, arguments: list[str], program: str | None = None) -> None:
        """`program` is another that does the same, with another client."""
        self.said = folder / f"{name}.errors"
        command = [*([program] if program else [sys.executable, "-m", "tests.faults.copier"]), *arguments]
        with self.said.open("a") as errors:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=errors, stderr=errors)

    @property
    def code(self) -> int | None:
        """How it ended, or None."""
        return self.process.poll()

    @property
    def last_words(self) -> str:
        return (self.said.read_text().splitlines() or [""])[-1]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, which also ends one that is stopped."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)


class Aborted(Exception):
    """The transaction is undone; its messages have to be read again."""


class Copier:
    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, transactional_id: str, assignor: str
    ) -> None:
        self._target = target
        self._batch: list[Message] = []
        self._is_asked_to_stop = False
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        common = {"bootstrap.servers": bootstrap, **PATIENT}
        reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        timing = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 200, "fetch.wait.max.ms": 50}
        strategy = {"isolation.level": "read_committed", "partition.assignment.strategy": assignor}
        self._consumer = Consumer({**common, **reading, **timing, **strategy})
        self._consumer.subscribe([source], on_revoke=self._on_revoke, on_lost=self._on_revoke)
        writing = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._producer = Producer({**common, **writing, **FAITHFUL, "linger.ms": 1})

    def _ask_to_stop(self, *_: object) -> None:
        self._is_asked_to_stop = True

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """What was read of them is another member's now, or will be read again."""
        gone = {partition.partition for partition in partitions}
        self._batch = [message for message in self._batch if message.partition() not in gone]

    def run(self) -> None:
        _until_done(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))
        while not self._is_asked_to_stop:
            self._read()
            if not self._batch:
                continue
            try:
                self._copy()
            except Aborted:
                self._rewind()
        self._consumer.close()

    def _read(self) -> None:
        self._batch = []
        deadline = time.monotonic() + BATCH_WAIT_S
        while len(self._batch) < BATCH_MAX and (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is not None and message.error() is None:
                self._batch.append(message)

    def _copy(self) -> None:
        """No polling in here: the batch and the group's generation belong together."""
        following = {(message.topic(), message.partition()): message.offset() + 1 for message in self._batch}
        offsets = [TopicPartition(*partition, offset) for partition, offset in following.items()]
        membership = self._consumer.consumer_group_metadata()
        self._producer.begin_transaction()
        try:
            for message in self._batch:
                value = transformed(message.value() or b"")
                self._producer.produce(self._target, value, message.key(), partition=message.partition())
            self._work()
            _until_done(lambda: self._producer.send_offsets_to_transaction(offsets, membership, CALL_TIMEOUT_S))
            self._work()
            _until_done(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))
        except KafkaException as failure:
            if failure.args[0].fatal():
                raise
            _until_done(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S))
            raise Aborted from failure

    def _work(self) -> None:
        """Now and then a transaction takes its time, with everything written and nothing decided, so that what happens
        to the broker and to this process may well happen here."""
        if pause_s := random.choice(WORK_S):
            self._producer.flush(pause_s)
            time.sleep(pause_s)

    def _rewind(self) -> None:
        """Back to where the group stands. A partition that is about to come or go can't be sought in."""
        deadline = time.monotonic() + REWIND_TIMEOUT_S
        while True:
            try:
                for place in self._consumer.committed(self._consumer.assignment(), CALL_TIMEOUT_S):
                    if place.error is not None:
                        raise KafkaException(place.error)
                    offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                    self._consumer.seek(TopicPartition(place.topic, place.partition, offset))
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                self._discard()

    def _discard(self) -> None:
        """Lets the group's callbacks run; what comes meanwhile is read again after the rewind."""
        self._consumer.poll(0.1)


def _until_done(call: Callable[[], object]) -> None:
    """A call that could not be finished in time may be made again, and must be, as long as it says so."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable() or failure.args[0].txn_requires_abort():
                raise


def main(*arguments: str) -> None:
    try:
        Copier(*arguments).run()
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        print(error, file=sys.stderr)
        print(error.name(), file=sys.stderr, flush=True)
        sys.exit(FATAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
