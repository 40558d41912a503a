"""Doing something about dead letters, and marking them as done, in one transaction.

There is one transactional id for each topic of dead letters. Who begins fences whoever is at it, and aborts what that
one had open; it reads what is done only then. So of two at once, one wins, and nothing is done twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.cli.problem import Problem

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

    from penstock.cli.connection import Connection
    from penstock.cli.dlq.shelf import Letter

TIMEOUT_S = 30.0
COMMIT_S_MAX = 60.0
SLICE_S = 1.0  # within which Ctrl-C is noticed
LETTERS_MAX = 500  # in one transaction
BYTES_MAX = 16 * 1024 * 1024  # and so much of them, or one letter that is larger


class Marking:
    def __init__(self, connection: Connection, topic: str) -> None:
        from confluent_kafka import KafkaException, Producer

        from penstock.cli.connection import client_settings

        self._connection = connection
        self._topic = topic
        settings = client_settings(
            connection.bootstrap,
            **{"transactional.id": f"penstock-redrive-{topic}", "message.max.bytes": 1_000_000_000, "linger.ms": 5},
        )
        quiet = logging.getLogger("penstock.dlq")  # being fenced is told by us, and not as a fatal error
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._producer: Producer = Producer(settings, logger=quiet)
        self._refusals: list[KafkaError] = []
        try:
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as failure:
            raise self._problem(failure.args[0]) from failure

    def do(
        self, letters: Iterable[Letter], mark: str, send: Callable[[Letter], dict[str, Any] | None],
        progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        """For each letter, what `send` says is produced, if anything, and the letter is marked."""
        from confluent_kafka import KafkaException

        done = count = size = 0
        try:
            for letter in letters:
                if not count:
                    self._producer.begin_transaction()
                if (record := send(letter)) is not None:
                    self._produce(**record)
                place = f"{letter.partition}/{letter.offset}".encode()
                self._produce(topic=self._topic, partition=letter.partition, headers=[(mark, place)])
                count += 1
                size += len(letter.value or b"")
                if count == LETTERS_MAX or size >= BYTES_MAX:
                    self._commit()
                    done, count, size = done + count, 0, 0
                    progress(done)
            if count:
                self._commit()
                progress(done + count)
        except KafkaException as failure:
            raise self._problem(failure.args[0]) from failure

    def _produce(self, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(**record, on_delivery=self._reported)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _reported(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._refusals.append(error)

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        deadline_s = time.monotonic() + COMMIT_S_MAX
        while True:
            try:
                self._producer.commit_transaction(SLICE_S)
                return
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
                if time.monotonic() > deadline_s:
                    raise Problem(
                        f"the brokers did not say within {COMMIT_S_MAX:g} s whether the last letters are done.",
                        "They are, with their marks, or they are not: run this again when the brokers answer.",
                    ) from failure

    def _problem(self, error: KafkaError) -> Problem:
        from confluent_kafka import KafkaError, KafkaException

        from penstock.cli.connection import explain

        error = self._why(error)
        if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return Problem(
                f"another redrive or purge of {self._topic} began meanwhile, and this one stopped.",
                "Nothing was done twice. Wait for the other one; then this can be run again, for what is left.",
            )
        if error.txn_requires_abort():
            try:
                self._producer.abort_transaction(TIMEOUT_S)
            except KafkaException:
                pass  # the broker does it, when the transaction's time is over, or when another begins
        cause = self._refusals[0] if self._refusals else error
        return explain(cause, f"can't go on with {self._topic!r}", self._connection.bootstrap)

    def _why(self, error: KafkaError) -> KafkaError:
        """To whoever produces, librdkafka says only that it can't go on; to whoever ends a transaction, also why."""
        from confluent_kafka import KafkaError, KafkaException

        if error.code() == KafkaError._FATAL:
            try:
                self._producer.abort_transaction(TIMEOUT_S)
            except KafkaException as failure:
                cause: KafkaError = failure.args[0]
                return cause
        return error
