"""One call of the machine: what a rule may look at, and what it has to say.

A rule reads the groups and the offsets, changes of them what is not durable, and leaves records and replies here.
What is durable changes when the records come back through `apply`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, Ticket
from penstock.groups.config import GroupConfig
from penstock.groups.group import Group
from penstock.groups.member import Member
from penstock.groups.offsets import Offsets
from penstock.groups.records import group_record
from penstock.groups.timers import Timers
from penstock.protocol.messages.group_records import GroupMetadataValue

RECORD_OVERHEAD_BYTES = 32  # a record's own header, at most, around its key and value


class Turn:
    __slots__ = ("appended_bytes", "config", "groups", "new_member_id", "now_ms", "offsets", "outcome", "timers")

    def __init__(
        self,
        config: GroupConfig,
        groups: dict[str, Group],
        offsets: Offsets,
        timers: Timers,
        new_member_id: Callable[[str], str],
        now_ms: int,
    ) -> None:
        self.config = config
        self.groups = groups
        self.offsets = offsets
        self.timers = timers
        self.new_member_id = new_member_id
        self.now_ms = now_ms
        self.outcome = Outcome()
        self.appended_bytes = 0

    def reply(self, ticket: Ticket, response: Any) -> None:
        self.outcome.replies.append((ticket, response))

    def append(self, *records: LogRecord) -> bool:
        """All of the records, or none of them if they no longer fit in one append."""
        size = sum(len(r.key) + len(r.value or b"") + RECORD_OVERHEAD_BYTES for r in records)
        if self.appended_bytes + size > self.config.append_max_bytes:
            return False
        self.appended_bytes += size
        self.outcome.records.extend(records)
        return True

    def append_group(self, group: Group, value: GroupMetadataValue | None) -> bool:
        """From here until the record is applied, the group takes no part in anything."""
        assert not group.has_unapplied_record
        group.has_unapplied_record = self.append(group_record(group.group_id, value))
        return group.has_unapplied_record

    def start_session(self, member: Member) -> None:
        """The member was heard of: it has a session's time until it must be again."""
        self.timers.start(member.session, self.now_ms + member.session_timeout_ms)
