from __future__ import annotations

import argparse
import time
from datetime import datetime

import pytest

from penstock.cli.positions import END, START, Kind, Position, locate, parse_position, parse_time


class LogOfTenFrom100:
    """Answers as a connection would for partitions that hold offsets 100 to 109, one record a second."""

    def starts(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(keys, 100)

    def ends(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(keys, 110)

    def offsets(self, specs: dict[tuple[str, int], object]) -> dict[tuple[str, int], int]:
        times = {key: spec._value for key, spec in specs.items()}
        return {key: -1 if at > 9_000 else 100 + max(0, -(-at // 1000)) for key, at in times.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", START),
        ("end", END),
        ("0", Position(Kind.OFFSET, 0)),
        ("42", Position(Kind.OFFSET, 42)),
        ("-5", Position(Kind.LAST, 5)),
        ("@1700000000000", Position(Kind.TIME, 1_700_000_000_000)),
        ("2026-05-01T10:30:00+00:00", Position(Kind.TIME, 1_777_631_400_000)),
        ("2026-05-01T10:30:00Z", Position(Kind.TIME, 1_777_631_400_000)),
    ],
)
def test_a_position_is_a_word_an_offset_a_count_or_a_time(text: str, expected: Position) -> None:
    assert parse_position(text) == expected


def test_a_time_without_a_zone_is_local() -> None:
    assert parse_time("2026-05-01") == int(datetime(2026, 5, 1).astimezone().timestamp() * 1000)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)])
def test_a_duration_is_so_long_ago(text: str, seconds: int) -> None:
    assert abs(parse_time(text) - (time.time() - seconds) * 1000) < 5_000


def test_what_is_longer_ago_than_time_itself_is_its_beginning() -> None:
    assert parse_time("99999999999d") == 0


@pytest.mark.parametrize(
    "text", ["yesterday", "", "--5", "5w", "2026-13-01", "@", "１２x", "9" * 20, "-" + "9" * 20, "@" + "9" * 20]
)
def test_anything_else_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="start, end, an offset"):
        parse_position(text)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("start", 100),
        ("end", 110),
        ("105", 105),
        ("7", 100),
        ("500", 110),
        ("-3", 107),
        ("-50", 100),
        ("@4000", 104),
        ("@9001", 110),
    ],
)
def test_a_position_is_found_between_start_and_end(text: str, offset: int) -> None:
    keys = [("orders", 0), ("orders", 1)]
    places = locate(LogOfTenFrom100(), parse_position(text), keys)
    assert [places[key].offset for key in keys] == [offset, offset]
