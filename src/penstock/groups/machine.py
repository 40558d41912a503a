"""The group machine: all the groups of one partition of `__consumer_offsets`, and the offsets they committed.

It finds the rule for a command or a timer, and keeps what the log says. Durable, and changed in `apply` alone: the
committed offsets, that a group exists, and its last Empty or Stable record. The rest (who waits, who is pending, which
rebalance is under way) dies with the machine; members notice, and join again. The records of one call are applied
before the next, so that a rule never meets a group whose record is still on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome
from penstock.groups import commands
from penstock.groups.committing import commit_offsets, fetch_offsets
from penstock.groups.config import GroupConfig
from penstock.groups.deleting import delete_groups, delete_offsets
from penstock.groups.describing import describe_groups, list_groups
from penstock.groups.expiring import DeletedTopics, Expiry
from penstock.groups.group import Group
from penstock.groups.heartbeating import heartbeat
from penstock.groups.joining import join
from penstock.groups.leaving import leave
from penstock.groups.offsets import Offsets
from penstock.groups.rebalancing import join_phase_ended, prepare_rebalance, session_ended, sync_phase_ended
from penstock.groups.records import GroupStored, OffsetCommitted, read_record
from penstock.groups.states import Event
from penstock.groups.syncing import sync
from penstock.groups.timers import Kind, Timer, Timers
from penstock.groups.turn import Turn

Rule = Callable[[Turn, Any], None]


class GroupMachine:
    """A `penstock.coordinator.machine.Machine`. `new_member_id` makes a unique id that begins with what it is given."""

    def __init__(self, config: GroupConfig, new_member_id: Callable[[str], str]) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._new_member_id = new_member_id
        self._timers = Timers()
        self._expiry = Expiry()
        self._deleted_topics = DeletedTopics()
        self._is_loading = True
        self._rules: dict[type, Rule] = {
            commands.Join: join,
            commands.Sync: sync,
            commands.Heartbeat: heartbeat,
            commands.Leave: leave,
            commands.CommitOffsets: commit_offsets,
            commands.FetchOffsets: fetch_offsets,
            commands.DeleteOffsets: delete_offsets,
            commands.DescribeGroups: describe_groups,
            commands.ListGroups: list_groups,
            commands.DeleteGroups: delete_groups,
            commands.TopicsDeleted: self._deleted_topics.topics_deleted,
        }

    def decide(self, command: commands.Command, now_ms: int) -> Outcome:
        assert not self._is_loading
        turn = self._turn(now_ms)
        self._rules[type(command)](turn, command)
        return turn.outcome

    def tick(self, now_ms: int) -> Outcome:
        """Everything that is due, as far as it fits in one append; what is left is due still."""
        turn = self._turn(now_ms)
        put_off = []
        while turn.appended_bytes < self.config.append_max_bytes // 2:
            timer = self._timers.pop_due(now_ms)
            if timer is None:
                break
            group = self.groups.get(timer.group_id)
            if group is not None and group.has_unapplied_record:
                put_off.append(timer)
            else:
                self._timer_due(turn, timer, group)
        for timer in put_off:
            self._timers.start(timer, now_ms)
        return turn.outcome

    def _timer_due(self, turn: Turn, timer: Timer, group: Group | None) -> None:
        if timer.kind is Kind.EXPIRY:
            self._expiry.due(turn)
        elif timer.kind is Kind.DELETED_TOPICS:
            self._deleted_topics.due(turn)
        else:
            assert group is not None, "the timers of a group end with it"
            if timer.kind is Kind.SESSION:
                session_ended(turn, group, timer.member_id)
            elif timer.kind is Kind.JOIN:
                join_phase_ended(turn, group)
            else:
                sync_phase_ended(turn, group)

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def apply(self, record: LogRecord, now_ms: int) -> None:
        stored = read_record(record)
        if isinstance(stored, OffsetCommitted):
            self._apply_offset(stored)
        elif isinstance(stored, GroupStored):
            self._apply_group(stored)

    def _apply_offset(self, stored: OffsetCommitted) -> None:
        if stored.offset is None:
            self.offsets.remove(stored.group_id, stored.topic, stored.partition)
            return
        # Who only stores offsets never joins: the first offset makes the group, a simple one.
        self.groups.setdefault(stored.group_id, Group(stored.group_id))
        self.offsets.put(stored.group_id, stored.topic, stored.partition, stored.offset)

    def _apply_group(self, stored: GroupStored) -> None:
        if stored.value is None:
            self._remove_group(stored.group_id)
        elif self._is_loading:
            self.groups[stored.group_id] = Group.loaded(stored.group_id, stored.value)
        else:
            self.groups[stored.group_id].settle(stored.value)

    def _remove_group(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is None or self._is_loading:
            return
        group.happens(Event.GROUP_DELETED)
        for timer in (*group.pending.values(), group.join_timer, group.sync_timer):
            self._timers.cancel(timer)

    def loaded(self, now_ms: int) -> None:
        """Members get a full session to make themselves heard: while the log was read, they could not."""
        self._is_loading = False
        turn = self._turn(now_ms)
        for group in self.groups.values():
            for member in group.members.values():
                turn.start_session(member)
            if len(group.members) > self.config.group_max_size:
                # The limit was lowered. A rebalance lets members commit before some of them are turned away.
                prepare_rebalance(turn, group)
        self._expiry.schedule(turn)
        assert not turn.outcome.records
        assert not turn.outcome.replies

    def _turn(self, now_ms: int) -> Turn:
        return Turn(self.config, self.groups, self.offsets, self._timers, self._new_member_id, now_ms)
