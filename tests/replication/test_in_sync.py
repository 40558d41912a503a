"""What a leader knows of its followers, against a plain account of who has what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.in_sync import UNKNOWN, InSyncReplicas

LAG_MS = 1000


def leader(members: tuple[int, ...] = (1, 2, 3), *, may_commit: bool = True, epoch_start: int = 0) -> InSyncReplicas:
    return InSyncReplicas(1, (1, 2, 3), members, 2, may_commit, epoch_start, now_ms=0)


def test_nothing_is_committed_before_every_member_has_fetched_in_this_epoch() -> None:
    in_sync = leader()
    in_sync.fetched(2, 10, 10, now_ms=0)
    assert in_sync.committed(10) == UNKNOWN
    in_sync.fetched(3, 7, 10, now_ms=0)
    assert in_sync.committed(10) == 7


def test_the_slowest_member_counts_and_whoever_is_no_member_does_not() -> None:
    in_sync = leader(members=(1, 2))
    in_sync.fetched(2, 9, 10, now_ms=0)
    in_sync.fetched(3, 1, 10, now_ms=0)
    assert in_sync.committed(10) == 9
    assert in_sync.committed(4) == 4, "the leader has synced less than its follower"


def test_while_a_change_is_written_both_sets_count() -> None:
    in_sync = leader(members=(1, 2))
    in_sync.fetched(2, 9, 10, now_ms=0)
    in_sync.fetched(3, 5, 10, now_ms=0)
    in_sync.begin_change(3)
    assert in_sync.committed(10) == 5, "it may be a member already"
    in_sync.end_change(3)
    assert in_sync.committed(10) == 9
    in_sync.begin_change(2)
    assert in_sync.committed(10) == 9, "it may be a member still"


def test_too_few_members_commit_nothing() -> None:
    in_sync = leader(members=(1,), may_commit=False)
    assert in_sync.committed(10) == UNKNOWN
    assert not in_sync.enough
    in_sync.update((1, 2, 3), (1, 2), 2, True, now_ms=0)
    in_sync.fetched(2, 8, 10, now_ms=0)
    assert in_sync.committed(10) == 8
    assert in_sync.enough


@pytest.mark.parametrize(("offset", "joins"), [(4, False), (5, False), (7, False), (8, True), (9, True)])
def test_who_joins_has_all_that_is_committed_and_all_that_the_leader_began_with(offset: int, joins: bool) -> None:
    in_sync = leader(members=(1, 2), epoch_start=8)
    in_sync.fetched(3, offset, 10, now_ms=0)
    assert in_sync.may_join(3, high_watermark=5) is joins
    assert not in_sync.may_join(2, high_watermark=0), "a member does not join"


def test_another_life_of_a_broker_must_show_anew_what_it_has() -> None:
    in_sync = leader(members=(1, 2))
    in_sync.fetched(3, 10, 10, now_ms=0)
    in_sync.forget(3)
    assert not in_sync.may_join(3, high_watermark=0)


def test_a_broker_that_is_no_replica_counts_for_nothing() -> None:
    assert not leader().fetched(9, 10, 10, now_ms=0)


def test_a_member_lags_when_it_has_not_had_everything_for_too_long() -> None:
    in_sync = leader()
    in_sync.fetched(2, 10, 10, now_ms=500)
    in_sync.fetched(3, 6, 10, now_ms=500)
    assert in_sync.lagging(1200, LAG_MS, end_offset=12) == [3]
    in_sync.fetched(3, 10, 14, now_ms=1300)  # what the leader had at the fetch before
    assert in_sync.lagging(1400, LAG_MS, end_offset=14) == []
    assert in_sync.lagging(1600, LAG_MS, end_offset=14) == [2, 3]


def test_a_member_that_has_everything_does_not_lag_however_long_it_was_quiet() -> None:
    in_sync = leader()
    in_sync.fetched(2, 10, 10, now_ms=0)
    in_sync.fetched(3, 10, 10, now_ms=0)
    assert in_sync.lagging(10**9, LAG_MS, end_offset=10) == []


def test_what_is_written_after_a_quiet_time_makes_nobody_lag_who_had_everything_before() -> None:
    in_sync = leader()
    in_sync.fetched(2, 10, 10, now_ms=0)
    in_sync.fetched(3, 9, 10, now_ms=0)
    for now_ms in range(0, 10 * LAG_MS, LAG_MS // 2):
        in_sync.lagging(now_ms, LAG_MS, end_offset=10)
    assert in_sync.lagging(10 * LAG_MS, LAG_MS, end_offset=11) == [3]
    assert in_sync.lagging(11 * LAG_MS, LAG_MS, end_offset=11) == [2, 3], "until it has not had that for too long"


moves = st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 20)), max_size=30)


@given(moves=moves, members=st.sampled_from([(1, 2), (1, 3), (1, 2, 3)]), local=st.integers(0, 20))
def test_committed_is_on_every_member(moves: list[tuple[int, int]], members: tuple[int, ...], local: int) -> None:
    in_sync, ends = leader(members=members), {1: local}
    for replica, offset in moves:
        in_sync.fetched(replica, offset, 20, now_ms=0)
        ends[replica] = offset
    committed = in_sync.committed(local)
    if committed == UNKNOWN:
        assert any(member not in ends for member in members)
    else:
        assert committed == min(ends[member] for member in members)
