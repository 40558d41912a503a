"""The writers of a run: at a steady rate whatever happens, every message known by a number.

The client tries again for as long as the run lasts. What it gives up on may have been written all the same; only what
it never took is sure not to have been.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

from tests.faults.copier import FAITHFUL
from tests.faults.load import PATIENT
from tests.history.events import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Acknowledged,
    Began,
    Ended,
    Failed,
    Message,
    Sent,
    Trouble,
    payload,
)
from tests.history.reader import place_of
from tests.history.writer import EventWriter, now

POLL_S = 0.01
CALL_S = 5.0
REST_S = 0.2
KEYS = 1000

IsStopped = Callable[[], bool]


class Writer:
    """Plain or idempotent."""

    def __init__(self, arguments: argparse.Namespace, events: EventWriter) -> None:
        self._arguments = arguments
        self._events = events
        self._lives = 0
        self._name = ""
        self._number = 0
        self._open: set[int] = set()  # numbers that nobody has answered yet
        self._began = now()
        self._total = 0
        self._fatal: KafkaError | None = None
        self._is_refusing = False  # the client took no message when it was last given one
        self._producer = self._new_producer()

    def _config(self) -> dict[str, object]:
        is_idempotent = self._arguments.kind == "idempotent"
        return {"enable.idempotence": is_idempotent, "message.timeout.ms": 0}

    def _new_producer(self) -> Producer:
        """Whoever takes over from one that failed for good promises nothing for the other's messages."""
        self._lives += 1
        self._name = self._arguments.name if self._lives == 1 else f"{self._arguments.name}.{self._lives}"
        self._number, self._open, self._fatal = 0, set(), None
        common = {"bootstrap.servers": self._arguments.bootstrap, "acks": "all", "linger.ms": 2, **PATIENT, **FAITHFUL}
        config = {**common, **self._config(), "error_cb": self._client_failed}
        is_idempotent = self._arguments.kind != "plain"
        transactional_id = config.get("transactional.id")
        self._events.write(Began(now(), self._name, is_idempotent, str(transactional_id) if transactional_id else None))
        return Producer(config)

    def _client_failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        self._events.write(Trouble(now(), self._name, error.name()))

    def run(self, is_stopped: IsStopped) -> None:
        while not is_stopped():
            self._send_what_is_due()
            if self._fatal is not None:
                self._replace()
        self._producer.flush(self._arguments.flush_s)
        self._give_up_open("not answered in the end")

    def _send_what_is_due(self, transaction: int | None = None, budget: int = 1 << 30) -> int:
        """As many as the rate asks for by now; how many."""
        due = min(int((now() - self._began) * self._arguments.rate) - self._total, budget)
        sent = 0
        while sent < due and self._send(transaction):
            sent += 1
        self._total += sent
        self._producer.poll(POLL_S)
        return sent

    def _send(self, transaction: int | None) -> bool:
        message = Message(self._name, self._number)
        key = f"{self._number % KEYS}" if self._arguments.keyed else None
        partition = None if self._arguments.keyed else self._number % self._arguments.partitions
        where = {"key": key} if partition is None else {"partition": partition}
        topic = self._arguments.topic
        self._events.write(Sent(now(), *message, topic, partition, key, transaction))
        self._number += 1
        try:
            self._producer.produce(topic, payload(message), on_delivery=self._reporter(message), **where)
        except (BufferError, KafkaException) as failure:
            why = "queue full" if isinstance(failure, BufferError) else failure.args[0].name()
            self._events.write(Failed(now(), *message, True, why))
            self._is_refusing = not isinstance(failure, BufferError)
            self._producer.poll(REST_S)
            return False
        self._is_refusing = False
        self._open.add(message.number)
        return True

    def _reporter(self, message: Message) -> Callable[[KafkaError | None, KafkaMessage], None]:
        def delivered(error: KafkaError | None, answer: KafkaMessage) -> None:
            if message.producer == self._name:
                self._open.discard(message.number)
            if error is not None:
                self._events.write(Failed(now(), *message, False, error.name()))
                return
            topic, partition, offset = place_of(answer)
            self._events.write(Acknowledged(now(), *message, topic, partition, offset))

        return delivered

    def _replace(self) -> None:
        assert self._fatal is not None
        self._events.write(Trouble(now(), self._name, f"replaced: {self._fatal.name()}"))
        self._producer.purge()
        self._producer.flush(CALL_S)
        self._give_up_open("its client failed")
        time.sleep(REST_S)
        self._producer = self._new_producer()

    def _give_up_open(self, why: str) -> None:
        self._events.write_all(Failed(now(), self._name, number, False, why) for number in sorted(self._open))
        self._open.clear()


class TransactionalWriter(Writer):
    """So many messages a transaction, some of which are aborted on purpose."""

    def __init__(self, arguments: argparse.Namespace, events: EventWriter) -> None:
        self._random = random.Random(arguments.seed)
        super().__init__(arguments, events)

    def _config(self) -> dict[str, object]:
        return {
            "transactional.id": self._arguments.name,
            "transaction.timeout.ms": self._arguments.transaction_timeout_ms,
        }

    def run(self, is_stopped: IsStopped) -> None:
        transaction = 0
        is_ready = False
        deadline = [float("inf")]

        def is_over() -> bool:
            """Once it is asked to stop, a transaction may be finished, if that does not take for ever."""
            if is_stopped():
                deadline[0] = min(deadline[0], now() + self._arguments.flush_s)
            return now() > deadline[0]

        while not is_stopped():
            try:
                if not is_ready:
                    self._until_done(lambda: self._producer.init_transactions(CALL_S), is_over)
                    is_ready = True
                transaction += 1
                self._transact(transaction, is_over)
            except GaveUp:
                break
            except KafkaException as failure:
                self._fatal = failure.args[0]
                self._replace()
                is_ready = False
        self._give_up_open("not answered in the end")

    def _transact(self, transaction: int, is_over: IsStopped) -> None:
        shall_abort = self._random.random() < self._arguments.abort_ratio
        self._is_refusing = False
        self._producer.begin_transaction()
        outcome = UNKNOWN
        try:
            left = self._arguments.transaction_size
            while left > 0 and not self._is_refusing and not is_over():
                left -= self._send_what_is_due(transaction, left)
                if self._fatal is not None:
                    raise KafkaException(self._fatal)
            if shall_abort:
                self._until_done(lambda: self._producer.abort_transaction(CALL_S), is_over)
                outcome = ABORTED
            else:
                outcome = self._commit(is_over)
        finally:
            self._producer.poll(0)
            self._events.write(Ended(now(), self._name, transaction, outcome))

    def _commit(self, is_over: IsStopped) -> str:
        try:
            self._until_done(lambda: self._producer.commit_transaction(CALL_S), is_over)
            return COMMITTED
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            self._events.write(Trouble(now(), self._name, f"commit: {error.name()}"))
            if not error.txn_requires_abort():
                raise
        self._until_done(lambda: self._producer.abort_transaction(CALL_S), is_over)
        return ABORTED

    def _until_done(self, call: Callable[[], object], is_over: IsStopped) -> None:
        """A call that could not be finished in time may be made again, and must be, as long as it says so."""
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or error.txn_requires_abort():
                    raise
                if is_over():
                    raise GaveUp from failure


class GaveUp(Exception):
    """The run is over, and the broker still does not answer."""
