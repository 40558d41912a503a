"""Archive and log, divided by offsets."""

from __future__ import annotations

import random

import pytest

from penstock.pipeline.seams import Pieces, Span, divide


@pytest.mark.parametrize(
    ("archived", "log", "expected"),
    [
        ([], Span(3, 9), Pieces((), (Span(3, 9),), ())),
        ([], Span(9, 9), Pieces((), (), ())),
        ([Span(0, 5)], Span(0, 9), Pieces((Span(0, 5),), (Span(5, 9),), ())),
        ([Span(0, 5)], Span(5, 9), Pieces((Span(0, 5),), (Span(5, 9),), ())),
        ([Span(0, 5)], Span(7, 9), Pieces((Span(0, 5),), (Span(7, 9),), (Span(5, 7),))),
        ([Span(4, 6)], Span(0, 9), Pieces((Span(4, 6),), (Span(0, 4), Span(6, 9)), ())),
        (
            [Span(0, 2), Span(6, 8)],
            Span(4, 9),
            Pieces((Span(0, 2), Span(6, 8)), (Span(4, 6), Span(8, 9)), (Span(2, 4),)),
        ),
        ([Span(0, 2), Span(6, 8)], None, Pieces((Span(0, 2), Span(6, 8)), (), (Span(2, 6),))),
        ([Span(0, 9)], Span(9, 9), Pieces((Span(0, 9),), (), ())),
    ],
)
def test_the_archive_is_taken_where_it_has_offsets_and_the_log_elsewhere(
    archived: list[Span], log: Span | None, expected: Pieces
) -> None:
    assert divide(archived, log) == expected


def test_every_offset_is_in_exactly_one_piece_whatever_the_archive_has() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        end = chance.randrange(1, 30)
        marks = sorted(chance.sample(range(end + 1), min(end + 1, 2 * chance.randrange(0, 4))))
        marks = marks[: len(marks) // 2 * 2]
        archived = [Span(start, stop) for start, stop in zip(marks[::2], marks[1::2]) if start < stop]
        log = Span(chance.randrange(0, end + 1), end)
        pieces = divide(archived, log)
        counted = [offset for span in (*pieces.archived, *pieces.live, *pieces.lost) for offset in range(*span)]
        first = min([log.start, *(span.start for span in archived)])
        assert sorted(counted) == list(range(first, end)), (archived, log)
        assert all(span.start >= log.start for span in pieces.live)
        assert all(span.stop <= log.start for span in pieces.lost)
