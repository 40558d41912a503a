"""What travels with a parked message comes back as it was, and leaves the user's headers alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.retrying.headers import (
    ERROR_BYTES_MAX,
    STACK_BYTES_MAX,
    Failure,
    Parked,
    Place,
    failure_of,
    iso,
    split,
)

names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=20)
texts = st.text(st.characters(codec="utf-8"), max_size=50)
places = st.builds(Place, names, st.integers(0, 1000), st.integers(0, 2**62))
blocks = st.builds(
    Parked, places, names, st.integers(-1, 2**62), st.integers(0, 100),
    st.builds(Failure, texts.filter(bool), texts, texts), texts, texts, st.none() | st.integers(1, 2**62), places,
)  # fmt: skip
user_headers = st.lists(st.tuples(names | st.just("penstock.topic"), st.none() | st.binary(max_size=20)), max_size=5)


@given(user_headers, blocks)
def test_a_block_is_read_as_it_was_written(headers: list[tuple[str, bytes | None]], block: Parked) -> None:
    assert split([*headers, *block.headers()]) == (headers, block)


@given(user_headers, blocks, blocks)
def test_of_two_blocks_the_last_counts_and_the_first_is_the_users(
    headers: list[tuple[str, bytes | None]], inner: Parked, outer: Parked
) -> None:
    users = [*headers, *inner.headers()]
    assert split([*users, *outer.headers()]) == (users, outer)


@given(st.lists(st.tuples(st.sampled_from(["penstock.error", "penstock.topic", "penstock.offset", "x"]), st.binary())))
def test_nonsense_is_nobodys_block(headers: list[tuple[str, bytes]]) -> None:
    users, block = split(headers)
    assert users == headers
    assert block is None
    assert split(None) == ([], None)


def failing(depth: int) -> None:
    if depth:
        failing(depth - 1)
    raise ValueError("the bottom")


def failure(call: object) -> BaseException:
    try:
        call()  # type: ignore[operator]
    except BaseException as error:
        return error
    raise AssertionError


def test_an_error_is_told_with_its_type_and_its_stack() -> None:
    told = failure_of(failure(lambda: failing(2)))
    assert (told.error, told.type) == ("the bottom", "ValueError")
    assert told.stack.startswith("Traceback (most recent call last):")
    assert 'raise ValueError("the bottom")' in told.stack
    assert told.stack.rstrip().endswith("ValueError: the bottom")


def test_the_cause_comes_first_and_notes_are_kept() -> None:
    def chained() -> None:
        try:
            failing(0)
        except ValueError as error:
            wrapped = RuntimeError("while paying")
            wrapped.add_note("order 7")
            raise wrapped from error

    stack = failure_of(failure(chained)).stack
    assert (
        stack.index("the bottom") < stack.index("direct cause") < stack.index("while paying") < stack.index("order 7")
    )


def test_of_a_long_stack_the_end_is_kept_and_of_a_long_error_the_beginning() -> None:
    told = failure_of(failure(lambda: failing(300)))
    assert len(told.stack.encode()) <= STACK_BYTES_MAX
    assert told.stack.rstrip().endswith("the bottom")
    told = failure_of(ValueError("ä" * 5000))
    assert len(told.error.encode()) <= ERROR_BYTES_MAX
    assert told.error.startswith("ää")


def test_an_error_that_can_not_be_told_does_not_take_the_message_with_it() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise OSError

    assert failure_of(Silent()).error.endswith("Silent")
    group = ExceptionGroup("both", [ValueError("one"), KeyError("two")])
    assert "one" in failure_of(group).stack
    assert failure_of(ValueError("\ud800")).error
    assert Parked(
        Place("t", 0, 0), "g", 0, 1, failure_of(ValueError("\ud800")), "", "", None, Place("t", 0, 0)
    ).headers()


def test_times_are_utc() -> None:
    assert iso(1_767_225_600_123) == "2026-01-01T00:00:00.123Z"
