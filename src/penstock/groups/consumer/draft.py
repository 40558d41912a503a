"""A consumer group as it will be once the records in hand are applied.

A rule works a change out on a draft and appends its records at the end, all or none. The group itself changes when they
come back from the log.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.coordinator.machine import LogRecord
from penstock.groups.consumer.group import ConsumerGroup, ResolvedPattern
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.partitions import Partitions


class Draft:
    """Of `group`, without the members in `gone`, and with `member`, who is new or changed, if there is one."""

    def __init__(self, group: ConsumerGroup, gone: frozenset[str], member: ConsumerMember | None) -> None:
        self.group = group
        self.gone = gone
        self.member = member
        self.records: list[LogRecord] = []
        self.group_epoch = group.group_epoch
        self.metadata_hash = group.metadata_hash
        self.assignment_epoch = group.assignment_epoch
        self.resolved: dict[str, ResolvedPattern] = group.resolved
        self._targets: dict[str, Partitions] = {}

    @property
    def size(self) -> int:
        left = len(self.group.members) - len(self.gone)
        is_new = self.member is not None and self.member.member_id not in self.group.members
        return left + is_new

    def members(self) -> Iterator[ConsumerMember]:
        """In the order in which they came, but for a new one that takes the place of another."""
        for member_id, member in self.group.members.items():
            if member_id not in self.gone and (self.member is None or member_id != self.member.member_id):
                yield member
        if self.member is not None:
            yield self.member

    def replaced(self) -> list[ConsumerMember]:
        """Members as they were that will be gone, or other than they were."""
        ids = [*self.gone, self.member.member_id] if self.member is not None else self.gone
        return [self.group.members[member_id] for member_id in ids if member_id in self.group.members]

    def target_of(self, member_id: str) -> Partitions:
        target = self._targets.get(member_id)
        return self.group.target_of(member_id) if target is None else target

    def set_target(self, member_id: str, target: Partitions) -> None:
        self._targets[member_id] = target

    # ---- what its members subscribe to

    def topic_names(self) -> set[str]:
        """The names that anyone subscribes to, and those that the patterns match."""
        counts = self.group.topic_counts
        dropped: dict[str, int] = {}
        for member in self.replaced():
            for name in member.topic_names:
                dropped[name] = dropped.get(name, 0) + 1
        names = set(counts)
        names.difference_update(name for name, count in dropped.items() if counts[name] == count)
        if self.member is not None:
            names.update(self.member.topic_names)
        for resolved in self.resolved.values():
            names |= resolved.topics
        return names

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        names = frozenset(member.topic_names)
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        return names | resolved.topics if resolved is not None else names

    def uses_regex(self, regex: str) -> int:
        """How many members subscribe with this pattern."""
        count = self.group.regex_counts.get(regex, 0)
        count -= sum(member.topic_regex == regex for member in self.replaced())
        return count + (self.member is not None and self.member.topic_regex == regex)

    def assignor(self, default: str) -> str:
        """The one that most members ask for."""
        counts = dict(self.group.assignor_counts)
        for member in self.replaced():
            if member.server_assignor is not None:
                counts[member.server_assignor] -= 1
        if self.member is not None and self.member.server_assignor is not None:
            counts[self.member.server_assignor] = counts.get(self.member.server_assignor, 0) + 1
        return max(counts, key=lambda name: counts[name]) if any(counts.values()) else default
