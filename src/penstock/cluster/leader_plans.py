"""What a person asks of one partition: another leader, or other replicas. Pure: a state in, a state or an error out.

The rules are those of `elections` and `reassignments`. What the controller would decide by itself is decided first and
written with it, so that a plan is made for those who are alive, and holds when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from penstock.cluster.elections import Brokers, elect_unclean, prefer, settle
from penstock.cluster.model import NO_LEADER, PartitionState
from penstock.cluster.reassignments import begin, cancel, check_target
from penstock.protocol.errors import ApiError, ErrorCode


class Election(IntEnum):
    """The numbers are those of ElectLeaders (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def elected(state: PartitionState, election: Election, brokers: Brokers, min_insync: int) -> PartitionState:
    if election is Election.UNCLEAN:
        return _led_by_anyone(state, brokers, min_insync)
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    after = prefer(settle(state, brokers, min_insync), brokers)
    if after.leader != preferred:
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return after


def _led_by_anyone(state: PartitionState, brokers: Brokers, min_insync: int) -> PartitionState:
    if state.leader in brokers:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    after = elect_unclean(state, brokers, min_insync)
    if after.leader == NO_LEADER:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return after


def reassigned(
    state: PartitionState,
    wanted: Sequence[int] | None,
    brokers: Brokers,
    min_insync: int,
    *,
    factor_may_change: bool = True,
) -> PartitionState:
    """On its way to these replicas, or there already if they are all in sync. None cancels what is under way."""
    settled = settle(state, brokers, min_insync)
    if wanted is None:
        moved = cancel(settled)
    else:
        check_target(settled, wanted, brokers, factor_may_change=factor_may_change)
        moved = begin(settled, wanted)
    after = settle(moved, brokers, min_insync)
    return state if after == state else after
