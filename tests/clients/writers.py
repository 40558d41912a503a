"""The clients' transactional producers behind one face, and what can be seen of their work."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import confluent_kafka
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import KafkaException
from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata

from tests.clients.drivers import CLIENTS, Client, Consumer, Outgoing, Refused, send_all
from tests.clients.drivers.aio import run
from tests.clients.drivers.confluent import QUICK
from tests.clients.drivers.face import WAIT_S, Partition

CONFLUENT = CLIENTS["confluent"]
END = b"the end "
LONG_MS = 60_000

_ends = itertools.count()


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
