"""How the books of consumer groups follow the log: the only place where they change.

A member's clocks run from when the log has it, and stop when the log has lost it. While the log is read, records may
come that others were to follow or precede (compaction drops some of them), so nothing is taken for granted: a record
makes the group and the member that it is about, and a tombstone for what is not there is passed over.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.groups.config import GroupConfig
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.partitions import NO_PARTITIONS, from_list
from penstock.groups.consumer.records import (
    AssignmentEpochStored,
    ConsumerStored,
    CurrentStored,
    GroupEpochStored,
    MemberStored,
    PatternStored,
    TargetStored,
    member_state,
    with_metadata,
)
from penstock.groups.consumer.states import LEAVE_STATIC_EPOCH, MemberState
from penstock.groups.kinds import AnyGroup
from penstock.groups.timers import Timers
from penstock.groups.turn import SettingsOf, consumer_session_ms


class ConsumerBooks:
    def __init__(
        self, config: GroupConfig, groups: dict[str, AnyGroup], timers: Timers, group_settings: SettingsOf
    ) -> None:
        self._config = config
        self._groups = groups
        self._timers = timers
        self._settings = group_settings
        self.is_loading = True

    def apply(self, stored: ConsumerStored, now_ms: int) -> None:
        group = self._groups.get(stored.group_id)
        if isinstance(group, ConsumerGroup):
            group.has_unapplied_record = False
        elif _is_tombstone(stored):
            return  # of what this group was before it became a classic one, or was deleted
        else:
            group = self._groups[stored.group_id] = ConsumerGroup(stored.group_id)
        match stored:
            case GroupEpochStored():
                self._group_epoch(group, stored, now_ms)
            case AssignmentEpochStored():
                group.assignment_epoch = stored.epoch or 0
            case MemberStored():
                self._member(group, stored, now_ms)
            case TargetStored():
                if stored.partitions is None:
                    group.targets.pop(stored.member_id, None)
                else:
                    group.targets[stored.member_id] = stored.partitions
            case CurrentStored():
                self._current(group, stored, now_ms)
            case PatternStored():
                self._pattern(group, stored)

    def _group_epoch(self, group: ConsumerGroup, stored: GroupEpochStored, now_ms: int) -> None:
        if stored.epoch is not None:
            group.group_epoch, group.metadata_hash = stored.epoch, stored.metadata_hash
            if not self.is_loading:
                group.changed_ms = now_ms
            return
        del self._groups[group.group_id]
        self._timers.cancel(group.assignment_timer)
        for watch in group.watches.values():
            for timer in watch.timers:
                self._timers.cancel(timer)

    def _member(self, group: ConsumerGroup, stored: MemberStored, now_ms: int) -> None:
        if stored.value is None:
            watch = group.remove(stored.member_id)
            for timer in watch.timers if watch is not None else ():
                self._timers.cancel(timer)
            return
        known = group.members.get(stored.member_id)
        member = with_metadata(known or ConsumerMember(stored.member_id), stored.value)
        group.put(member)
        if known is None and not self.is_loading:
            self._timers.start(group.watch(member.member_id).session, now_ms + self._session_ms(group, member))

    def _current(self, group: ConsumerGroup, stored: CurrentStored, now_ms: int) -> None:
        known = group.members.get(stored.member_id)
        if stored.value is None:
            if known is not None:
                group.put(replace(known, assigned=NO_PARTITIONS, pending_revocation=NO_PARTITIONS))
            return
        value = stored.value
        member = replace(
            known or ConsumerMember(stored.member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=member_state(value.state),
            assigned=from_list(value.assigned_partitions),
            pending_revocation=from_list(value.partitions_pending_revocation),
        )
        group.put(member)
        if not self.is_loading:
            self._watch_revocation(group, member, now_ms)

    def _pattern(self, group: ConsumerGroup, stored: PatternStored) -> None:
        if stored.resolved is not None:
            group.resolved = {**group.resolved, stored.regex: stored.resolved}
        else:
            group.resolved = {regex: each for regex, each in group.resolved.items() if regex != stored.regex}
            group.matches.pop(stored.regex, None)

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A member that must let go of something has so long to say that it did. Classic ones are told to join."""
        timer = group.watch(member.member_id).rebalance
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS and member.member_epoch != LEAVE_STATIC_EPOCH
        if is_revoking and member.classic is None:
            self._timers.start(timer, now_ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(timer)

    def loaded(self, now_ms: int) -> None:
        """Members get a full session to make themselves heard: while the log was read, they could not."""
        self.is_loading = False
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    session = group.watch(member.member_id).session
                    self._timers.start(session, now_ms + self._session_ms(group, member))
                    self._watch_revocation(group, member, now_ms)

    def _session_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        return consumer_session_ms(self._config, self._settings(group.group_id), member)


def _is_tombstone(stored: ConsumerStored) -> bool:
    match stored:
        case GroupEpochStored() | AssignmentEpochStored():
            return stored.epoch is None
        case MemberStored() | CurrentStored():
            return stored.value is None
        case TargetStored():
            return stored.partitions is None
        case PatternStored():
            return stored.resolved is None
