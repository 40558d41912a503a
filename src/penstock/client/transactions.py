"""Transactions: what was read, what was written for it, and that it was read, visible together or not at all.

A transaction ends in one of three ways. It is committed. Or it is aborted, by an exception of the block or because the
broker said so: then nothing of it is visible and its consumer stands where the block began. Or its producer is fenced,
and another one does the work now. What may be tried again is tried again in here; what the same block would meet again,
such as a message that is too large, is aborted and raised as what it is.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.arguments import check_count
from penstock.client.deliveries import Delivery
from penstock.client.errors import (
    BadName,
    BrokerUnreachable,
    MessageTooLarge,
    NotAuthorized,
    PenstockError,
    ProducerFenced,
    TopicNotFound,
    TransactionAborted,
    UsageError,
    after,
    from_kafka,
    no_broker,
)
from penstock.client.kinds import K, V
from penstock.client.loops import stopped_by_signals, until_signals
from penstock.client.message import Message, Place
from penstock.client.names import check_timeout
from penstock.client.options import SendOptions
from penstock.client.signals import holding_signals

if TYPE_CHECKING:
    from penstock.client.producer import Producer
    from penstock.client.reader import Reader

CALL_S = 10.0  # of one call to librdkafka, which goes on with the next one where it was
RETRY_S = 0.05
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
RUN_AGAIN = "Run the block again."
FOR_GOOD = (MessageTooLarge, NotAuthorized, TopicNotFound, BadName)  # the same block would fail again


class Transaction(Generic[K, V]):
    """One transaction of a producer, and of a consumer if it reads: `with` begins it and decides it."""

    def __init__(self, producer: Producer, reader: Reader | None = None) -> None:
        self._producer = producer
        self._reader = reader
        self._signals = ExitStack()  # a signal ends it in order, until it is decided
        self._lost: list[Place] = []  # what it read of, and another member of the group will read again
        timeout_ms = producer.settings.get("transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS)
        self._patience_s = 2 * int(timeout_ms) / 1000

    # ---- within

    def messages(self, count: int | None = None, timeout: float = 1.0) -> Iterator[Message[K, V]]:
        """What is there within `timeout` seconds, up to `count`. All of it is read when the transaction commits."""
        if self._reader is None:
            raise UsageError("this transaction has no consumer.", "consumer.transaction(producer) reads and writes.")
        check_timeout(timeout)
        check_count(count)
        return self._messages(self._reader, count, timeout)

    def _messages(self, reader: Reader, count: int | None, timeout: float) -> Iterator[Message[K, V]]:
        for message in until_signals(reader, count, timeout, in_all=True):
            self.check_not_lost()
            yield message
        self.check_not_lost()

    def send(self, topic: str, value: Any = None, **options: Unpack[SendOptions]) -> Delivery:
        """As `Producer.send`. Nobody who reads what is committed sees it before the transaction is."""
        return self._producer.send(topic, value, **options)

    def check_not_lost(self) -> None:
        if self._lost:
            topic, partition = self._lost[0]
            raise TransactionAborted(
                f"the group gave {topic}[{partition}] to another member while the transaction was open.", RUN_AGAIN
            )

    def _taken_away(self, places: list[Place]) -> None:
        read = (self._reader.read_since if self._reader is not None else None) or {}
        self._lost += [place for place in places if place in read]

    # ---- begin and end

    def __enter__(self) -> Self:
        with ExitStack() as signals:
            reader = self._reader
            signals.enter_context(holding_signals() if reader is None else stopped_by_signals(reader))
            self._producer.begin_transaction(self)
            self._signals = signals.pop_all()
        if self._reader is not None:
            self._reader.settle()
            self._reader.read_since = {}
            self._reader.on_revoke.append(self._taken_away)
            self._reader.on_lost.append(self._taken_away)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._reader is None:
                self._decide(error)
            else:  # and nobody closes it meanwhile
                self._reader.from_any_thread(lambda: self._decide(error))
        finally:
            self._producer.end_transaction()
            if self._reader is not None:
                self._reader.read_since = None
                self._reader.on_revoke.remove(self._taken_away)
                self._reader.on_lost.remove(self._taken_away)
            self._signals.close()

    def _decide(self, error: BaseException | None) -> None:
        if error is not None:
            after(error, self._abort, "the transaction could not be aborted")
        elif self._reader is not None and self._reader.is_closed:
            self._abort()
            raise UsageError(
                "the consumer was closed within its transaction, which was aborted: nothing of it is visible.",
                "Close it behind the block.",
            )
        else:
            self._commit()

    def abandon(self) -> None:
        """Ends what has begun, and nobody wants any more."""
        self.__exit__(CancelledError, CancelledError(), None)

    def _commit(self) -> None:
        try:
            self.check_not_lost()
            if self._reader is not None:
                self._send_offsets(self._reader)
            self._insist(self._producer.kafka.commit_transaction, "committing a transaction")
        except (TransactionAborted, *FOR_GOOD) as failure:
            hopeless = self._producer.first_failure(FOR_GOOD)
            self._abort()
            if hopeless is not None and isinstance(failure, TransactionAborted):
                raise hopeless from failure
            raise
        except ProducerFenced:
            self._producer.forget_failures()
            self._put_back()
            raise

    def _send_offsets(self, reader: Reader) -> None:
        reader.count_in_hand()
        reader.settle()
        assert reader.read_since is not None
        offsets = [TopicPartition(*place, end) for place, (_, end) in reader.read_since.items()]
        if not offsets:
            return
        member = reader.kafka.consumer_group_metadata()
        self._insist(
            lambda timeout_s: self._producer.kafka.send_offsets_to_transaction(offsets, member, timeout_s),
            "committing what was read",
        )

    def _abort(self) -> None:
        try:
            self._insist(self._producer.kafka.abort_transaction, "aborting a transaction")
        finally:
            self._producer.forget_failures()
            self._put_back()

    def _put_back(self) -> None:
        if self._reader is not None and not self._reader.is_closed:
            self._reader.put_back()

    def _insist(self, call: Callable[[float], object], doing: str) -> None:
        """Again, as long as librdkafka says that it may be tried again."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            try:
                call(CALL_S)
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable():
                    raise self._producer.explained(_verdict(error, doing)) from failure
                if time.monotonic() > deadline_s:
                    raise _unknown(error, doing) from failure
            time.sleep(RETRY_S)


def _verdict(error: KafkaError, doing: str) -> PenstockError:
    found = from_kafka(error, doing)
    if error.txn_requires_abort() and not isinstance(found, FOR_GOOD):
        text = f"{doing}: {error.str().rstrip('.')} ({error.name()})."
        return TransactionAborted(text, f"Nothing of it is visible. {RUN_AGAIN}", kafka_error=error.name())
    if error.fatal() and not isinstance(found, ProducerFenced):
        return ProducerFenced(found.text, found.hint, kafka_error=error.name())
    return found


def _unknown(error: KafkaError, doing: str) -> PenstockError:
    return BrokerUnreachable(
        f"{doing}: no answer ({error.str().rstrip('.')}).",
        "Whether the transaction was committed is not known. Close this producer and this consumer and make others: "
        "they go on from what was.",
        kafka_error=error.name(),
    )


def prepare(producer: Producer) -> None:
    """Before the first transaction: takes over the transactional id, and ends what another left open under it."""
    deadline_s = time.monotonic() + producer.connect_timeout_s
    while True:
        try:
            producer.kafka.init_transactions(max(0.1, min(CALL_S, deadline_s - time.monotonic())))
            return
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not error.retriable():
                raise _verdict(error, "preparing transactions") from failure
            if time.monotonic() >= deadline_s:
                raise no_broker(producer.bootstrap, error) from failure
        time.sleep(RETRY_S)
