"""A parked message as its handler sees it: the one that was sent, at the place where it was sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.retrying.headers import Header, Parked

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

CREATE_TIME = 1


class Returned:
    """Has the methods of confluent-kafka's message, which `Message` is made of."""

    __slots__ = ("_copy", "_headers", "_parked", "attempt")

    def __init__(self, copy: RawMessage, headers: list[Header], parked: Parked, attempt: int) -> None:
        self._copy = copy
        self._headers = headers
        self._parked = parked
        self.attempt = attempt

    def topic(self) -> str:
        return self._parked.origin.topic

    def partition(self) -> int:
        return self._parked.origin.partition

    def offset(self) -> int:
        return self._parked.origin.offset

    def timestamp(self) -> tuple[int, int]:
        return CREATE_TIME, self._parked.timestamp_ms

    def key(self) -> bytes | None:
        return self._copy.key()

    def value(self) -> bytes | None:
        return self._copy.value()

    def headers(self) -> list[Header]:
        return self._headers

    def leader_epoch(self) -> None:
        return None

    def latency(self) -> None:
        return None

    def error(self) -> None:
        return None

    def __len__(self) -> int:
        return len(self.value() or b"")
