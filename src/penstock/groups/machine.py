"""The group machine: all the groups of one partition of `__consumer_offsets`, and the offsets they committed.

It finds the rule for a command or a timer, and keeps what the log says. Durable, and changed in `apply` alone: the
committed offsets and those of open transactions, that a group exists, a classic group's last Empty or Stable record,
and all of a consumer group but its clocks. The rest (who waits, who is pending, which rebalance is under way) dies with
the machine; members notice, and join again. The records of one call are applied before the next, so that a rule never
meets a group whose record is still on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, ProducerStamp
from penstock.groups import commands
from penstock.groups.committing import commit_offsets, commit_transactional_offsets, fetch_offsets
from penstock.groups.config import GroupConfig, GroupSettings
from penstock.groups.consumer.applying import ConsumerBooks
from penstock.groups.consumer.describing import describe_consumer_groups
from penstock.groups.consumer.fencing import members_due
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.heartbeating import consumer_heartbeat
from penstock.groups.consumer.targeting import assignment_due
from penstock.groups.deleting import delete_groups, delete_offsets
from penstock.groups.describing import describe_groups, list_groups
from penstock.groups.expiring import DeletedTopics, Expiry
from penstock.groups.group import Group
from penstock.groups.heartbeating import heartbeat
from penstock.groups.joining import join
from penstock.groups.kinds import AnyGroup
from penstock.groups.leaving import leave
from penstock.groups.offsets import Offsets
from penstock.groups.pending import PendingOffsets, Place
from penstock.groups.rebalancing import (
    join_phase_ended,
    prepare_rebalance,
    rebalance_downgraded,
    session_ended,
    sync_phase_ended,
)
from penstock.groups.records import GroupStored, OffsetCommitted, read_record
from penstock.groups.states import Event
from penstock.groups.syncing import sync
from penstock.groups.timers import Kind, Timer, Timers
from penstock.groups.topics import KnownTopics, NoTopics, TopicView
from penstock.groups.turn import SettingsOf, Turn

Rule = Callable[[Turn, Any], None]

# When one of these is due, a member of a consumer group is out.
FENCING = frozenset({Kind.CONSUMER_SESSION, Kind.REVOCATION, Kind.CLASSIC_JOIN, Kind.CLASSIC_SYNC})
# A member that could not be fenced in one append with all the others is looked at again after this long.
FENCE_AGAIN_MS = 1


def _no_settings(group_id: str) -> GroupSettings:
    return GroupSettings()


def _topics_changed(turn: Turn, command: commands.TopicsChanged) -> None:
    """Nothing is to be done at once: each group sees that its topics are others with the next heartbeat."""
    turn.reply(command.ticket, None)


class GroupMachine:
    """A `penstock.coordinator.machine.Machine`. `new_member_id` makes a unique id that begins with what it is given."""

    def __init__(
        self,
        config: GroupConfig,
        new_member_id: Callable[[str], str],
        topics: TopicView | None = None,
        group_settings: SettingsOf = _no_settings,
    ) -> None:
        self.config = config
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self._new_member_id = new_member_id
        self._topics = KnownTopics(NoTopics() if topics is None else topics)
        self._group_settings = group_settings
        self._timers = Timers()
        self._consumer_books = ConsumerBooks(config, self.groups, self._timers, group_settings)
        self._expiry = Expiry()
        self._deleted_topics = DeletedTopics()
        self._is_loading = True
        self._rules: dict[type, Rule] = {
            commands.Join: join,
            commands.Sync: sync,
            commands.Heartbeat: heartbeat,
            commands.Leave: leave,
            commands.ConsumerHeartbeat: consumer_heartbeat,
            commands.CommitOffsets: commit_offsets,
            commands.FetchOffsets: fetch_offsets,
            commands.CommitTransactionalOffsets: commit_transactional_offsets,
            commands.DeleteOffsets: delete_offsets,
            commands.DescribeGroups: describe_groups,
            commands.DescribeConsumerGroups: describe_consumer_groups,
            commands.ListGroups: list_groups,
            commands.DeleteGroups: delete_groups,
            commands.TopicsDeleted: self._deleted_topics.topics_deleted,
            commands.TopicsChanged: _topics_changed,
        }

    def decide(self, command: commands.Command, now_ms: int) -> Outcome:
        assert not self._is_loading
        turn = self._turn(now_ms)
        self._rules[type(command)](turn, command)
        return turn.outcome

    def appends(self, command: commands.Command) -> bool:
        return isinstance(command, commands.APPENDING)

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> Outcome:
        """Everything that is due, as far as it fits in one append; what is left is due still."""
        turn = self._turn(now_ms)
        put_off: list[Timer] = []
        fenced: dict[str, list[Timer]] = {}
        while turn.appended_bytes < self.config.append_max_bytes // 2:
            timer = self._timers.pop_due(now_ms)
            if timer is None:
                break
            group = self.groups.get(timer.group_id)
            if group is not None and group.has_unapplied_record:
                put_off.append(timer)
            elif timer.kind in FENCING:
                fenced.setdefault(timer.group_id, []).append(timer)
            else:
                self._timer_due(turn, timer, group)
        for group_id, timers in fenced.items():
            put_off += self._fence(turn, group_id, timers)
        for timer in put_off:
            self._timers.start(timer, now_ms)
        return turn.outcome

    def _fence(self, turn: Turn, group_id: str, timers: list[Timer]) -> list[Timer]:
        """All that are due in a group are out together, in one group epoch. Returns the timers that must wait."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return []
        if group.has_unapplied_record:
            return timers
        if not members_due(turn, group, list(dict.fromkeys(timer.member_id for timer in timers))):
            for timer in timers:
                self._timers.start(timer, turn.now_ms + FENCE_AGAIN_MS)
        return []

    def _timer_due(self, turn: Turn, timer: Timer, group: AnyGroup | None) -> None:
        if timer.kind is Kind.EXPIRY:
            self._expiry.due(turn)
        elif timer.kind is Kind.DELETED_TOPICS:
            self._deleted_topics.due(turn)
        elif timer.kind is Kind.DOWNGRADED:
            if isinstance(group, Group):
                rebalance_downgraded(turn, group)
        elif timer.kind is Kind.ASSIGNMENT:
            assert isinstance(group, ConsumerGroup), "the timers of a group end with it"
            assignment_due(turn, group)
        else:
            assert isinstance(group, Group), "the timers of a group end with it"
            if timer.kind is Kind.SESSION:
                session_ended(turn, group, timer.member_id)
            elif timer.kind is Kind.JOIN:
                join_phase_ended(turn, group)
            else:
                sync_phase_ended(turn, group)

    # ---- what the log says

    def apply(self, record: LogRecord, now_ms: int) -> None:
        stored = read_record(record)
        if isinstance(stored, OffsetCommitted):
            self._apply_offset(stored)
        elif isinstance(stored, GroupStored):
            self._apply_group(stored)
        elif stored is not None:
            self._consumer_books.apply(stored, now_ms)
            self._keep_if_simple(stored.group_id)

    def apply_in_transaction(self, record: LogRecord, producer: ProducerStamp, now_ms: int) -> None:
        """Only offsets are committed in transactions."""
        stored = read_record(record)
        if isinstance(stored, OffsetCommitted) and stored.offset is not None:
            self.groups.setdefault(stored.group_id, Group(stored.group_id))
            place = Place(stored.group_id, stored.topic, stored.partition)
            self.pending.put(producer.producer_id, place, stored.offset)

    def end_transaction(self, producer_id: int, committed: bool, now_ms: int) -> None:
        for place, offset in self.pending.end(producer_id, committed):
            self.offsets.put(*place, offset)

    def _apply_offset(self, stored: OffsetCommitted) -> None:
        place = Place(stored.group_id, stored.topic, stored.partition)
        if stored.offset is None:
            self.offsets.remove(*place)
            self.pending.forget(place)
            return
        # Who only stores offsets never joins: the first offset makes the group, a simple one.
        self.groups.setdefault(stored.group_id, Group(stored.group_id))
        self.offsets.put(*place, stored.offset)
        self.pending.overtake(place)

    def _apply_group(self, stored: GroupStored) -> None:
        group = self.groups.get(stored.group_id)
        if stored.value is None:
            if isinstance(group, Group):
                self._remove_group(group)
        elif self._is_loading:
            self.groups[stored.group_id] = Group.loaded(stored.group_id, stored.value)
        else:
            assert isinstance(group, Group)
            group.settle(stored.value)

    def _remove_group(self, group: Group) -> None:
        del self.groups[group.group_id]
        if not self._is_loading:
            group.happens(Event.GROUP_DELETED)
            for timer in (*group.pending.values(), group.join_timer, group.sync_timer):
                self._timers.cancel(timer)
        self._keep_if_simple(group.group_id)

    def _keep_if_simple(self, group_id: str) -> None:
        """A group that is no longer of its kind, but has offsets, has been left by its members between two kinds."""
        if group_id not in self.groups and (self.offsets.of_group(group_id) or self.pending.has_group(group_id)):
            self.groups[group_id] = Group(group_id)

    def loaded(self, now_ms: int) -> Outcome:
        """Members get a full session to make themselves heard: while the log was read, they could not."""
        self._is_loading = False
        self._consumer_books.loaded(now_ms)
        turn = self._turn(now_ms)
        for group in self.groups.values():
            if isinstance(group, Group):
                self._classic_loaded(turn, group)
        self._expiry.schedule(turn)
        assert not turn.outcome.records
        assert not turn.outcome.replies
        return turn.outcome

    def _classic_loaded(self, turn: Turn, group: Group) -> None:
        for member in group.members.values():
            turn.start_session(member)
        if len(group.members) > self.config.group_max_size or group.is_downgraded:
            # The limit was lowered: a rebalance lets members commit before some of them are turned away. Or the
            # rebalance that was to follow on a downgrade is not on record.
            prepare_rebalance(turn, group)

    def _turn(self, now_ms: int) -> Turn:
        return Turn(
            self.config,
            self.groups,
            self.offsets,
            self.pending,
            self._timers,
            self._topics,
            self._new_member_id,
            self._group_settings,
            now_ms,
        )
