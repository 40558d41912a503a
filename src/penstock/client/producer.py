"""Sending messages: the synchronous producer."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from penstock.client.arguments import check_header_names, check_partition, check_seconds, check_timestamp
from penstock.client.deliveries import Delivery, WakeUps
from penstock.client.delivery import DeliveryName, find_delivery
from penstock.client.errors import (
    FENCED_HINT,
    BrokerUnreachable,
    DeliveryFailed,
    PenstockError,
    SettingsError,
    UsageError,
    after,
    from_kafka,
    given_up,
    no_room,
)
from penstock.client.known_topics import KnownTopics
from penstock.client.message import Header
from penstock.client.names import check_timeout, find_bootstrap
from penstock.client.partitioning import Partitioner, choose_partition, split_partitioner
from penstock.client.profiles import ProfileName, find_profile
from penstock.client.serializers import Serializer, not_text, serialize, serializer, wrong_type
from penstock.client.settings import Settings, producer_settings, refused
from penstock.client.transactions import DEFAULT_TRANSACTION_TIMEOUT_MS, Transaction, prepare

Headers = Mapping[str, str | bytes | None] | Iterable[Header]

POLL_EVERY = 64  # messages: what librdkafka has to say meanwhile is said together
POLL_S = 0.05  # while something is on its way: closing waits for the thread that polls
ROOM_SLICE_S = 0.1
FAILURES_MAX = 100  # remembered for the next flush; more of them say nothing new


class Producer:
    """Sends messages to topics.

    `bootstrap`          brokers to ask first, HOST:PORT with commas between; else $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092
    `delivery`           what is promised about each message
    `profile`            what it may cost
    `key`                how keys become bytes: a callable, or "json", "text", "bytes"
    `value`              the same for values; without one, bytes are sent as they are and text as UTF-8
    `partitioner`        a callable of the key's bytes and the count of partitions, or the name of one of librdkafka's
    `transactional_id`   for exactly-once: whoever comes with the same id takes over; unique if it is not given
    `send_timeout_s`     how long `send` waits for room
    `connect_timeout_s`  how long the first message to a topic waits for a broker
    `settings`           settings of librdkafka, which count more than the profile's

    May be used by several threads. As a context manager it is closed in the end.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        delivery: DeliveryName = "at-least-once",
        profile: ProfileName = "balanced",
        key: str | Serializer | None = None,
        value: str | Serializer | None = None,
        partitioner: str | Partitioner | None = None,
        transactional_id: str | None = None,
        send_timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.bootstrap = find_bootstrap(bootstrap)
        self.mode = find_delivery(delivery)
        self.transactional_id = _transactional_id(transactional_id, self.mode.is_transactional, delivery)
        self._has_own_id = transactional_id is None
        name, self._partitioner = split_partitioner(partitioner)
        arguments: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "partitioner": name}
        if self.transactional_id is not None:
            arguments["transactional.id"] = self.transactional_id
        self._settings = producer_settings(self.mode, find_profile(profile), arguments, settings)
        self._write_key = serializer(key, "key")
        self._write_value = serializer(value, "value")
        self._send_timeout_s = check_seconds(send_timeout_s, "send_timeout_s")
        self.connect_timeout_s = check_seconds(connect_timeout_s, "connect_timeout_s")
        self._unpolled = 0
        self._failures: dict[int, Delivery] = {}  # that nobody asked about
        self.wake_ups = WakeUps()
        self._poller: threading.Thread | None = None
        self._awaited = threading.Event()  # somebody waits for what may be on its way
        self._closed = False
        self._transaction: Transaction[Any, Any] | None = None
        self._prepared = False
        self.kafka = self._make()
        self._produce = self.kafka.produce
        self._topics = KnownTopics(self.kafka, self.bootstrap, self.connect_timeout_s, self._partitioner is not None)
        self._partitions = self._topics.partitions

    def _make(self) -> KafkaProducer:
        try:
            return KafkaProducer(self.settings)
        except KafkaException as failure:
            raise refused(failure, self.settings) from failure
        except (TypeError, ValueError) as failure:
            raise SettingsError(f"settings: {failure}.") from failure

    @property
    def settings(self) -> Settings:
        """What librdkafka was given: of the names, of the arguments, and of `settings`."""
        return self._settings

    # ---- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Hands a message over and returns at once, or as soon as there is room for it.

        Waits while the local queue is full, for `send_timeout_s` at most. The first message to a topic waits until a
        broker has said that the topic exists.
        """
        if topic not in self._partitions:
            self.meet(topic)
        if self._write_value is not None and value is not None:
            value = serialize(self._write_value, value, "value", topic)
        if self._write_key is not None and key is not None:
            key = serialize(self._write_key, key, "key", topic)
        if partition is None:
            partition = -1 if self._partitioner is None else self._choose(topic, key)
        delivery = Delivery(self, topic)
        try:
            if headers is None and timestamp_ms is None:
                self._produce(topic, value, key, partition, delivery.settle)
            else:
                headers = _pairs(headers)  # once: an iterator would be empty when there is room
                self._produce_more(topic, value, key, partition, delivery, headers, timestamp_ms)
        except BufferError:
            self.wait_for_room(topic, value, key, partition, delivery, headers, timestamp_ms)
        except KafkaException as failure:
            raise self._refusal(failure.args[0], topic) from failure
        except UnicodeEncodeError as failure:
            raise not_text(failure, value, key, topic) from failure
        except (TypeError, OverflowError) as failure:
            check_partition(partition)
            raise wrong_type(value, key, headers, topic) from failure
        self._unpolled += 1
        if self._unpolled >= POLL_EVERY:
            self._unpolled = 0
            self.poll()
        return delivery

    def _produce_more(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        delivery: Delivery,
        pairs: Any,
        timestamp_ms: int | None,
    ) -> None:
        if pairs:
            check_header_names(pairs)
        at_ms = 0 if timestamp_ms is None else check_timestamp(timestamp_ms)
        self._produce(topic, value, key, partition, delivery.settle, None, at_ms, pairs or None)

    def wait_for_room(self, topic: str, value: Any, key: Any, partition: int, delivery: Delivery, *more: Any) -> None:
        """Back-pressure: the queue is full because the broker takes less than we give."""
        deadline_s = time.monotonic() + self._send_timeout_s
        while time.monotonic() < deadline_s:
            self.poll(ROOM_SLICE_S)
            try:
                return self._produce_more(topic, value, key, partition, delivery, *more)
            except BufferError:
                continue
            except KafkaException as failure:
                raise self._refusal(failure.args[0], topic) from failure
        raise no_room(topic, self._send_timeout_s)

    def _refusal(self, error: KafkaError, topic: str) -> PenstockError:
        if self._transaction is None and self.mode.is_transactional and error.code() == KafkaError._STATE:
            text = "a producer with delivery='exactly-once' sends in transactions."
            return UsageError(text, "with producer.transaction() as txn: txn.send(…)")
        found = from_kafka(error, f"sending to {topic!r}")
        if self.mode.is_transactional and error.code() == KafkaError._FATAL:  # all that is said of a fenced one
            found.hint = FENCED_HINT
        return self.explained(found)

    def _choose(self, topic: str, key: bytes | str | None) -> int:
        assert self._partitioner is not None
        if not self._topics.knows(topic):
            self._topics.meet(topic)
        try:
            data = key.encode() if isinstance(key, str) else key
        except UnicodeEncodeError as failure:
            raise not_text(failure, None, key, topic) from failure
        return choose_partition(self._partitioner, data, self._partitions[topic], topic)

    def knows(self, topic: str) -> bool:
        return self._topics.knows(topic)

    def meet(self, topic: str) -> None:
        """Before the first message to a topic: is there a broker, and the topic? May create it, as Kafka does."""
        self._check_open()
        self._topics.meet(topic)

    # ---- transactions

    def transaction(self) -> Transaction[Any, Any]:
        """`with producer.transaction() as txn: txn.send(…)`: all of it becomes visible together, or nothing.

        SIGTERM and Ctrl-C, where they would end the program, do so when it is decided; a second one does so at once.
        """
        self.check_transactional()
        return Transaction(self)

    def begin_transaction(self, transaction: Transaction[Any, Any]) -> None:
        self.check_transactional()
        if self._transaction is not None:
            raise UsageError("the producer's last transaction is still open.", "Each producer has one at a time.")
        if not self._prepared:
            prepare(self)
            self._prepared = True
        try:
            self.kafka.begin_transaction()
        except KafkaException as failure:
            raise self.explained(from_kafka(failure.args[0], "beginning a transaction")) from failure
        self._transaction = transaction

    def end_transaction(self) -> None:
        self._transaction = None

    def explained(self, failure: PenstockError) -> PenstockError:
        """Nobody else has an id that was made up here: who is fenced all the same took too long."""
        if failure.hint == FENCED_HINT and self._has_own_id:
            limit_s = int(self.settings.get("transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS)) / 1000
            failure.hint = (
                f"The brokers gave the transaction up: it was open for {limit_s:g} s. Close this producer, and its "
                "consumer, and make others; a block that needs longer says so: settings={'transaction.timeout.ms': …}."
            )
        return failure

    def first_failure(self, kinds: tuple[type[PenstockError], ...]) -> PenstockError | None:
        """Of these kinds, of a message that nobody asked about."""
        self.poll()
        failures = (delivery.exception() for delivery in list(self._failures.values()))
        return next((failure for failure in failures if isinstance(failure, kinds)), None)

    def forget_failures(self) -> None:
        """Of a transaction that was aborted, nobody need be told which messages did not arrive."""
        self._failures.clear()

    def check_transactional(self) -> None:
        self._check_open()
        if not self.mode.is_transactional:
            raise UsageError(
                f"a producer with delivery={self.mode.name!r} has no transactions.", "Make it delivery='exactly-once'."
            )

    # ---- acknowledgements

    def poll(self, timeout: float = 0.0) -> None:
        """Lets librdkafka say what has arrived. Sending and waiting do this anyway.

        That nothing more can be sent is raised here once, for whoever comes first. The deliveries say it too, and what
        is asked of the producer next.
        """
        with suppress(KafkaException):
            self.kafka.poll(timeout)

    def keep_polling(self) -> None:
        """Somebody wants to be called: a thread listens to librdkafka until everything has arrived."""
        self._awaited.set()
        if self._poller is None:
            self._poller = threading.Thread(target=self._listen, name="penstock-producer", daemon=True)
            self._poller.start()

    def _listen(self) -> None:
        while not self._closed:
            self._awaited.clear()
            while len(self.kafka) and not self._closed:
                self.poll(POLL_S)
            self._awaited.wait()

    def note_failure(self, delivery: Delivery) -> None:
        if len(self._failures) < FAILURES_MAX:
            self._failures[id(delivery)] = delivery

    def forget_failure(self, delivery: Delivery) -> None:
        self._failures.pop(id(delivery), None)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything is acknowledged. Raises if something was not, which nobody was told of yet."""
        check_timeout(timeout)
        self._check_open()
        try:
            left = self.kafka.flush(-1 if timeout is None else timeout)
        except KafkaException as failure:
            raise self.explained(from_kafka(failure.args[0], "flushing")) from failure
        if left:
            text = f"{left} messages were not acknowledged within {timeout} s."
            raise BrokerUnreachable(text, "They are still being sent: flush again, or see whether the broker runs.")
        self._raise_failures()

    def _raise_failures(self) -> None:
        if not self._failures:
            return
        failed, self._failures = list(self._failures.values()), {}
        first = failed[0].exception()
        assert first is not None
        if len(failed) == 1:
            raise first
        count = f"{len(failed)}{' or more' if len(failed) == FAILURES_MAX else ''}"
        text = f"{count} messages were not delivered; the first: {first.text}"
        raise DeliveryFailed(text, first.hint, retriable=first.retriable, kafka_error=first.kafka_error) from first

    # ---- the end

    def close(self, timeout: float | None = 30.0) -> None:
        """Sends what is still to be sent. What is not acknowledged within `timeout` seconds is given up.

        Raises if something was given up, or was not delivered, and is closed all the same.
        """
        check_timeout(timeout)
        if self._closed:
            return
        left = 0
        try:
            left = self.kafka.flush(-1 if timeout is None else timeout)
        except KafkaException:  # it can't go on. What was in a transaction is aborted, which its block has told
            left = 0 if self.mode.is_transactional else len(self.kafka)
        finally:
            self._closed = True
            self._partitions.clear()
            self.kafka.purge()
            with suppress(KafkaException):
                self.kafka.flush(1)
            self._awaited.set()
            if self._poller is not None and self._poller is not threading.current_thread():
                self._poller.join()
        if left:
            raise given_up(left, timeout)
        self._raise_failures()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the producer is closed.", "Make another one.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after(error, self.close, "the producer could not deliver everything")


def _transactional_id(given: str | None, is_transactional: bool, delivery: str) -> str | None:
    if given is not None and not is_transactional:
        raise SettingsError(
            f"transactional_id={given!r} and delivery={delivery!r} contradict each other.",
            "Transactions are delivery='exactly-once'.",
        )
    if given is not None and (not isinstance(given, str) or not given):
        raise SettingsError(f"transactional_id={given!r} is no id.", "It is text that is not empty: 'invoicing-1'.")
    return given or f"penstock-{uuid.uuid4()}" if is_transactional else None


def _pairs(headers: Any) -> Any:
    if headers is None or isinstance(headers, (dict, list)):
        return headers
    return dict(headers) if isinstance(headers, Mapping) else list(headers)
