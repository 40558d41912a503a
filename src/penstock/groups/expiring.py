"""What nobody asked to delete, but nobody needs: expired offsets, offsets of deleted topics, and groups with neither.

Both are done in steps, each small enough for one append and short enough to keep heartbeats waiting little.
"""

from __future__ import annotations

from penstock.groups.commands import TopicsDeleted
from penstock.groups.deleting import append_group_tombstones
from penstock.groups.kinds import AnyGroup
from penstock.groups.offsets import is_expired
from penstock.groups.pending import Place
from penstock.groups.records import offset_record
from penstock.groups.timers import Kind, Timer
from penstock.groups.turn import Turn


class Expiry:
    """The check that comes round every `offsets_retention_check_interval_ms`."""

    def __init__(self) -> None:
        self.timer = Timer(Kind.EXPIRY)
        self._to_check: list[str] = []

    def schedule(self, turn: Turn) -> None:
        turn.timers.start(self.timer, turn.now_ms + turn.config.offsets_retention_check_interval_ms)

    def due(self, turn: Turn) -> None:
        if not self._to_check:
            self._to_check = list(turn.groups)
        for _ in range(min(turn.config.expiry_groups_per_turn, len(self._to_check))):
            group = turn.groups.get(self._to_check[-1])
            if group is not None and not group.has_unapplied_record and not _expire_group(turn, group):
                break  # the append is full, so that this group comes first in the next
            self._to_check.pop()
        if self._to_check:
            turn.timers.start(self.timer, turn.now_ms + 1)  # not in this turn, so that requests come between
        else:
            self.schedule(turn)


def _expire_group(turn: Turn, group: AnyGroup) -> bool:
    """False if there was no room for all its tombstones. An open transaction keeps what it is about to overwrite, and a
    group that retention waits for keeps all: without its offsets it would hold everything again."""
    is_awaited = group.group_id in turn.topics.awaited_groups()
    some_are_left = turn.pending.has_group(group.group_id)
    for topic, partitions in turn.offsets.of_group(group.group_id).items():
        for partition, offset in partitions.items():
            is_over = is_expired(group, topic, offset, turn.now_ms, turn.config.offsets_retention_ms)
            if is_awaited or not is_over or turn.pending.has(Place(group.group_id, topic, partition)):
                some_are_left = True
            elif not turn.append(offset_record(group.group_id, topic, partition, None)):
                return False
    if some_are_left or not group.is_abandoned:
        return True
    return append_group_tombstones(turn, group)


class DeletedTopics:
    """Topics whose offsets are being deleted, each with the time from which an offset is of a new topic of its name."""

    def __init__(self) -> None:
        self.timer = Timer(Kind.DELETED_TOPICS)
        self._deleted_ms: dict[str, int] = {}

    def topics_deleted(self, turn: Turn, command: TopicsDeleted) -> None:
        for topic in command.topics:
            self._deleted_ms[topic] = turn.now_ms
        self.due(turn)
        turn.reply(command.ticket, None)

    def due(self, turn: Turn) -> None:
        if self._delete(turn):
            self._deleted_ms.clear()
            turn.timers.cancel(self.timer)
        else:
            turn.timers.start(self.timer, turn.now_ms + 1)

    def _delete(self, turn: Turn) -> bool:
        """False if there was no room for all the tombstones."""
        for group_id, topics in turn.offsets.by_group().items():
            for topic in self._deleted_ms.keys() & topics.keys():
                for partition, offset in topics[topic].items():
                    is_old = offset.commit_timestamp_ms <= self._deleted_ms[topic]
                    if is_old and not turn.append(offset_record(group_id, topic, partition, None)):
                        return False
        for place, committed_ms in turn.pending.of_topics(frozenset(self._deleted_ms)):
            is_old = committed_ms <= self._deleted_ms[place.topic]
            if is_old and not turn.append(offset_record(*place, None)):
                return False
        return True
