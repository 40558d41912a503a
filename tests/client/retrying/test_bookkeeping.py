"""Positions, deaths, waiting and order, each against a simple model."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.retrying.deaths import Mark, Watch
from penstock.client.retrying.ledger import Ledger
from penstock.client.retrying.ordering import ParkedKeys
from penstock.client.retrying.waiting import Waiting

# ---- positions


@given(st.data())
def test_a_position_is_the_first_message_that_is_not_done(data: st.DataObject) -> None:
    ledger, done, offset = Ledger(5), set(range(5)), 5
    on_their_way: set[int] = set()
    for _ in range(data.draw(st.integers(0, 40))):
        step = data.draw(st.sampled_from(["handled", "handing over", "acknowledged", "all acknowledged"]))
        if step == "handled":
            ledger.handled(offset)
            done.add(offset)
            offset += 1
        elif step == "handing over":
            ledger.handing_over(offset)
            on_their_way.add(offset)
            offset += 1
        elif step == "all acknowledged":
            ledger.all_acknowledged()
            done |= on_their_way
            on_their_way.clear()
        elif on_their_way:
            chosen = data.draw(st.sampled_from(sorted(on_their_way)))
            on_their_way.remove(chosen)
            ledger.acknowledged(chosen)
            done.add(chosen)
        assert ledger.position == min(set(range(offset + 1)) - done)
        assert ledger.on_their_way == len(on_their_way)


# ---- deaths


@given(st.builds(Mark, st.integers(0, 2**60), st.integers(0, 1000), st.integers(0, 1000)))
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.decode(mark.encode()) == mark


@pytest.mark.parametrize(
    "metadata",
    [None, "", "x", "{}", "[]", "7", '{"penstock": 7}', '{"penstock": {"at": "x"}}', "[" * 3000],
)
def test_what_another_client_wrote_is_no_mark(metadata: str | None) -> None:
    assert Mark.decode(metadata) is None


def test_a_mark_that_claims_too_much_is_bounded() -> None:
    mark = Mark.decode('{"penstock": {"at": 1, "deaths": 1e300, "trying": -5}}')
    assert mark == Mark(1, 1000, 0)


@settings(max_examples=200)
@given(st.integers(0, 30), st.integers(1, 10), st.integers(1, 6), st.integers(1, 20))
def test_a_deadly_message_is_called_as_often_as_is_counted(deadly: int, every: int, lives: int, window: int) -> None:
    """A model of a process that dies at one offset, again and again: commits every so often, then carefully."""
    window = max(window, every)
    position, metadata, calls = 0, "", 0
    for _ in range(lives):
        watch = Watch(position, Mark.decode(metadata), window)
        metadata = watch.working(position, 1).encode()
        for offset in range(position, deadly + 1):
            if known := watch.attempts_at(offset):
                assert offset == deadly
                assert known == calls, "every call is counted"
                return
            if watch.is_careful(offset):
                position, metadata = offset, watch.trying(offset, 1).encode()
            elif (offset + 1) % every == 0 and offset < deadly:
                position, metadata = offset + 1, watch.working(offset + 1, 1).encode()
            calls += offset == deadly
    assert calls <= 2, "the first death is put down to nobody, the second to the message"


def test_an_innocent_message_is_not_suspected_for_ever() -> None:
    watch = Watch(10, Mark(1), window=5)
    assert watch.is_careful(14)
    assert not watch.is_careful(15)
    assert watch.trying(12, 2) == Mark(2, deaths=1, trying=1)
    assert watch.working(15, 2) == Mark(2)
    assert Watch(10, None, 5).working(10, 2) == Mark(2)


def test_a_death_is_not_put_down_to_a_message_that_can_not_have_been_its_cause() -> None:
    watch = Watch(10, Mark(1, deaths=2), window=5)
    assert watch.trying(10, 2, is_suspect=False) == Mark(2, deaths=0, trying=1)
    assert watch.trying(11, 2) == Mark(2, deaths=3, trying=1), "the next one may have been"


# ---- waiting


def test_a_head_that_is_not_due_holds_up_its_own_partition_only() -> None:
    waiting: Waiting[int] = Waiting(lambda item: item)
    one, other = ("t", 0), ("t", 1)
    assert waiting.hold(one, 100, 5)
    assert not waiting.hold(one, 0, 6)
    assert waiting.hold(other, 50, 9)
    assert waiting.next_due_at_ms() == 50
    assert waiting.take_due(49) == []
    assert waiting.take_due(50) == [(other, 9, True)]
    assert waiting.is_behind(one, 7)
    assert waiting.take_due(100) == [(one, 5, False)]
    assert not waiting.is_behind(one, 5), "the head itself, come back, goes to the front"
    assert not waiting.hold(one, 200, 5, in_front=True)
    assert waiting.take_due(199) == []
    waiting.drop(one)
    assert not waiting


# ---- order


@settings(max_examples=300)
@given(st.data())
def test_messages_of_a_key_never_pass_each_other(data: st.DataObject) -> None:
    """A model of an origin and two tiers as queues; handlers fail at random; a key's messages end in their order."""
    keys = data.draw(st.lists(st.sampled_from([b"a", b"b", None]), min_size=1, max_size=12))
    queues: dict[str, list[tuple[int, bytes | None, int]]] = {
        "origin": [(offset, key, 0) for offset, key in enumerate(keys)], "fast": [], "slow": [],
    }  # fmt: skip
    parked, ended = ParkedKeys(), defaultdict(list)
    for _ in range(2000):
        alive = [name for name, queue in queues.items() if queue]
        if not alive:
            break
        offset, key, failures = queues[data.draw(st.sampled_from(alive))].pop(0)
        if (tier := parked.follows(key, offset)) is not None:
            queues[tier].append((offset, key, failures))
            parked.parked(key, offset, tier)
        elif failures < 3 and data.draw(st.booleans()):
            tier = "fast" if failures == 0 else "slow"
            queues[tier].append((offset, key, failures + 1))
            parked.parked(key, offset, tier)
        else:
            ended[key].append(offset)
            parked.done(key, offset)
    assert not any(queues.values())
    assert len(parked) == 0
    for key, offsets in ended.items():
        assert len(offsets) == keys.count(key)
        if key is not None:
            assert offsets == sorted(offsets)
