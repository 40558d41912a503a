"""Moving a partition to other replicas: how that begins, ends and is taken back (KIP-455). Pure.

Between begin and end, a partition has both: `replicas` lists the target first, in the order that was asked for, and
then those that will go. Those that are not there yet are in `adding`, those that will go in `removing`. When the whole
target is in sync, the rest goes in one step. Where replicas go, a new leader epoch begins, so that what they still send
counts for nothing.

A replica that holds all that is committed goes only where another stays that is in sync; so whoever calls this brings a
state in which only the living are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.cluster.model import NO_LEADER, PartitionState
from penstock.protocol.errors import ApiError, ErrorCode


def in_progress(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def original(state: PartitionState) -> tuple[int, ...]:
    """The replicas that it had before, as far as their order is known."""
    return _without(state.replicas, state.adding)


def target(state: PartitionState) -> tuple[int, ...]:
    """The replicas that it will have."""
    return _without(state.replicas, state.removing)


def check_target(
    state: PartitionState, wanted: Sequence[int], known: Collection[int], *, factor_may_change: bool = True
) -> None:
    """Raises if the partition can't go there. A replica that is down is no stranger: it may stay one."""
    reason = None
    if not wanted:
        reason = "an empty replica list."
    elif strangers := sorted(each for each in wanted if each not in known and each not in state.replicas):
        reason = f"broker {strangers[0]}, but no such broker is registered."
    elif len(set(wanted)) != len(wanted):
        twice = min(each for each in wanted if wanted.count(each) > 1)
        reason = f"the broker {twice} more than once."
    if reason:
        message = f"The manual partition assignment includes {reason}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not factor_may_change and len(wanted) != len(target(state)):
        message = f"The replication factor is changed from {len(target(state))} to {len(wanted)}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def begin(state: PartitionState, wanted: Sequence[int]) -> PartitionState:
    """On its way to other replicas. What another reassignment was about to add, and this one does not want, goes."""
    before = original(state)
    going = _without(before, wanted)
    began = replace(
        _dropped(state, _without(state.adding, wanted)),
        replicas=(*wanted, *going),
        adding=_without(wanted, before),
        removing=going,
    )
    return state if began == state else began


def cancel(state: PartitionState) -> PartitionState:
    """Back to the replicas that it had. Those that were to be added go, in sync or not."""
    if not in_progress(state):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    return replace(_dropped(state, state.adding), adding=(), removing=())


def complete(state: PartitionState) -> PartitionState:
    """At its target, if all of that is in sync; else as it is."""
    wanted = target(state)
    if not in_progress(state) or not wanted or not set(wanted) <= set(state.isr):
        return state
    return replace(_dropped(state, state.removing), adding=(), removing=())


def _dropped(state: PartitionState, gone: Collection[int]) -> PartitionState:
    """Without these replicas. If one of them led, nobody does until someone is elected."""
    if not gone:
        return state
    isr, eligible = _without(state.isr, gone), _without(state.eligible, gone)
    if not isr and (state.isr, state.eligible) != (isr, eligible):
        message = "Unable to change the partition assignment because it would require an unclean leader election."
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    dropped = replace(
        state,
        replicas=_without(state.replicas, gone),
        isr=isr,
        eligible=eligible,
        leader_epoch=state.leader_epoch + 1,
    )
    if state.leader in gone:
        return replace(dropped, leader=NO_LEADER, last_leader=NO_LEADER)
    return replace(dropped, last_leader=NO_LEADER) if state.last_leader in gone else dropped


def _without(replicas: Sequence[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in gone)
