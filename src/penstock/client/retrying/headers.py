"""What travels with a parked message, and how it is taken off again. Pure.

The user's headers come first and are untouched; ours follow them as one block that begins with `penstock.error`. Where
a message that carries such a block is parked in turn (someone handles a topic of dead letters), the last block counts,
and the first is the user's.
"""

from __future__ import annotations

import functools
import linecache
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

Header = tuple[str, bytes | None]

ERROR = "penstock.error"  # the block begins with it
ERROR_TYPE = "penstock.error.type"
STACK = "penstock.stack"
TOPIC = "penstock.topic"
PARTITION = "penstock.partition"
OFFSET = "penstock.offset"
TIMESTAMP = "penstock.timestamp"
GROUP = "penstock.group"
ATTEMPTS = "penstock.attempts"
FIRST_FAILED_AT = "penstock.first.failed.at"
FAILED_AT = "penstock.failed.at"
DUE_AT = "penstock.due.at"
SOURCE = "penstock.source"  # topic/partition/offset that this copy was made of: the origin, or a tier

STACK_BYTES_MAX = 8 * 1024
ERROR_BYTES_MAX = 1024
UTF_8_BYTES_MAX = 4  # of a character
FRAMES_MAX = 64
CHAIN_MAX = 8
CAUSE = "The above exception was the direct cause of the following exception:\n"
CONTEXT = "During handling of the above exception, another exception occurred:\n"


class Place(NamedTuple):
    """One message's place in a log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place:
        topic, partition, offset = text.rsplit("/", 2)
        return cls(topic, int(partition), int(offset))


class Failure(NamedTuple):
    """Why a message is where it is."""

    error: str
    type: str
    stack: str = ""


class Parked(NamedTuple):
    """The block of one message. `due_at_ms` is None in the dead letters."""

    origin: Place
    group: str
    timestamp_ms: int
    attempts: int
    failure: Failure
    first_failed_at: str
    failed_at: str
    due_at_ms: int | None
    source: Place

    def headers(self) -> list[Header]:
        failure, origin = self.failure, self.origin
        block = (
            (ERROR, failure.error),
            (ERROR_TYPE, failure.type),
            (STACK, failure.stack),
            (TOPIC, origin.topic),
            (PARTITION, str(origin.partition)),
            (OFFSET, str(origin.offset)),
            (TIMESTAMP, str(self.timestamp_ms)),
            (GROUP, self.group),
            (ATTEMPTS, str(self.attempts)),
            (FIRST_FAILED_AT, self.first_failed_at),
            (FAILED_AT, self.failed_at),
            (DUE_AT, "" if self.due_at_ms is None else str(self.due_at_ms)),
            (SOURCE, str(self.source)),
        )
        return [(name, value.encode("utf-8", "replace")) for name, value in block if value]

    @property
    def source_key(self) -> tuple[str, int]:
        return self.source.topic, self.source.partition

    def without_stack(self) -> Parked:
        return self._replace(failure=self.failure._replace(stack=""))


def split(headers: Sequence[Header] | None) -> tuple[list[Header], Parked | None]:
    """The user's headers, and the block behind them. A block that says nonsense is none: nobody acts on it."""
    every = list(headers or ())
    begin = next((place for place in reversed(range(len(every))) if every[place][0] == ERROR), None)
    if begin is None:
        return every, None
    block = {name: (value or b"").decode(errors="replace") for name, value in every[begin:]}
    try:
        return every[:begin], _parse(block)
    except (KeyError, ValueError):
        return every, None


def _parse(block: dict[str, str]) -> Parked:
    origin = Place(block[TOPIC], int(block[PARTITION]), int(block[OFFSET]))
    due = block.get(DUE_AT, "")
    return Parked(
        origin=origin,
        group=block.get(GROUP, ""),
        timestamp_ms=int(block.get(TIMESTAMP, "-1")),
        attempts=int(block.get(ATTEMPTS, "0")),
        failure=Failure(block[ERROR], block.get(ERROR_TYPE, ""), block.get(STACK, "")),
        first_failed_at=block.get(FIRST_FAILED_AT, ""),
        failed_at=block.get(FAILED_AT, ""),
        due_at_ms=int(due) if due else None,
        source=Place.parse(block[SOURCE]) if SOURCE in block else origin,
    )


def failure_of(error: BaseException, with_stack: bool = True) -> Failure:
    """An exception in words. Of a stack that is too long, the end is kept: that is where it went wrong."""
    name = _name(error)
    stack = _cut_front(stack_of(error), STACK_BYTES_MAX) if with_stack else ""
    return Failure(_cut_back(_said(error) or name, ERROR_BYTES_MAX), name, stack)


def stack_of(error: BaseException) -> str:
    """As the interpreter prints it, without the carets: those take ten times as long as all the rest."""
    if isinstance(error, BaseExceptionGroup):
        return "".join(traceback.format_exception(error))
    pieces: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < CHAIN_MAX:
        seen.add(id(current))
        pieces.append(_one_stack(current))
        link = CAUSE if current.__cause__ is not None else CONTEXT
        suppressed = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ if current.__cause__ is not None else suppressed
        if current is not None:
            pieces.append(link)
    return "\n".join(reversed(pieces))


def _one_stack(error: BaseException) -> str:
    lines = ["Traceback (most recent call last):\n"]
    for frame, line_number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        source = linecache.getline(code.co_filename, line_number, frame.f_globals).strip()
        lines.append(f'  File "{code.co_filename}", line {line_number}, in {code.co_name}\n    {source}\n')
    if len(lines) > FRAMES_MAX:
        lines[1:-FRAMES_MAX] = ["  …\n"]
    said = _said(error)
    lines.append(f"{_name(error)}: {said}\n" if said else f"{_name(error)}\n")
    lines += [f"{note}\n" for note in getattr(error, "__notes__", ())]
    return "".join(lines)


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a __str__ of the user's may fail, and must not take the message with it
        return ""


def _cut_front(text: str, bytes_max: int) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= bytes_max:
        return text
    return "…" + encoded[len(encoded) - bytes_max + 3 :].decode(errors="ignore")


def _cut_back(text: str, bytes_max: int) -> str:
    if len(text) * UTF_8_BYTES_MAX <= bytes_max:
        return text
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= bytes_max else encoded[: bytes_max - 3].decode(errors="ignore") + "…"


def iso(timestamp_ms: int) -> str:
    second, millisecond = divmod(timestamp_ms, 1000)
    return f"{_second(second)}.{millisecond:03}Z"


@functools.lru_cache(maxsize=16)
def _second(timestamp_s: int) -> str:
    return datetime.fromtimestamp(timestamp_s, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
