"""One consumer group: its epochs, its members, who holds which partition, and who should.

All of it is durable and follows the log, but for what stands apart below. A group answers nobody and writes nothing; it
keeps its own books. Invariants:
- `owners` has exactly the partitions that members have assigned or pending revocation, and one owner for each;
- `topic_counts`, `regex_counts`, `assignor_counts`, `protocol_counts` and `classic_count` count the members that
  subscribe by name, by pattern, ask for an assignor, offer a classic protocol, or speak the classic protocol;
- every member has a watch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.groups.consumer.member import ConsumerMember, Watch
from penstock.groups.consumer.partitions import NO_PARTITIONS, Partitions
from penstock.groups.consumer.states import ConsumerGroupState, MemberState
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE
from penstock.groups.timers import Kind, Timer
from penstock.protocol.errors import ErrorCode


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Matches(NamedTuple):
    """The names that a pattern was held against, and those that it matched."""

    seen: frozenset[str]
    matched: frozenset[str]


class TargetInWriting:
    """A target assignment that is too large for one append, and goes to the log in several."""

    __slots__ = ("epoch", "left")

    def __init__(self, epoch: int, left: list[tuple[str, Partitions]]) -> None:
        self.epoch = epoch
        self.left = left


class ConsumerGroup:
    __slots__ = (
        "assignment_epoch",
        "assignment_timer",
        "assignor_counts",
        "changed_ms",
        "classic_count",
        "group_epoch",
        "group_id",
        "has_unapplied_record",
        "last_assigned_ms",
        "matches",
        "members",
        "metadata_hash",
        "owners",
        "patterns_generation",
        "patterns_resolved_ms",
        "protocol_counts",
        "regex_counts",
        "resolved",
        "static_members",
        "target_in_writing",
        "targets",
        "topic_counts",
        "topics_generation",
        "watches",
    )

    protocol_type = CONSUMER_PROTOCOL_TYPE
    uses_consumer_protocol = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.resolved: dict[str, ResolvedPattern] = {}

        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.owners: dict[bytes, dict[int, str]] = {}
        self.topic_counts: dict[str, int] = {}
        self.regex_counts: dict[str, int] = {}
        self.assignor_counts: dict[str, int] = {}
        self.protocol_counts: dict[str, int] = {}
        self.classic_count = 0

        # What this coordinator alone knows, and a new one finds out anew.
        self.watches: dict[str, Watch] = {}
        self.topics_generation: int | None = None  # of the topics for which `metadata_hash` was last compared
        self.matches: dict[str, Matches] = {}
        self.patterns_generation: int | None = None
        self.patterns_resolved_ms: int | None = None
        self.last_assigned_ms: int | None = None
        self.changed_ms: int | None = None  # when the group epoch last rose
        self.target_in_writing: TargetInWriting | None = None
        self.assignment_timer = Timer(Kind.ASSIGNMENT, group_id)
        # A record about this group is on its way to the log, and nothing may be decided until it is applied.
        self.has_unapplied_record = False

    # ---- what the group is

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_abandoned(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts or any(topic in each.topics for each in self.resolved.values())

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member, and for a static one only if no newer instance has replaced it."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if known == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a classic member that offers these has a protocol in common with all the other classic ones."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self.protocol_counts.get(name, 0) == self.classic_count for name in protocols
        )

    def is_free(self, topic_id: bytes, partition: int, for_member: str) -> bool:
        return self.owners.get(topic_id, {}).get(partition, for_member) == for_member

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether something of the member's target is still another's."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            not self.is_free(topic_id, partition, member.member_id)
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    def look_again(self) -> None:
        """What was found out about topics did not get into the log: the next heartbeat finds it out anew."""
        self.topics_generation = self.patterns_generation = self.patterns_resolved_ms = None
        self.matches.clear()

    def watch(self, member_id: str) -> Watch:
        watch = self.watches.get(member_id)
        if watch is None:
            watch = self.watches[member_id] = Watch(self.group_id, member_id)
        return watch

    # ---- members come, go and change

    def put(self, member: ConsumerMember) -> None:
        """The member is new, or as it is now."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.watch(member.member_id)
        self._count(before, -1)
        self._count(member, +1)
        self._release(before)
        self._own(member)
        if before is not None and before.instance_id != member.instance_id:
            self._forget_instance(before)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Watch | None:
        """Returns the watch, whose clocks the caller stops."""
        self.targets.pop(member_id, None)
        member = self.members.pop(member_id, None)
        self._count(member, -1)
        self._release(member)
        if member is not None:
            self._forget_instance(member)
        return self.watches.pop(member_id, None)

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _own(self, member: ConsumerMember) -> None:
        for partitions_by_topic in (member.assigned, member.pending_revocation):
            for topic_id, partitions in partitions_by_topic.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id

    def _release(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        for partitions_by_topic in (member.assigned, member.pending_revocation):
            for topic_id, partitions in partitions_by_topic.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def _count(self, member: ConsumerMember | None, by: int) -> None:
        if member is None:
            return
        for name in member.topic_names:
            _add(self.topic_counts, name, by)
        if member.topic_regex:
            _add(self.regex_counts, member.topic_regex, by)
        if member.server_assignor is not None:
            _add(self.assignor_counts, member.server_assignor, by)
        if member.classic is not None:
            self.classic_count += by
            for name, _ in member.classic.protocols:
                _add(self.protocol_counts, name, by)


def _add(counts: dict[str, int], name: str, by: int) -> None:
    count = counts.get(name, 0) + by
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)
