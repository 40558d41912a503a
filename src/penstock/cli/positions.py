"""Where in a log: `start`, `end`, an offset, a time, or so many records before the end."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cli.connection import Connection, Key

LONG_MAX = 2**63 - 1  # of offsets and times
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIMES = "2026-05-01, 2026-05-01T10:30, @1767225600000 (ms), or 90s, 15m, 2h, 7d for so long ago"


class Kind(Enum):
    START = "start"
    END = "end"
    OFFSET = "offset"
    TIME = "time"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Position:
    kind: Kind
    value: int = 0  # an offset, a time in ms, or a number of records


START = Position(Kind.START)
END = Position(Kind.END)


def parse_position(text: str) -> Position:
    if text in ("start", "end"):
        return START if text == "start" else END
    if text.isdecimal() and int(text) <= LONG_MAX:
        return Position(Kind.OFFSET, int(text))
    if text.startswith("-") and text[1:].isdecimal() and int(text[1:]) <= LONG_MAX:
        return Position(Kind.LAST, int(text[1:]))
    try:
        return Position(Kind.TIME, parse_time(text))
    except argparse.ArgumentTypeError:
        message = f"{text!r} is not a position: start, end, an offset, -N for the last N, or a time ({TIMES})"
        raise argparse.ArgumentTypeError(message) from None


def parse_time(text: str) -> int:
    """Milliseconds since 1970. A time without a zone is the time of this machine's clock on the wall."""
    if text.startswith("@") and text[1:].isdecimal() and int(text[1:]) <= LONG_MAX:
        return int(text[1:])
    if ago := re.fullmatch(r"(\d+)([smhd])", text):
        return max(int(time.time() * 1000) - int(ago[1]) * UNIT_MS[ago[2]], 0)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: {TIMES}") from None


@dataclass(frozen=True, slots=True)
class Placed:
    """A position found in one partition, between its start and its end."""

    offset: int
    start: int
    end: int


def locate(connection: Connection, position: Position, keys: Sequence[Key]) -> dict[Key, Placed]:
    starts, ends = connection.starts(keys), connection.ends(keys)
    found = _find(connection, position, keys, starts, ends)
    return {key: Placed(min(max(found[key], starts[key]), ends[key]), starts[key], ends[key]) for key in keys}


def _find(
    connection: Connection, position: Position, keys: Sequence[Key], starts: dict[Key, int], ends: dict[Key, int]
) -> dict[Key, int]:
    from penstock.cli.kafka_admin import at_time

    match position.kind:
        case Kind.START:
            return starts
        case Kind.END:
            return ends
        case Kind.OFFSET:
            return dict.fromkeys(keys, position.value)
        case Kind.LAST:
            return {key: ends[key] - position.value for key in keys}
        case Kind.TIME:
            found = connection.offsets(dict.fromkeys(keys, at_time(position.value)))
            return {key: ends[key] if offset < 0 else offset for key, offset in found.items()}
