"""The sparse index against a plain search, and its file against damage."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage import index
from penstock.storage.index import Entry, Footer, Index

rows = st.lists(st.tuples(st.integers(1, 50), st.integers(61, 5000), st.integers(0, 30)), max_size=40)


def build(steps: list[tuple[int, int, int]]) -> tuple[Index, list[tuple[int, int, int]]]:
    found, table, offset, position, time = Index(), [], 0, 0, -1
    for more_offset, more_position, more_time in steps:
        found.add(offset, position, time)
        table.append((offset, position, time))
        offset, position, time = offset + more_offset, position + more_position, time + more_time
    return found, table


def footer(size: int = 10**9) -> Footer:
    return Footer(size, 7, 1, 2, 3, 4)


def last(table: list[tuple[int, int, int]]) -> Entry | None:
    return Entry(*table[-1][:2]) if table else None


@given(rows, st.integers(0, 3000), st.integers(0, 250_000), st.integers(0, 1500), st.booleans())
@settings(deadline=None, max_examples=200)
def test_searches_find_what_a_plain_search_finds(
    steps: list[tuple[int, int, int]], offset: int, position: int, time: int, reload: bool
) -> None:
    found, table = build(steps)
    if reload:
        loaded = index.load(memoryview(found.dump(footer())))
        assert loaded is not None
        found = loaded[0]
        assert loaded[1] == footer()
    assert found.at_or_before(offset) == last([row for row in table if row[0] <= offset])
    assert found.last_within(position) == last([row for row in table if row[1] <= position])
    assert found.before_time(time) == last([row for row in table if row[2] < time])
    found.truncate(position)
    kept = [row for row in table if row[1] < position]
    assert list(zip(found.offsets, found.positions, found.timestamps)) == kept
    found.add(10_000, 10**6, 10_000)
    assert len(found) == len(kept) + 1


@given(rows, st.integers(0, 250_000))
@settings(deadline=None)
def test_only_entries_that_the_footer_covers_are_written(steps: list[tuple[int, int, int]], covered: int) -> None:
    found, table = build(steps)
    loaded = index.load(memoryview(found.dump(footer(covered))))
    assert loaded is not None
    assert list(loaded[0].positions) == [row[1] for row in table if row[1] < covered]


@given(st.integers(0, 10**6), st.integers(0, 7))
@settings(deadline=None, max_examples=300)
def test_a_bit_flipped_anywhere_in_the_file_is_noticed(at: int, bit: int) -> None:
    data = bytearray(build([(1, 100, 1)] * 10)[0].dump(footer()))
    data[at % len(data)] ^= 1 << bit
    assert index.load(memoryview(bytes(data))) is None


def test_a_file_of_any_other_length_is_not_believed() -> None:
    data = build([(1, 100, 1)] * 3)[0].dump(footer())
    for length in range(len(data)):
        assert index.load(memoryview(data[:length])) is None
    assert index.load(None) is None
    assert index.read_footer(data[-index.FOOTER_SIZE :]) == footer()
