"""Members that go: by their own wish, because they fell silent, or because they hold up the others.

What they held is free from then on. The next heartbeat of anyone works out who gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.groups.consumer.draft import Draft
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.migrating import can_downgrade, downgrade
from penstock.groups.consumer.partitions import NO_PARTITIONS
from penstock.groups.consumer.records import current_record, group_epoch_record, member_tombstones
from penstock.groups.consumer.states import LEAVE_STATIC_EPOCH
from penstock.groups.consumer.subscribing import drop_unused_patterns
from penstock.groups.turn import Turn
from penstock.protocol.errors import ApiError, ErrorCode


def leave_group(turn: Turn, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> None:
    if not fence_members(turn, group, leaving):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The change of the group is too large to be stored.")


def fence_members(turn: Turn, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """All of them, or none if that is too much for one append. If only classic members are left, so is the group."""
    gone = frozenset(member.member_id for member in leaving)
    if not gone:
        return True
    if can_downgrade(turn, group, gone) and downgrade(turn, group, gone):
        return True
    draft = Draft(group, gone, None)
    for member_id in sorted(gone):
        draft.records += member_tombstones(group.group_id, member_id)
    drop_unused_patterns(draft)
    metadata_hash = turn.topics.hash_of(draft.topic_names())
    draft.records.append(group_epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
    return turn.append_consumer(group, draft.records)


def leave_static(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Its partitions are kept for it until its session ends."""
    away = replace(member, member_epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_PARTITIONS)
    turn.append_consumer(group, [current_record(group.group_id, away)])


# ---- when a timer is due


def members_due(turn: Turn, group: ConsumerGroup, member_ids: Sequence[str]) -> bool:
    """These did not do in time what they should have. False if they could not all be fenced in one append."""
    due = [group.members[member_id] for member_id in member_ids if member_id in group.members]
    everyone = len(due)
    while due and not fence_members(turn, group, due):
        if len(due) == 1:
            return False
        due = due[: len(due) // 2]
    return len(due) == everyone
