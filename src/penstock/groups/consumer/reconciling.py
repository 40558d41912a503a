"""How a member gets from what it holds to what it should hold, one heartbeat at a time.

holds and should keep           it keeps
holds and should not            it is told to let go, and keeps its epoch until it says that it did
should hold, and nobody does    it gets it
should hold, but another does   it waits
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.partitions import (
    NO_PARTITIONS,
    Partitions,
    common,
    holds_any,
    of_topics,
    together,
    without,
)
from penstock.groups.consumer.states import MemberState
from penstock.protocol.errors import ApiError, ErrorCode

IsFree = Callable[[bytes, int, str], bool]


def reconcile(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    *,
    owned: Partitions | None,
    subscribed_ids: frozenset[bytes],
    has_subscription_changed: bool,
    is_free: IsFree,
) -> ConsumerMember:
    """The member one step further, or the same. `owned` is what it says that it holds, None if it did not say."""
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, "The member must abandon all its partitions and rejoin.")
    elif member.is_reconciled_to(target_epoch) or _is_revoking(member, owned):
        return _drop_unsubscribed(member, owned, subscribed_ids) if has_subscription_changed else member
    return _step(member, of_topics(target, subscribed_ids), target_epoch, owned, is_free)


def _step(
    member: ConsumerMember, target: Partitions, target_epoch: int, owned: Partitions | None, is_free: IsFree
) -> ConsumerMember:
    kept = common(member.assigned, target)
    to_revoke = without(member.assigned, kept)
    if to_revoke and _still_holds(owned, to_revoke):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, to_revoke)
    wanted = without(target, kept)
    given = {
        topic_id: free
        for topic_id, partitions in wanted.items()
        if (free := frozenset(p for p in partitions if is_free(topic_id, p, member.member_id)))
    }
    state = MemberState.STABLE if given == wanted else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, target_epoch, together(kept, given), NO_PARTITIONS)


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Partitions, pending: Partitions
) -> ConsumerMember:
    return replace(
        member,
        state=state,
        previous_member_epoch=member.member_epoch,
        member_epoch=epoch,
        assigned=assigned,
        pending_revocation=pending,
    )


def _drop_unsubscribed(
    member: ConsumerMember, owned: Partitions | None, subscribed_ids: frozenset[bytes]
) -> ConsumerMember:
    """What the member no longer wants is taken from it at once, whatever the target still says."""
    kept = of_topics(member.assigned, subscribed_ids)
    if len(kept) == len(member.assigned):
        return member
    to_revoke = together(member.pending_revocation, without(member.assigned, kept))
    if _still_holds(owned, to_revoke):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=to_revoke)
    return replace(member, assigned=kept)


def _is_revoking(member: ConsumerMember, owned: Partitions | None) -> bool:
    return member.state is MemberState.UNREVOKED_PARTITIONS and _still_holds(owned, member.pending_revocation)


def _still_holds(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or holds_any(owned, partitions)
