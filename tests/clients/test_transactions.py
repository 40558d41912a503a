"""Transactions as applications use them, with each client: all of what was written can be seen, or none of it."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import KafkaException
from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata

from penstock.protocol.errors import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Client, Consumer, Outgoing, Refused, read_all, send_all
from tests.clients.drivers.aio import run
from tests.clients.drivers.confluent import QUICK, ConfluentConsumer
from tests.clients.drivers.face import WAIT_S, Partition, poll_until
from tests.clients.steps import create_topic, wait_until
from tests.clients.test_retention_and_compaction import compacted_topic, end_the_segment

CONFLUENT = CLIENTS["confluent"]
END = b"the end "
LONG_MS = 60_000

_ends = itertools.count()

# What each client calls the end of a producer whose place another has taken.
FENCED = {confluent_kafka.KafkaError._FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, -1}


# ---- the clients' transactional producers behind one face


class Writer(Protocol):
    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> None: ...

    def flush(self) -> None:
        """What was sent is in the log; whether it counts is open."""

    def add_offsets(self, consumer: Any, group: str, offsets: dict[Partition, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Refused(error.args[0].code(), error) from error
    except PythonError as error:
        raise Refused(getattr(error, "errno", -1), error) from error


class ConfluentWriter:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        timing = {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": min(timeout_ms, 20_000)}
        self._producer = confluent_kafka.Producer({**config, **timing, **QUICK, "metadata.recovery.strategy": "none"})
        with refusals():
            self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> None:
        with refusals():
            self._producer.produce(topic, value, key, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0

    def add_offsets(self, consumer: Any, group: str, offsets: dict[Partition, int]) -> None:
        places = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        with refusals():
            self._producer.send_offsets_to_transaction(places, consumer._consumer.consumer_group_metadata(), WAIT_S)

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        self._producer.purge()
        with contextlib.suppress(KafkaException):  # a producer that was fenced says so once more
            self._producer.close(1)


class KafkaPythonWriter:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        timing = {"transaction_timeout_ms": timeout_ms, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 50}
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **timing)
        with refusals():
            self._producer.init_transactions()

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> None:
        with refusals():
            self._producer.send(topic, value, key, partition=partition)

    def flush(self) -> None:
        self._producer.flush(WAIT_S)

    def add_offsets(self, consumer: Any, group: str, offsets: dict[Partition, int]) -> None:
        places = {PythonPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        with refusals():
            self._producer.send_offsets_to_transaction(places, consumer._consumer.group_metadata())

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AiokafkaWriter:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = run(self._start(bootstrap, transactional_id, timeout_ms))
        self._sent: list[Any] = []

    @staticmethod
    async def _start(bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        identity = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **identity)
        await producer.start()
        return producer

    def begin(self) -> None:
        run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> None:
        self._sent.append(run(self._producer.send(topic, value, key, partition=partition)))

    def flush(self) -> None:
        run(self._producer.flush())

    def add_offsets(self, consumer: Any, group: str, offsets: dict[Partition, int]) -> None:
        places = {AioPartition(*partition): offset for partition, offset in offsets.items()}
        run(self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        run(self._producer.commit_transaction())

    def abort(self) -> None:
        run(self._producer.abort_transaction())

    def close(self) -> None:
        for sent in self._sent:
            sent.exception() if sent.done() and not sent.cancelled() else sent.cancel()
        run(self._producer.stop())


WRITERS: dict[str, Callable[[str, str, int], Writer]] = {
    "confluent": ConfluentWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
}
NewWriter = Callable[..., Writer]


@pytest.fixture
def new_writer(client: Client, bootstrap: str, unique: Callable[[str], str]) -> Iterator[NewWriter]:
    """Makes transactional producers of the client at hand, and closes them."""
    made: list[Writer] = []

    def make(transactional_id: str | None = None, *, at: str = bootstrap, timeout_ms: int = LONG_MS) -> Writer:
        made.append(WRITERS[client.name](at, transactional_id or unique("writer"), timeout_ms))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


def values_up_to_end(
    client: Client, bootstrap: str, topic: str, isolation: str, partition: int = 0
) -> list[bytes | None]:
    """All that is to be seen now: the end is written by a producer without transactions."""
    end = END + b"%d" % next(_ends)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(end, partition=partition)])
    consumer = client.consumer(bootstrap, isolation=isolation)
    consumer.assign((topic, partition))
    values: list[bytes | None] = []
    deadline = time.monotonic() + WAIT_S
    while end not in values:
        assert time.monotonic() < deadline, f"the end never came behind {values}"
        values += [message.value for message in consumer.poll()]
    consumer.close()
    return [value for value in values if value is None or not value.startswith(END)]


def committed_reader(client: Client, bootstrap: str, *partitions: Partition) -> Consumer:
    consumer = client.consumer(bootstrap, isolation="read_committed")
    consumer.assign(*partitions)
    return consumer


# ---- commit and abort


def test_a_committed_transaction_is_seen_by_all_and_only_then(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    careful = committed_reader(client, bootstrap, (topic, 0))
    writer.begin()
    writer.send(topic, b"one")
    writer.send(topic, b"two")
    writer.flush()
    assert [m.value for m in read_all(client, bootstrap, topic, 2)] == [b"one", b"two"]
    assert [m for _ in range(5) for m in careful.poll(0.1)] == []
    writer.commit()
    assert [m.value for m in poll_until(careful, 2)] == [b"one", b"two"]
    careful.close()


def test_an_aborted_transaction_is_seen_by_those_who_asked_for_it(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    for value, ends in ((b"first", writer.commit), (b"undone", writer.abort), (b"last", writer.commit)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        ends()
    for reader in CLIENTS.values():
        assert values_up_to_end(reader, bootstrap, topic, "read_committed") == [b"first", b"last"]
    assert values_up_to_end(client, bootstrap, topic, "read_uncommitted") == [b"first", b"undone", b"last"]


def test_what_was_never_flushed_is_aborted_too(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    writer.begin()
    for n in range(50):
        writer.send(topic, b"%d" % n)
    writer.abort()
    writer.begin()
    writer.send(topic, b"this one counts")
    writer.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"this one counts"]


def test_transactions_with_nothing_in_them_end_well(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    for end in (writer.commit, writer.abort, writer.commit):
        writer.begin()
        end()
    writer.begin()
    writer.send(topic, b"something")
    writer.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"something"]


def test_hundreds_of_transactions_follow_each_other(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    for n in range(150):
        writer.begin()
        writer.send(topic, b"%d" % n)
        if n % 3 == 2:
            writer.flush()
            writer.abort()
        else:
            writer.commit()
    expected = [b"%d" % n for n in range(150) if n % 3 != 2]
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == expected


def test_a_transaction_spans_topics_and_partitions(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topics, writer = [new_topic(8) for _ in range(3)], new_writer()
    everywhere = [(topic, partition) for topic in topics for partition in range(8)]
    for value, ends in ((b"kept", writer.commit), (b"undone", writer.abort), (b"kept too", writer.commit)):
        writer.begin()
        for topic, partition in everywhere:
            writer.send(topic, value, partition=partition)
        writer.flush()
        ends()
    careful = committed_reader(client, bootstrap, *everywhere)
    received = poll_until(careful, 2 * len(everywhere))
    careful.close()
    for place in everywhere:
        assert [m.value for m in received if (m.topic, m.partition) == place] == [b"kept", b"kept too"]


def test_transactions_of_two_producers_in_one_partition_end_apart(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, keeps, undoes = new_topic(), new_writer(), new_writer()
    keeps.begin()
    undoes.begin()
    for n in range(5):
        for writer, value in ((keeps, b"kept %d" % n), (undoes, b"undone %d" % n)):
            writer.send(topic, value)
            writer.flush()
    undoes.abort()
    careful = committed_reader(client, bootstrap, (topic, 0))
    assert [m for _ in range(5) for m in careful.poll(0.1)] == [], "one of them is still open"
    keeps.commit()
    assert [m.value for m in poll_until(careful, 5)] == [b"kept %d" % n for n in range(5)]
    careful.close()


def test_what_comes_behind_an_open_transaction_waits_for_it(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    """An idempotent producer without transactions writes to the same partition meanwhile."""
    topic, writer = new_topic(), new_writer()
    send_all(client, bootstrap, topic, [b"before"], idempotent=True)
    writer.begin()
    writer.send(topic, b"within")
    writer.flush()
    send_all(client, bootstrap, topic, [b"behind"], idempotent=True)
    careful = committed_reader(client, bootstrap, (topic, 0))
    assert [m.value for m in poll_until(careful, 1)] == [b"before"]
    assert [m for _ in range(5) for m in careful.poll(0.1)] == []
    writer.commit()
    assert [m.value for m in poll_until(careful, 2)] == [b"within", b"behind"]
    careful.close()


# ---- offsets


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter, unique: Callable[[str], str]
) -> None:
    source, target, group = new_topic(), new_topic(), unique("group")
    send_all(CONFLUENT, bootstrap, source, [b"%d" % n for n in range(10)])
    consumer = client.consumer(bootstrap, group=group)
    consumer.subscribe(source)
    poll_until(consumer, 10)
    writer = new_writer()
    for offset, ends, expected in ((4, writer.abort, None), (7, writer.commit, 7), (9, writer.abort, 7)):
        writer.begin()
        writer.send(target, b"up to %d" % offset)
        writer.add_offsets(consumer, group, {(source, 0): offset})
        ends()
        wait_until(lambda expected=expected: offset_of(consumer, source) == expected)
    consumer.close()
    assert values_up_to_end(client, bootstrap, target, "read_committed") == [b"up to 7"]


def offset_of(consumer: Consumer, topic: str) -> int | None:
    found = consumer.committed((topic, 0))
    return None if found is None else found.offset


def test_offsets_of_a_member_that_is_gone_are_refused(
    bootstrap: str, new_topic: Topics, unique: Callable[[str], str]
) -> None:
    """A zombie's transaction can't move the group on (KIP-447)."""
    source, group = new_topic(), unique("group")
    send_all(CONFLUENT, bootstrap, source, [b"%d" % n for n in range(10)])
    gone, stays = (CONFLUENT.consumer(bootstrap, group=group, session_timeout_ms=6000) for _ in range(2))
    gone.subscribe(source)
    poll_until(gone, 10)
    assert isinstance(gone, ConfluentConsumer)
    membership = gone.membership
    gone.close()
    stays.subscribe(source)
    poll_until(stays, 10)
    writer = ConfluentWriter(bootstrap, unique("writer"), LONG_MS)
    writer.begin()
    places = [confluent_kafka.TopicPartition(source, 0, 5)]
    with pytest.raises(KafkaException) as refused:
        writer._producer.send_offsets_to_transaction(places, membership, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    writer.abort()
    writer.close()
    assert stays.committed((source, 0)) is None
    stays.close()


# ---- whose transaction it is


def test_a_second_producer_with_the_same_id_fences_the_first(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter, unique: Callable[[str], str]
) -> None:
    topic, identity = new_topic(), unique("writer")
    first = new_writer(identity)
    first.begin()
    first.send(topic, b"of the first")
    first.flush()
    second = new_writer(identity)
    with pytest.raises(Refused) as refused:
        first.commit()
    assert refused.value.code in FENCED
    second.begin()
    second.send(topic, b"of the second")
    second.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"of the second"]
    assert values_up_to_end(client, bootstrap, topic, "read_uncommitted") == [b"of the first", b"of the second"]


def test_a_transaction_that_takes_too_long_is_aborted(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter, unique: Callable[[str], str]
) -> None:
    topic, identity = new_topic(), unique("writer")
    slow = new_writer(identity, timeout_ms=1000)
    slow.begin()
    slow.send(topic, b"too late")
    slow.flush()
    began = time.monotonic()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [], "it waits for the time-out"
    assert time.monotonic() - began > 0.3
    with pytest.raises(Refused):
        slow.commit()
    again = new_writer(identity)
    again.begin()
    again.send(topic, b"in time")
    again.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"in time"]


def test_a_time_out_beyond_the_brokers_limit_is_refused(bootstrap: str, unique: Callable[[str], str]) -> None:
    with pytest.raises(Refused) as refused:
        ConfluentWriter(bootstrap, unique("writer"), 16 * 60_000)
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


# ---- restarts


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_transactions_survive_a_restart(
    how: str, client: Client, new_broker: Callable[..., BrokerProcess], new_writer: NewWriter
) -> None:
    """One is decided before, one is open; readers find the first at once, the second when it is committed."""
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "ledger")
    decided, undone, opened = (new_writer(name, at=broker.bootstrap) for name in ("decided", "undone", "opened"))
    for writer, value in ((decided, b"decided"), (undone, b"undone"), (opened, b"open")):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
    decided.commit()
    undone.abort()
    broker.stop() if how == "stopped" else broker.kill()
    broker.start()
    careful = committed_reader(client, broker.bootstrap, (topic, 0))
    assert [m.value for m in poll_until(careful, 1)] == [b"decided"]
    opened.send(topic, b"open still")
    opened.commit()
    assert [m.value for m in poll_until(careful, 2)] == [b"open", b"open still"]
    careful.close()
    assert values_up_to_end(client, broker.bootstrap, topic, "read_committed") == [b"decided", b"open", b"open still"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_readers_reach_the_end_after_a_restart_although_nobody_writes(
    how: str, new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "ledger")
    writer = ConfluentWriter(broker.bootstrap, unique("writer"), LONG_MS)
    writer.begin()
    for n in range(3):
        writer.send(topic, b"%d" % n)
    writer.commit()
    writer.close()
    seen = read_all(CONFLUENT, broker.bootstrap, topic, 3, isolation="read_committed")
    broker.stop() if how == "stopped" else broker.kill()
    broker.start()
    assert read_all(CONFLUENT, broker.bootstrap, topic, 3, isolation="read_committed") == seen


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_transaction_whose_producer_is_gone_times_out_after_a_restart(
    how: str, new_broker: Callable[..., BrokerProcess]
) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "ledger")
    forgotten = ConfluentWriter(broker.bootstrap, "forgotten", 1500)
    forgotten.begin()
    forgotten.send(topic, b"forgotten")
    forgotten.flush()
    broker.stop() if how == "stopped" else broker.kill()
    broker.start()
    assert values_up_to_end(CONFLUENT, broker.bootstrap, topic, "read_committed") == []
    forgotten.close()


# ---- compaction


def test_compaction_keeps_the_newest_that_was_committed(
    client: Client, new_broker: Callable[..., BrokerProcess], new_writer: NewWriter
) -> None:
    """What was aborted goes, and never takes the place of what was committed before it."""
    broker = new_broker(log_cleaner_backoff_ms=100, log_retention_check_interval_ms=100)
    topic = compacted_topic(broker.bootstrap, "table")
    writer = new_writer(at=broker.bootstrap)
    for number, ends in ((0, writer.commit), (1, writer.commit), (2, writer.abort)):
        writer.begin()
        for key in range(10):
            writer.send(topic, b"%d.%d" % (number, key), b"key-%d" % key)
        writer.flush()
        ends()
    end_the_segment(broker.bootstrap, topic)
    kept = [(b"key-%d" % key, b"1.%d" % key) for key in range(10)]

    def table(isolation: str) -> list[tuple[bytes | None, bytes | None]]:
        values = read_up_to_tick(client, broker.bootstrap, topic, isolation)
        return [(key, value) for key, value in values if key != b"tick"]

    def is_compact() -> bool:
        careful = table("read_committed")
        assert careful[-10:] == kept
        return careful == kept == table("read_uncommitted")

    wait_until(is_compact, timeout_s=40)


def read_up_to_tick(
    client: Client, bootstrap: str, topic: str, isolation: str
) -> list[tuple[bytes | None, bytes | None]]:
    consumer = client.consumer(bootstrap, isolation=isolation)
    consumer.assign((topic, 0))
    found: list[tuple[bytes | None, bytes | None]] = []
    deadline = time.monotonic() + WAIT_S
    while b"tick" not in (key for key, _ in found):
        assert time.monotonic() < deadline, f"nothing comes behind {found[-1:]}"
        found += [(message.key, message.value) for message in consumer.poll()]
    consumer.close()
    return found
