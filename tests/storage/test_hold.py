"""What a group keeps of the pieces that would go."""

from __future__ import annotations

import pytest

from penstock.storage.hold import NO_LIMIT, Piece, Verdict, judge

PIECES = [Piece(10, 100), Piece(20, 200), Piece(30, 400)]


@pytest.mark.parametrize(
    ("committed", "may_go", "held_bytes"),
    [(-1, 0, 700), (0, 0, 700), (9, 0, 700), (10, 1, 600), (19, 1, 600), (20, 2, 400), (30, 3, 0), (1000, 3, 0)],
)
def test_a_piece_goes_when_all_of_it_is_committed(committed: int, may_go: int, held_bytes: int) -> None:
    assert judge(PIECES, committed, NO_LIMIT) == Verdict(may_go, held_bytes, 0)


@pytest.mark.parametrize(
    ("max_bytes", "may_go", "held_bytes", "given_up_bytes"),
    [(700, 0, 700, 0), (699, 1, 600, 100), (600, 1, 600, 100), (599, 2, 400, 300), (399, 3, 0, 700), (0, 3, 0, 700)],
)
def test_beyond_the_limit_the_oldest_pieces_go(
    max_bytes: int, may_go: int, held_bytes: int, given_up_bytes: int
) -> None:
    assert judge(PIECES, -1, max_bytes) == Verdict(may_go, held_bytes, given_up_bytes)


def test_what_is_committed_does_not_count_against_the_limit() -> None:
    assert judge(PIECES, 10, 600) == Verdict(1, 600, 0)
    assert judge(PIECES, 15, 599) == Verdict(2, 400, 200)
    assert judge(PIECES, 30, 0) == Verdict(3, 0, 0)


def test_where_nothing_would_go_nothing_is_held() -> None:
    assert judge([], 5, 0) == Verdict(0, 0, 0)
