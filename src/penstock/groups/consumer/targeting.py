"""The target assignment: who should read what, worked out by an assignor for a group epoch.

It is worked out at most once for an epoch: at once in a small group, and in a large one at most every
`consumer_assignment_interval_ms`, for all that has changed meanwhile. What changed of it is written, and last of all
its epoch, which makes it count. If that is too much for one append, it takes several. Whoever reconciles meanwhile may
be shown parts of old and new at once; that is harmless, because what is free is decided by who holds what, never by
targets.
"""

from __future__ import annotations

from penstock.coordinator.machine import LogRecord
from penstock.groups.assignors import ASSIGNORS, MemberSpec, TopicShape
from penstock.groups.consumer.draft import Draft
from penstock.groups.consumer.group import ConsumerGroup, TargetInWriting
from penstock.groups.consumer.partitions import NO_PARTITIONS, Partitions
from penstock.groups.consumer.records import assignment_epoch_record, target_record
from penstock.groups.turn import Turn

WRITE_NEXT_MS = 1


def update_target(turn: Turn, draft: Draft) -> None:
    """Works the target out in the draft, if it is behind and it is time for it; else sees to it that it will be."""
    group = draft.group
    if draft.group_epoch <= group.assignment_epoch or group.target_in_writing is not None:
        return
    topics = _topics(turn, draft)
    if not _is_due(turn, draft, topics):
        return
    group.last_assigned_ms = turn.now_ms
    turn.timers.cancel(group.assignment_timer)
    changed = _changed_targets(turn, draft, topics)
    records = [target_record(group.group_id, member_id, target) for member_id, target in changed]
    records.append(assignment_epoch_record(group.group_id, draft.group_epoch))
    if turn.has_room_for([*draft.records, *records]):
        _take_over(draft, changed, records)
    else:
        group.target_in_writing = TargetInWriting(draft.group_epoch, changed[::-1])
        turn.timers.start(group.assignment_timer, turn.now_ms)


def _is_due(turn: Turn, draft: Draft, topics: dict[bytes, TopicShape]) -> bool:
    last_ms = draft.group.last_assigned_ms
    if last_ms is None:
        return True
    size = draft.size + sum(shape.partitions for shape in topics.values())
    if size <= turn.config.consumer_prompt_assignment_max:
        return True
    due_ms = last_ms + turn.config.consumer_assignment_interval_ms
    if turn.now_ms < due_ms:
        turn.timers.start(draft.group.assignment_timer, due_ms)
    return turn.now_ms >= due_ms


def _take_over(draft: Draft, changed: list[tuple[str, Partitions]], records: list[LogRecord]) -> None:
    for member_id, target in changed:
        draft.set_target(member_id, target)
    draft.assignment_epoch = draft.group_epoch
    draft.records += records


def _topics(turn: Turn, draft: Draft) -> dict[bytes, TopicShape]:
    shapes = (turn.topics.shape(name) for name in sorted(draft.topic_names()))
    return {shape.topic_id: shape for shape in shapes if shape is not None}


def _changed_targets(turn: Turn, draft: Draft, topics: dict[bytes, TopicShape]) -> list[tuple[str, Partitions]]:
    ids_by_subscription: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member in draft.members():
        subscription = (member.topic_names, member.topic_regex)
        topic_ids = ids_by_subscription.get(subscription)
        if topic_ids is None:
            topic_ids = ids_by_subscription[subscription] = turn.topics.ids(draft.names_of(member))
        owned = draft.target_of(member.member_id)
        specs[member.member_id] = MemberSpec(member.instance_id, member.rack_id, topic_ids, owned)
    assignor = ASSIGNORS[draft.assignor(turn.config.consumer_assignors[0])]
    assigned = assignor.assign(specs, topics)
    changed: list[tuple[str, Partitions]] = []
    for member_id, spec in specs.items():
        target = {topic_id: each for topic_id, each in assigned.get(member_id, NO_PARTITIONS).items() if each}
        if target != spec.owned:
            changed.append((member_id, target))
    return changed


def give_up_target(turn: Turn, group: ConsumerGroup) -> None:
    """What a target in writing was worked out for did not come about. The next heartbeat works another one out."""
    group.target_in_writing = None
    turn.timers.cancel(group.assignment_timer)


# ---- when the timer is due


def assignment_due(turn: Turn, group: ConsumerGroup) -> None:
    if group.target_in_writing is not None:
        _write_on(turn, group, group.target_in_writing)
    elif group.members:
        draft = Draft(group, frozenset(), None)
        update_target(turn, draft)
        if draft.records:
            fits = turn.append_consumer(group, draft.records)
            assert fits, "it was looked at whether there is room"


def _write_on(turn: Turn, group: ConsumerGroup, writing: TargetInWriting) -> None:
    has_written = False
    while writing.left:
        member_id, target = writing.left[-1]
        if member_id in group.members:  # else it has left, and nothing of it may stay behind
            if not turn.append_consumer(group, [target_record(group.group_id, member_id, target)]):
                break
            has_written = True
        writing.left.pop()
    if not writing.left and turn.append_consumer(group, [assignment_epoch_record(group.group_id, writing.epoch)]):
        group.target_in_writing = None
    elif has_written or turn.appended_bytes:
        turn.timers.start(group.assignment_timer, turn.now_ms + WRITE_NEXT_MS)
    else:
        group.target_in_writing = None  # one member's share is more than an append can hold: there is no way to say so
