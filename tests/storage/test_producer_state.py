"""What a log remembers of producers, against a model that remembers everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.storage import producer_state
from penstock.storage.producer_state import SEQUENCE_MAX, Producers, sequence_after
from penstock.storage.segment import Batch


class Model:
    """All batches of the current epoch of each producer, in order."""

    def __init__(self) -> None:
        self.sent: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def expect(self, producer: int, epoch: int, first: int, count: int) -> ErrorCode | int | None:
        """An error, the offset of the batch that this one repeats, or None if it is to be appended."""
        if producer not in self.sent:
            return None
        known, batches = self.sent[producer]
        if epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > known:
            return None if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        due = batches[-1][0] + batches[-1][1]
        if first == due % (SEQUENCE_MAX + 1):
            return None
        for sent_first, sent_count, offset in batches[-5:]:
            if (sent_first, sent_count) == (first, count):
                return offset
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def add(self, producer: int, epoch: int, first: int, count: int, offset: int) -> None:
        known, batches = self.sent.get(producer, (epoch, []))
        self.sent[producer] = (epoch, [*(batches if known == epoch else []), (first, count, offset)])


attempts = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 2), st.one_of(st.none(), st.integers(0, 12)), st.integers(1, 3), st.booleans()
    ),
    max_size=60,
)


@given(attempts)
@settings(max_examples=200, deadline=None)
def test_repetitions_gaps_and_old_epochs_are_told_as_the_model_tells_them(
    attempts: list[tuple[int, int, int | None, int, bool]],
) -> None:
    producers, model, offset = Producers(), Model(), 0
    for producer, epoch, first, count, reload in attempts:
        if first is None:  # what a well-behaved producer would send next
            known = producers.entries.get(producer)
            epoch = known.producer_epoch if known else epoch
            first = known.last_sequence + 1 if known else 0
        expected = model.expect(producer, epoch, first, count)
        if isinstance(expected, ErrorCode):
            with pytest.raises(ApiError) as refused:
                producers.check(producer, epoch, first, count)
            assert refused.value.code == expected
            continue
        found = producers.check(producer, epoch, first, count)
        assert (found and found.base_offset) == expected
        if found is None:
            producers.add(producer, epoch, first, offset, offset + count - 1, 1000 + offset)
            model.add(producer, epoch, first, count, offset)
            offset += count
        if reload:
            loaded = producer_state.load(producers.dump())
            assert loaded is not None
            assert loaded.dump() == producers.dump()
            producers = loaded


def test_sequences_wrap_around() -> None:
    producers = Producers()
    producers.add(1, 0, SEQUENCE_MAX - 1, 0, 2, 0)
    assert producers.entries[1].last_sequence == 0 == sequence_after(SEQUENCE_MAX - 1, 2)
    assert producers.check(1, 0, 1, 1) is None
    assert producers.check(1, 0, SEQUENCE_MAX - 1, 3) is not None


def test_a_new_producer_of_which_nothing_was_written_begins_where_it_began() -> None:
    producers = Producers()
    producers.add(1, 0, 0, 10, 11, 5)
    producers.add(2, 0, 70, 12, 13, 5)
    producers.add(3, 0, 0, 0, 1, 5)
    producers.add(3, 0, 2, 14, 15, 6)
    producers.cut_end(10)
    for producer, first in ((1, 0), (2, 70), (3, 2)):
        assert producers.check(producer, 0, first, 2) is None
        with pytest.raises(ApiError, match="Out of order"):
            producers.check(producer, 0, first + 2, 2)
    assert producers.entries[3].last_timestamp_ms == 5


def test_a_producer_with_more_in_flight_than_is_remembered_goes_on_behind_what_was_written() -> None:
    producers = Producers()
    for n in range(9):
        producers.add(1, 0, n, n, n, 0)
    producers.cut_end(3)
    assert producers.check(1, 0, 4, 1) is None  # of five the oldest is the fourth
    with pytest.raises(ApiError):
        producers.check(1, 0, 7, 1)


def test_producers_that_are_silent_for_long_are_forgotten_unless_a_transaction_is_open() -> None:
    producers = Producers()
    for producer in (1, 2, 3):
        producers.add(producer, 0, 0, producer, producer, producer * 100)
    producers.entries[1].current_transaction_first_offset = 1
    producers.expire(250)
    assert sorted(producers.entries) == [1, 3]


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(deadline=None)
def test_a_damaged_snapshot_is_not_believed(noise: bytes, at: int) -> None:
    producers = Producers()
    producers.add(1, 0, 0, 0, 4, 9)
    data = producers.dump()
    damaged = data[:at] + noise + data[at + len(noise) :]
    if damaged != data:
        assert producer_state.load(damaged) is None


def no_marker(batch: Batch) -> None:
    raise AssertionError("there is none")


def test_replaying_what_is_known_changes_nothing() -> None:
    def batches() -> Iterator[Batch]:
        for n in range(8):
            yield Batch(n * 100, 100, 2 * n, 2 * n + 1, 0, 0, 0, 5, n % 2, 0, n // 2 * 2, 2, 0)

    producers = Producers()
    producers.replay(batches(), 0, no_marker)
    before = producers.dump()
    producers.replay(batches(), 0, no_marker)
    assert producers.dump() == before
    later = Producers()
    later.replay(batches(), 8, no_marker)
    assert [b.base_offset for b in later.entries[0].batches] == [8, 12]
