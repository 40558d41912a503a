"""What a test may ask of any client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

WAIT_S = 20.0  # longer than anything takes that works

Partition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]


class Refused(Exception):
    """The broker's error code, or a negative number for what the client found by itself."""

    def __init__(self, code: int, message: object = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Outgoing(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Placed(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int


class Received(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Commit(NamedTuple):
    offset: int
    metadata: str = ""


class Producer(Protocol):
    def send(self, topic: str, message: Outgoing) -> None: ...

    def finish(self) -> list[Placed]:
        """Waits for every message that was sent since the last call; raises what befell the first that failed."""

    def close(self) -> None: ...


class Consumer(Protocol):
    revoked: list[Partition]  # all that were ever taken away
    assigned: list[Partition]  # all that were ever given

    def subscribe(self, *topics: str, pattern: str | None = None) -> None: ...
    def assign(self, *partitions: Partition) -> None: ...
    def poll(self, timeout_s: float = 0.1) -> list[Received]: ...
    def seek(self, partition: Partition, offset: int) -> None: ...
    def position(self, partition: Partition) -> int: ...
    def pause(self, *partitions: Partition) -> None: ...
    def resume(self, *partitions: Partition) -> None: ...
    def offset_at(self, partition: Partition, timestamp_ms: int) -> int | None: ...
    def ends(self, partition: Partition) -> tuple[int, int]: ...
    def assignment(self) -> set[Partition]: ...
    def commit(self, offsets: dict[Partition, Commit] | None = None) -> None: ...
    def committed(self, partition: Partition) -> Commit | None: ...
    def close(self) -> None: ...


class Client(Protocol):
    name: str
    codecs: tuple[str, ...]
    assignors: tuple[str, ...]

    def producer(
        self,
        bootstrap: str,
        *,
        acks: int | str = "all",
        compression: str | None = None,
        idempotent: bool = False,
        linger_ms: int = 0,
        max_bytes: int | None = None,
        **more: Any,
    ) -> Producer: ...

    def consumer(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        reset: str = "earliest",
        assignor: str | None = None,
        instance: str | None = None,
        session_timeout_ms: int | None = None,
        isolation: str = "read_uncommitted",
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        metadata_max_age_ms: int | None = None,
        **more: Any,
    ) -> Consumer: ...


def send_all(
    client: Client, bootstrap: str, topic: str, messages: Iterable[Outgoing | bytes], **options: Any
) -> list[Placed]:
    producer = client.producer(bootstrap, **options)
    try:
        for message in messages:
            producer.send(topic, message if isinstance(message, Outgoing) else Outgoing(message))
        return producer.finish()
    finally:
        producer.close()


def read_all(
    client: Client, bootstrap: str, topic: str, count: int, *, partitions: Sequence[int] = (0,), **options: Any
) -> list[Received]:
    """So many messages from the beginning of the partitions, each partition's in their order."""
    consumer = client.consumer(bootstrap, **options)
    try:
        consumer.assign(*((topic, partition) for partition in partitions))
        return poll_until(consumer, count)
    finally:
        consumer.close()


def poll_until(consumer: Consumer, count: int, timeout_s: float = WAIT_S) -> list[Received]:
    received: list[Received] = []
    deadline = time.monotonic() + timeout_s
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} messages came"
        received += consumer.poll()
    assert len(received) == count, f"{len(received)} messages came instead of {count}"
    return received
