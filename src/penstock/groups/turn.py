"""One call of the machine: what a rule may look at, and what it has to say.

A rule reads the groups and the offsets, changes of them what is not durable, and leaves records and replies here.
What is durable changes when the records come back through `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, Ticket
from penstock.groups.config import GroupConfig, GroupSettings
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.group import Group
from penstock.groups.kinds import AnyGroup
from penstock.groups.member import Member
from penstock.groups.offsets import Offsets
from penstock.groups.pending import PendingOffsets
from penstock.groups.records import group_record
from penstock.groups.timers import Timers
from penstock.groups.topics import KnownTopics
from penstock.protocol.messages.group_records import GroupMetadataValue

RECORD_OVERHEAD_BYTES = 32  # a record's own header, at most, around its key and value

SettingsOf = Callable[[str], GroupSettings]


class Turn:
    __slots__ = (
        "appended_bytes",
        "config",
        "group_settings",
        "groups",
        "new_member_id",
        "now_ms",
        "offsets",
        "outcome",
        "pending",
        "timers",
        "topics",
    )

    def __init__(
        self,
        config: GroupConfig,
        groups: dict[str, AnyGroup],
        offsets: Offsets,
        pending: PendingOffsets,
        timers: Timers,
        topics: KnownTopics,
        new_member_id: Callable[[str], str],
        group_settings: SettingsOf,
        now_ms: int,
    ) -> None:
        self.config = config
        self.groups = groups
        self.offsets = offsets
        self.pending = pending
        self.timers = timers
        self.topics = topics
        self.new_member_id = new_member_id
        self.group_settings = group_settings
        self.now_ms = now_ms
        self.outcome = Outcome()
        self.appended_bytes = 0

    def reply(self, ticket: Ticket, response: Any) -> None:
        self.outcome.replies.append((ticket, response))

    def append(self, *records: LogRecord) -> bool:
        """All of the records, or none of them if they no longer fit in one append."""
        size = size_of(records)
        if self.appended_bytes + size > self.config.append_max_bytes:
            return False
        self.appended_bytes += size
        self.outcome.records.extend(records)
        return True

    def has_room_for(self, records: Iterable[LogRecord]) -> bool:
        """With something left, for what a rule may have to add to them."""
        return self.appended_bytes + size_of(records) <= self.config.append_max_bytes // 2

    def append_group(self, group: Group, value: GroupMetadataValue | None) -> bool:
        """From here until the record is applied, the group takes no part in anything."""
        assert not group.has_unapplied_record
        group.has_unapplied_record = self.append(group_record(group.group_id, value))
        return group.has_unapplied_record

    def append_consumer(self, group: ConsumerGroup, records: Sequence[LogRecord]) -> bool:
        if not self.append(*records):
            return False
        group.has_unapplied_record = True
        return True

    def start_session(self, member: Member) -> None:
        """The member was heard of: it has a session's time until it must be again."""
        self.timers.start(member.session, self.now_ms + member.session_timeout_ms)

    def start_consumer_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        session_ms = consumer_session_ms(self.config, self.group_settings(group.group_id), member)
        self.timers.start(group.watch(member.member_id).session, self.now_ms + session_ms)


def size_of(records: Iterable[LogRecord]) -> int:
    return sum(len(r.key) + len(r.value or b"") + RECORD_OVERHEAD_BYTES for r in records)


def consumer_session_ms(config: GroupConfig, settings: GroupSettings, member: ConsumerMember) -> int:
    """A classic member chose its own when it joined; with the consumer protocol that is the group's to say."""
    return config.consumer_session_ms(settings) if member.classic is None else member.classic.session_timeout_ms
