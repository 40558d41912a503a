"""A message as it was read, and a look at many of them.

What `_messages.c` and `_batches.c` do too, with the same names, where a C compiler was found; of a message, what is
often asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any, Final, Generic, Protocol, Self

from confluent_kafka import Message as RawMessage

from penstock.client.errors import DeserializationError
from penstock.client.kinds import K, V
from penstock.client.pace import QUICK_S, UNSEEN_MAX

Header = tuple[str, bytes | None]
Place = tuple[str, int]  # topic and partition


class Message(Generic[K, V]):
    """One message as it was read.

    `raw` is the object of confluent-kafka that has its bytes. What deserializers made is a `DecodedMessage`. There is
    one object for each message that is read, so it holds nothing but a reference until it is asked.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    # ---- where it is

    @property
    def topic(self) -> str:
        topic: str = self.raw.topic()
        return topic

    @property
    def partition(self) -> int:
        partition: int = self.raw.partition()
        return partition

    @property
    def offset(self) -> int:
        offset: int = self.raw.offset()
        return offset

    @property
    def place(self) -> Place:
        return self.raw.topic(), self.raw.partition()

    # ---- what it says

    @property
    def key(self) -> K:
        """What the deserializer made of it; bytes without one; None where there is no key."""
        key: K = self.raw.key()
        return key

    @property
    def value(self) -> V:
        """What the deserializer made of it; bytes without one; None for a tombstone."""
        value: V = self.raw.value()
        return value

    @property
    def raw_key(self) -> bytes | None:
        """The bytes, whatever a deserializer made of them."""
        key: bytes | None = self.raw.key()
        return key

    @property
    def raw_value(self) -> bytes | None:
        """The bytes, whatever a deserializer made of them."""
        value: bytes | None = self.raw.value()
        return value

    @property
    def poison(self) -> DeserializationError | None:
        """Why the key or the value could not be read, if so."""
        return None

    @property
    def attempt(self) -> int:
        """Which call of a handler this is: 1, and one more after each that failed and is tried again."""
        attempt: int = getattr(self.raw, "attempt", 1)
        return attempt

    @property
    def headers(self) -> list[Header]:
        """Names and values in the order in which they were sent; a name may come twice."""
        headers = headers_of(self.raw)
        if headers is None:
            raise unreadable_headers(self)
        return headers

    def header(self, name: str) -> str | None:
        """The last header of this name, as text; None where there is none, or it has no value."""
        for key, value in reversed(self.headers):
            if key == name:
                return None if value is None else value.decode("utf-8", "replace")
        return None

    @property
    def timestamp_ms(self) -> int:
        """When it was made, or appended, which is the topic's choice; -1 where the log does not say."""
        timestamp_ms: int = self.raw.timestamp()[1]
        return timestamp_ms

    @property
    def timestamp(self) -> datetime:
        """`timestamp_ms` as a time in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def size(self) -> int:
        """Bytes of the key and the value."""
        return len(self.raw.key() or b"") + len(self.raw.value() or b"")

    def __repr__(self) -> str:
        return f"Message({self.topic}[{self.partition}] at {self.offset}, {self.size} bytes)"


class DecodedMessage(Message[K, V]):
    """A message whose key and value went through deserializers. A poisoned one raises when they are asked for."""

    __slots__ = ("_key", "_poison", "_value")

    def __init__(self, raw: Any, key: Any, value: Any) -> None:
        self.raw = raw
        self._key = key
        self._value = value
        self._poison: DeserializationError | None = None

    @property
    def key(self) -> K:
        if self._poison is not None:
            raise self._poison
        key: K = self._key
        return key

    @property
    def value(self) -> V:
        if self._poison is not None:
            raise self._poison
        value: V = self._value
        return value

    @property
    def poison(self) -> DeserializationError | None:
        return self._poison

    def poisoned(self, poison: DeserializationError) -> None:
        if not isinstance(poison, BaseException):
            raise TypeError("a message is poisoned by an exception")
        self._poison = poison


# ---- headers

# An ordinary call may, once CPython has specialised it, return a list and leave the error for whoever comes next.
_read = methodcaller("headers")


class _Unreadable(list[Header]):
    """In place of a list with holes, which is there when it is asked for again: who looks into one crashes."""


def headers_of(raw: Any) -> list[Header] | None:
    """None where a name is not UTF-8: no broker looks at them, and confluent-kafka reads none of the headers then."""
    try:
        headers: list[Header] | None = _read(raw)
    except (UnicodeDecodeError, SystemError):
        raw.set_headers(_Unreadable())
        return None
    return None if type(headers) is _Unreadable else headers or []


def unreadable_headers(message: Message[Any, Any]) -> DeserializationError:
    return DeserializationError(
        f"the headers of the message in {message.topic}[{message.partition}] at offset {message.offset} can't be read: "
        "the name of one is not UTF-8.",
        "Iterate again to go on behind it, or use a handler with dead_letter=True, which puts such messages aside.",
        message,
    )


# ---- what came at once

_error, _partition, _topic = RawMessage.error, RawMessage.partition, RawMessage.topic


def has_errors(batch: Sequence[RawMessage]) -> bool:
    """Whether one of these is no message but an error."""
    return any(map(_error, batch))


def last_of(batch: Sequence[RawMessage], topic: str | None) -> dict[Place, Any]:
    """The last message of each place. `topic` is given if all are of that one.

    The loops are those of `map`, `zip` and `set`; what is left to find mostly is near the end.
    """
    partitions: list[Any] = list(map(_partition, batch))
    keys = partitions if topic is not None else list(zip(map(_topic, batch), partitions))
    keys.reverse()
    last = len(keys) - 1
    found = {key: batch[last - keys.index(key)] for key in set(keys)}
    return found if topic is None else {(topic, partition): raw for partition, raw in found.items()}


# ---- one after another


class Hand:
    """What was taken and not handed out, the next one last; and whether the last that was handed out is processed."""

    __slots__ = ("in_hand", "left", "stopping")

    def __init__(self) -> None:
        self.left: Final[list[Any]] = []
        self.in_hand = False
        self.stopping = False


class Grant:
    """How many messages may go out without another thought, since they are plain, and counted already; and until when,
    if they go on as quickly as they did."""

    __slots__ = ("count", "due_s", "looked_s")

    def __init__(self) -> None:
        self.count = 0
        self.due_s = self.looked_s = 0.0

    def is_time_left(self) -> bool:
        now_s = time.monotonic()
        if now_s >= self.due_s or now_s - self.looked_s >= QUICK_S * UNSEEN_MAX:
            return False
        self.looked_s = now_s
        return True


class Finding(Protocol):
    def find(self) -> Message[Any, Any] | None:
        """The next one, where some thought is needed; None at the end."""

    def close(self) -> None: ...


class Steps:
    """What a loop over messages iterates: one call for each message, so it does little in most of them."""

    __slots__ = ("_grant", "_hand", "_stream")

    def __init__(self, hand: Hand, grant: Grant, stream: Finding, /) -> None:
        self._hand = hand
        self._grant = grant
        self._stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[Any, Any]:
        hand, grant = self._hand, self._grant
        goes_on = grant.count > 0 and (grant.count % UNSEEN_MAX > 0 or grant.is_time_left())
        if goes_on and hand.left and not hand.stopping:
            grant.count -= 1
            hand.in_hand = True  # each time: who was handed the last one may have counted it by a commit
            return Message(hand.left.pop())
        message = self._stream.find()
        if message is None:
            raise StopIteration
        return message

    def close(self) -> None:
        """No more of this one."""
        self._stream.close()
