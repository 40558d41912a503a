"""A follower's fetch as it goes over the wire: the plain one of every turn, and the message that says more."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from penstock.protocol import plain_fetch
from penstock.protocol.framing import read_response
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from penstock.protocol.plain_fetch import Answered, Asked

RESPONSE_MAX: Final = 4 * 1024 * 1024
FETCH_VERSION = plain_fetch.VERSION

Key = tuple[bytes, int]  # topic id, partition

_header = Struct(">ihhih").pack  # length, api key, version, correlation id, length of the client id


class PlainFetch:
    """One of the fetches that all but the first of a session are: it names what has changed, and forgets nothing."""

    __slots__ = ("_middle", "_round")

    def __init__(self, round: Round, middle: bytes) -> None:
        self._round = round
        self._middle = middle

    def frame(self, correlation_id: int, client_id: str) -> bytes:
        name, middle, ends = client_id.encode(), self._middle, self._round
        size = 11 + len(name) + len(ends.head) + len(middle) + len(ends.tail)
        header = _header(size, plain_fetch.API_KEY, FETCH_VERSION, correlation_id, len(name))
        return b"".join((header, name, b"\0", ends.head, middle, ends.tail))

    def read(self, frame: memoryview) -> tuple[int, FetchResponse | list[Answered]]:
        plain = plain_fetch.read_answer(frame)
        if plain is None:
            return read_response(FetchResponse, frame, FETCH_VERSION)
        return plain[0], plain[2]


class Round:
    """What every fetch says alike, until a setting or this broker's epoch changes."""

    __slots__ = ("broker_epoch", "head", "tail", "wait_ms")

    def __init__(self, node_id: int, broker_epoch: int, wait_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.wait_ms = wait_ms
        self.head, self.tail = plain_fetch.request_ends(fetch_request(node_id, broker_epoch, wait_ms))


def fetch_request(node_id: int, broker_epoch: int, wait_ms: int) -> FetchRequest:
    state = ReplicaState(replica_id=node_id, replica_epoch=broker_epoch)
    return FetchRequest(replica_state=state, max_wait_ms=wait_ms, min_bytes=1, max_bytes=RESPONSE_MAX)


def topics_of(asked: Iterable[Asked]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for topic_id, index, epoch, offset, last_epoch, start, size_max in asked:
        partition = FetchPartition(
            partition=index, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch,
            log_start_offset=start, partition_max_bytes=size_max,
        )  # fmt: skip
        topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(partition)
    return list(topics.values())


def forgotten_topics(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    return list(topics.values())
