"""The rebalance itself: who starts it, when everyone has joined, and what becomes of those who do not come.

    prepare_rebalance ----> complete_join ----> (SyncGroup of the leader) ----> Stable
        parks joins           begins a generation, or empties the group

Everything here is driven by members coming, going or falling silent; `joining`, `syncing` and `leaving` call it for
requests, and `machine` for timers.
"""

from __future__ import annotations

from penstock.groups.group import Group, InitialDelay
from penstock.groups.member import Member
from penstock.groups.responses import join_error, join_response, sync_error
from penstock.groups.states import Event, State
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode


def rebalance_or_complete_join(turn: Turn, group: Group) -> None:
    """Somebody came or went: rebalance, unless that is under way, in which case it may be over now."""
    if group.can_rebalance:
        prepare_rebalance(turn, group)
    else:
        complete_join_if_all_joined(turn, group)


def prepare_rebalance(turn: Turn, group: Group) -> None:
    is_initial = group.state is State.EMPTY
    if group.state is State.COMPLETING_REBALANCE:
        answer_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.timers.cancel(group.sync_timer)
    group.happens(Event.REBALANCE)
    if is_initial:
        # The first member of many: give the others time, or each of them starts a rebalance of its own (KIP-134).
        delay_ms = turn.config.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.new_member_added = False
        turn.timers.start(group.join_timer, turn.now_ms + delay_ms)
    elif group.has_all_joined:
        complete_join(turn, group)
    else:
        turn.timers.start(group.join_timer, turn.now_ms + group.rebalance_timeout_ms)


def complete_join_if_all_joined(turn: Turn, group: Group) -> None:
    """The initial rebalance ends by the clock alone."""
    if group.state is State.PREPARING_REBALANCE and group.initial_delay is None and group.has_all_joined:
        complete_join(turn, group)


def complete_join(turn: Turn, group: Group) -> None:
    """The join phase is over. Dynamic members that did not join are out; static ones may take a session (KIP-345)."""
    turn.timers.cancel(group.join_timer)
    group.initial_delay = None
    for member in list(group.members.values()):
        if member.parked_join is None and not member.is_static:
            drop_member(turn, group, member)
    if not group.members:
        fits = turn.append_group(group, group.empty_record(turn.now_ms))
        assert fits
    elif group.elect_joined_leader():
        _begin_generation(turn, group)
    else:
        # Only static members, none of which has joined: wait until they do, or their sessions end.
        turn.timers.start(group.join_timer, turn.now_ms + group.rebalance_timeout_ms)


def _begin_generation(turn: Turn, group: Group) -> None:
    group.begin_generation()
    for member in group.members.values():
        parked = group.park_join(member, None)
        if parked is not None:
            turn.reply(parked.ticket, join_response(group, member))
        member.is_new = False
        turn.start_session(member)
    turn.timers.start(group.sync_timer, turn.now_ms + group.rebalance_timeout_ms)


def drop_member(turn: Turn, group: Group, member: Member, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
    """Takes the member out. If it still waits for an answer, it learns that it must join anew."""
    release_member(turn, group, member, error)
    group.remove(member)


def release_member(turn: Turn, group: Group, member: Member, error: ErrorCode) -> None:
    """Answers what the member waits for, and stops its clock."""
    turn.timers.cancel(member.session)
    parked = group.park_join(member, None)
    if parked is not None:
        member_id = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else ""
        turn.reply(parked.ticket, join_error(error, member_id, parked.version))
    if member.parked_sync is not None:
        turn.reply(member.parked_sync, sync_error(error))
        member.parked_sync = None


def drop_pending(turn: Turn, group: Group, member_id: str) -> None:
    turn.timers.cancel(group.pending.pop(member_id))


def answer_syncs(turn: Turn, group: Group, error: ErrorCode) -> None:
    """Members that wait for their assignment won't get one of this generation."""
    for member in group.members.values():
        if member.parked_sync is not None:
            turn.reply(member.parked_sync, sync_error(error))
            member.parked_sync = None
            # While it waited, its session may have run out unheeded.
            turn.start_session(member)


# ---- when a timer is due


def join_phase_ended(turn: Turn, group: Group) -> None:
    initial = group.initial_delay
    if initial is not None and group.new_member_added and initial.remaining_ms:
        # Members are still coming, so the next may be on its way.
        group.new_member_added = False
        delay_ms = min(turn.config.initial_rebalance_delay_ms, initial.remaining_ms)
        group.initial_delay = InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        turn.timers.start(group.join_timer, turn.now_ms + delay_ms)
    else:
        complete_join(turn, group)


def sync_phase_ended(turn: Turn, group: Group) -> None:
    """Who joined but never asked for its assignment holds partitions that nobody reads."""
    assert group.state in (State.COMPLETING_REBALANCE, State.STABLE)
    assert group.pending_sync
    for member in [m for m in group.members.values() if m.member_id in group.pending_sync]:
        drop_member(turn, group, member)
    prepare_rebalance(turn, group)


def session_ended(turn: Turn, group: Group, member_id: str) -> None:
    if member_id in group.pending:
        drop_pending(turn, group, member_id)
        if group.state is State.PREPARING_REBALANCE and group.has_all_joined:
            complete_join(turn, group)
        return
    member = group.members[member_id]
    if member.has_satisfied_heartbeat:
        return  # its clock starts again with the answer that it waits for
    drop_member(turn, group, member)
    if group.state is not State.PREPARING_REBALANCE:
        prepare_rebalance(turn, group)
    elif group.has_all_joined:
        complete_join(turn, group)


def rebalance_downgraded(turn: Turn, group: Group) -> None:
    """A group that was a consumer group until now: its members hold what they held, and share it out anew."""
    if group.state is State.STABLE:
        prepare_rebalance(turn, group)
