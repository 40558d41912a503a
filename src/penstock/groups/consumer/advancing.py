"""A member of a consumer group has come, changed, or been heard of: everything that follows from that, in order.

    who it is  ->  what the group subscribes to  ->  who should read what  ->  what this member holds

Both protocols end here; they differ in how a member says what it wants, and in what it is told.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.groups.consumer.draft import Draft
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.partitions import Partitions
from penstock.groups.consumer.reconciling import reconcile
from penstock.groups.consumer.records import current_record, member_record, member_tombstones, target_record
from penstock.groups.consumer.states import JOIN_EPOCH
from penstock.groups.consumer.subscribing import update_subscription
from penstock.groups.consumer.targeting import update_target
from penstock.groups.turn import Turn


def advance(
    turn: Turn,
    group: ConsumerGroup,
    before: ConsumerMember,
    member: ConsumerMember,
    *,
    owned: Partitions | None,
    replaces: ConsumerMember | None = None,
) -> Draft:
    """The group with `member` in the place of `before`, who is new if the group does not have it yet.

    `owned` is what it says that it holds. `replaces` is the former self of a static member that came back.
    """
    draft = Draft(group, frozenset() if replaces is None else frozenset({replaces.member_id}), member)
    if replaces is not None:
        _replace(draft, member, replaces)
    elif member is not before:
        draft.records.append(member_record(group.group_id, member))
    has_changed = member.topic_names != before.topic_names or member.topic_regex != before.topic_regex
    update_subscription(turn, draft, has_changed=has_changed)
    update_target(turn, draft)
    draft.member = _reconciled(turn, draft, member, owned, has_changed=has_changed)
    if replaces is not None or draft.member is not member:
        draft.records.append(current_record(group.group_id, draft.member))
    return draft


def _replace(draft: Draft, member: ConsumerMember, old: ConsumerMember) -> None:
    """What was meant for the former self is meant for the new one."""
    group_id = draft.group.group_id
    target = draft.group.target_of(old.member_id)
    draft.set_target(member.member_id, target)
    draft.records += member_tombstones(group_id, old.member_id)
    draft.records += [member_record(group_id, member), target_record(group_id, member.member_id, target)]


def _reconciled(
    turn: Turn, draft: Draft, member: ConsumerMember, owned: Partitions | None, *, has_changed: bool
) -> ConsumerMember:
    if not has_changed and member.is_reconciled_to(draft.assignment_epoch):
        return member
    reconciled = reconcile(
        member,
        draft.target_of(member.member_id),
        draft.assignment_epoch,
        owned=owned,
        subscribed_ids=turn.topics.ids(draft.names_of(member)),
        has_subscription_changed=has_changed,
        is_free=draft.group.is_free,
    )
    return member if reconciled == member else reconciled


def reborn(old: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member under its new id: it has what its former self had, and begins to count anew."""
    return replace(old, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
