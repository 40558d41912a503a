"""Handing messages over: copies go to other topics, and the offsets of their sources behind them.

Two ways. Acknowledged: copies are sent at once, many at a time, and a source counts as done when its copy is on all
in-sync replicas. Transactional: copies and offsets are kept, and become visible together in one transaction, or not at
all (KIP-98, and KIP-447 for a producer per process: the group's generation fences one that has lost its partitions).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from penstock.client.errors import DeliveryFailed, MessageTooLarge, PenstockError, ProducerFenced, from_kafka
from penstock.client.retrying.headers import Header, Parked

if TYPE_CHECKING:
    from confluent_kafka import Consumer

ON_THEIR_WAY_MAX = 10_000
ROOM_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 30.0
TRANSACTION_TIMEOUT_S = 30.0
TRANSACTION_TRIES = 5
# What a process leaves open when it dies holds up who reads behind it. All of a transaction is there when it begins.
OPEN_MS_MAX = 10_000
SEND_WITHIN_S = 0.1  # copies wait for others, but not for slow handlers
LINGER_MS = 20  # what is parked has time; fewer and larger batches cost the brokers less
MESSAGE_BYTES_MAX = 1_000_000_000  # the topic decides; librdkafka's own limit would be too small for our headers

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
LOST = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)


class Copy(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    user_headers: Sequence[Header]
    parked: Parked

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        return [*self.user_headers, *self.parked.headers()]


class PartitionsLost(Exception):
    """The group gave our partitions to another, who will read again what was not committed."""


def producer_settings(client: Mapping[str, Any]) -> dict[str, Any]:
    return {**client, "enable.idempotence": True, "message.max.bytes": MESSAGE_BYTES_MAX, "linger.ms": LINGER_MS}


class Acknowledged:
    """For at least once."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._producer = Producer(producer_settings(client))
        self._failed: PenstockError | None = None
        self._to_send: list[tuple[Copy, Callable[[], None]]] = []
        self._send_at_s = 0.0  # when the first of these has waited long enough
        self.on_their_way = 0

    def send(self, copy: Copy, when_done: Callable[[], None]) -> None:
        """Goes with the next `dispatch`. Returns at once, but where very many are on their way already."""
        self.check()
        if self.on_their_way >= ON_THEIR_WAY_MAX:
            self._wait_for_room()
        self.on_their_way += 1
        if not self._to_send:
            self._send_at_s = time.monotonic() + SEND_WITHIN_S
        self._to_send.append((copy, when_done))

    def dispatch_due(self) -> None:
        """Several in a row cost much less than each by itself, which wakes librdkafka's threads every time."""
        if self._to_send and time.monotonic() >= self._send_at_s:
            self.dispatch()

    def dispatch(self) -> None:
        sending, self._to_send = self._to_send, []
        for copy, when_done in sending:
            self._produce(copy, when_done)

    def poll(self) -> None:
        if self.on_their_way:
            self.dispatch_due()
            self._producer.poll(0)
            self.check()

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> bool:
        """Whether all are acknowledged."""
        if self.on_their_way:
            self.dispatch()
            self._producer.flush(timeout_s)
        return not self.on_their_way

    def close(self) -> None:
        if self.on_their_way:
            self._producer.purge()
            self._producer.flush(1)

    def _produce(self, copy: Copy, when_done: Callable[[], None]) -> None:
        def report(error: KafkaError | None, _: object) -> None:
            self._reported(error, copy, when_done)

        while True:
            try:
                self._producer.produce(
                    copy.topic, copy.value, copy.key, partition=copy.partition, headers=copy.headers, on_delivery=report
                )
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as failure:
                self._reported(failure.args[0], copy, when_done)
                return

    def _reported(self, error: KafkaError | None, copy: Copy, when_done: Callable[[], None]) -> None:
        if error is None:
            self.on_their_way -= 1
            when_done()
        elif error.code() in TOO_LARGE and copy.parked.failure.stack:
            self._produce(copy._replace(parked=copy.parked.without_stack()), when_done)
        else:
            self._failed = self._failed or not_handed_over(error, copy)

    def _wait_for_room(self) -> None:
        self.dispatch()
        deadline = time.monotonic() + ROOM_TIMEOUT_S
        while self.on_their_way >= ON_THEIR_WAY_MAX:
            self._producer.poll(0.1)
            self.check()
            if time.monotonic() > deadline:
                raise DeliveryFailed(
                    f"{self.on_their_way} messages could not be put aside within {ROOM_TIMEOUT_S:.0f} s.",
                    "Is a broker down? 'penstock cluster status' tells. They stay where they were.",
                )


def not_handed_over(error: KafkaError, copy: Copy) -> PenstockError:
    source = copy.parked.source
    doing = f"the message at {source.topic}[{source.partition}]@{source.offset} can't be put into {copy.topic!r}"
    found = from_kafka(error, doing)
    if isinstance(found, MessageTooLarge):
        found.hint = (
            f"Raise max.message.bytes of {copy.topic!r}: 'penstock topic alter'. The message stays where it was."
        )
    return found


class Transactional:
    """For exactly once."""

    def __init__(self, client: Mapping[str, Any], group: str, instance: str | None = None) -> None:
        self._settings = {
            **producer_settings(client),
            "transactional.id": f"penstock-{group}-{instance or uuid4().hex}",
            "transaction.timeout.ms": OPEN_MS_MAX,
            # A producer that bootstraps again forgets its producer id, and waits for ever (librdkafka 5511).
            "metadata.recovery.strategy": "none",
        }
        self._id_is_ours_alone = instance is None
        self._producer: Producer | None = None
        self._refused: PenstockError | None = None  # a copy that no topic takes, found in the last try
        self.kept: list[Copy] = []
        self.is_in_doubt = False  # the last transaction was to be committed, and nobody said whether it is

    def take_over(self) -> None:
        """Ends what a process before us left open, if its name was ours."""
        try:
            self._ready()
        except KafkaException as failure:
            raise from_kafka(failure.args[0], "preparing transactions") from failure

    def commit(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        """Copies and offsets, in one. Raises PartitionsLost when they are no longer ours: then nothing happened.

        After any other error nothing happened either, but where that is in doubt. The copies are still kept.
        """
        for last in (*[False] * (TRANSACTION_TRIES - 1), True):
            self._refused = None
            self.take_over()
            try:
                producer = self._ready()
                producer.begin_transaction()
                for copy in self.kept:
                    self._produce(producer, copy)
                self._again(lambda: self._send_offsets(offsets, consumer))
                self.is_in_doubt = True
                self._again(lambda: self._ready().commit_transaction(TRANSACTION_TIMEOUT_S))
                self.is_in_doubt = False
                self.kept.clear()
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not (error.fatal() and self._id_is_ours_alone) or last:
                    self._abort(error, last)
                elif self._has_happened(consumer, offsets):
                    self.kept.clear()
                    return

    def _has_happened(self, consumer: Consumer, offsets: list[TopicPartition]) -> bool:
        """After an error that a producer does not survive. Nobody else has its id, so the brokers gave up a transaction
        that they had not heard of for too long. The next producer ends it for certain; then the offsets tell."""
        self._producer = None
        try:
            self._ready()
            asked = [TopicPartition(place.topic, place.partition) for place in offsets]
            found: list[TopicPartition] = []
            self._again(lambda: found.extend(consumer.committed(asked, timeout=TRANSACTION_TIMEOUT_S)))
        except KafkaException as failure:
            raise from_kafka(failure.args[0], "finding out what became of a transaction") from failure
        self.is_in_doubt = False
        return all(place.offset >= wanted.offset for place, wanted in zip(found, offsets, strict=True))

    def _send_offsets(self, offsets: list[TopicPartition], consumer: Consumer) -> None:
        metadata = consumer.consumer_group_metadata()
        self._ready().send_offsets_to_transaction(offsets, metadata, TRANSACTION_TIMEOUT_S)

    def _ready(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._settings)
            self._again(lambda: producer.init_transactions(TRANSACTION_TIMEOUT_S))
            self._producer = producer
        return self._producer

    def _again(self, step: Callable[[], object]) -> None:
        """librdkafka goes on where it was, when asked again after an error that may be retried."""
        deadline = time.monotonic() + 2 * TRANSACTION_TIMEOUT_S
        while True:
            try:
                step()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _produce(self, producer: Producer, copy: Copy) -> None:
        def report(error: KafkaError | None, _: object) -> None:
            if error is not None and error.code() in TOO_LARGE:
                self._shorten(copy, error)

        while True:
            try:
                producer.produce(
                    copy.topic, copy.value, copy.key, partition=copy.partition, headers=copy.headers, on_delivery=report
                )
                return
            except BufferError:
                producer.poll(0.1)

    def _shorten(self, copy: Copy, error: KafkaError) -> None:
        """For the next try, if there is any use in one: this one is aborted by what the broker said."""
        if copy.parked.failure.stack:
            self.kept[self.kept.index(copy)] = copy._replace(parked=copy.parked.without_stack())
        else:
            self._refused = self._refused or not_handed_over(error, copy)

    def _abort(self, error: KafkaError, last: bool) -> None:
        if error.fatal():
            raise ProducerFenced(
                f"what was put aside can't be committed: {error.str()} ({error.name()}).",
                "Nothing of it is visible. Start the consumer again; it goes on where it was.",
                kafka_error=error.name(),
            )
        producer = self._ready()
        try:
            self._again(lambda: producer.abort_transaction(TRANSACTION_TIMEOUT_S))
        except KafkaException as failure:
            raise from_kafka(failure.args[0], "aborting what can't be committed") from failure
        self.is_in_doubt = False
        if error.code() in LOST:
            raise PartitionsLost
        if self._refused is not None:
            raise self._refused
        if last:
            raise from_kafka(error, "committing what was put aside")
