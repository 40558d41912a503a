"""What is written down of a run, each event one line of JSON: its kind and its fields.

Times are of the monotonic clock, which all processes of a machine share. A message is known by its producer and a
number, both of which are in its payload, so that whoever reads it can say which one it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
PAYLOAD_BYTES = 200


class BadHistory(Exception):
    """What stands in a file is no history; the message says where."""


class Message(NamedTuple):
    producer: str
    number: int


class Began(NamedTuple):
    """A producer that promises what its kind promises. One that starts anew gets another name."""

    at: float
    producer: str
    idempotent: bool  # each message once, and in order within a partition
    transactional_id: str | None


class Sent(NamedTuple):
    at: float
    producer: str
    number: int
    topic: str
    partition: int | None  # None: by the key
    key: str | None
    transaction: int | None  # its number with this producer


class Acknowledged(NamedTuple):
    at: float
    producer: str
    number: int
    topic: str
    partition: int
    offset: int


class Failed(NamedTuple):
    """Whether it was written is not known, unless the client is sure that it was not."""

    at: float
    producer: str
    number: int
    is_certain: bool
    why: str


class Ended(NamedTuple):
    """Of a transaction. A transaction without this event is one whose outcome is unknown."""

    at: float
    producer: str
    transaction: int
    outcome: str


class Assigned(NamedTuple):
    """From here on the reader reads the partition from some place, which may be before what it read last."""

    at: float
    reader: str
    topic: str
    partition: int


class Read(NamedTuple):
    at: float
    reader: str
    group: str | None
    topic: str
    partition: int
    offset: int
    producer: str
    number: int
    isolation: str


class FinalRead(NamedTuple):
    """This reader has read the topic from its beginning to its end, after everything else had come to rest."""

    at: float
    reader: str
    topic: str
    isolation: str
    ends: list[int]  # where each partition ended for this isolation


class Trouble(NamedTuple):
    """What a client had to put up with. It breaks no promise by itself."""

    at: float
    who: str
    what: str


Event = Began | Sent | Acknowledged | Failed | Ended | Assigned | Read | FinalRead | Trouble

KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Event)}
NAMES = {kind: name for name, kind in KINDS.items()}


def dump(event: Event) -> bytes:
    return json.dumps([NAMES[type(event)], *event], separators=(",", ":")).encode() + b"\n"


def parse(line: bytes) -> Event:
    try:
        kind, *fields = json.loads(line)
        event: Event = KINDS[kind](*fields)
    except (ValueError, KeyError, TypeError) as error:
        raise BadHistory(f"not an event: {line[:100]!r} ({error!r})") from None
    return event


def load(path: Path) -> Iterator[Event]:
    """The events of a process in their order. One that was killed may have left half a line, at the end only."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield parse(line)
            except BadHistory as bad:
                raise BadHistory(f"{path}, line {number}: {bad}") from None


def load_all(paths: Iterable[Path]) -> Iterator[Event]:
    for path in paths:
        yield from load(path)


def payload(message: Message) -> bytes:
    return f"{message.producer}:{message.number} ".encode().ljust(PAYLOAD_BYTES, b".")


def read_payload(value: bytes | None) -> Message:
    producer, separator, number = (value or b"").partition(b" ")[0].rpartition(b":")
    if not separator or not number.isdigit():
        return Message(repr((value or b"")[:40]), -1)  # which nobody has sent, as the judge will say
    return Message(producer.decode(errors="replace"), int(number))
