"""The settings of the group coordinator, under Kafka's names, with the unit last."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MINUTE_MS = 60_000
STRING_MAX_BYTES = 2**16
NAME_MAX_BYTES = 2**15 - 1  # what the key of a record can hold; flexible requests may hold more


def is_too_long(*names: str | None) -> bool:
    shortest = NAME_MAX_BYTES // 4  # so many characters fit, whatever they are
    return any(name is not None and len(name) > shortest and len(name.encode()) > NAME_MAX_BYTES for name in names)


class MigrationPolicy(Enum):
    """Which way a group with members may go between the classic and the consumer protocol (KIP-848)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What may be set for a group of its own, within the broker's limits; None where it was not."""

    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupConfig:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    # A pending member holds an id that it has not joined with yet (KIP-394): cheap to ask for, so counted apart.
    pending_members_max: int = 10_000
    # A member whose first JoinGroup is parked can't send heartbeats; it is given up after this long.
    new_member_join_timeout_ms: int = 5 * MINUTE_MS

    member_metadata_max_bytes: int = 1 << 20  # held in memory as long as the member lives

    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # For so long after a change, and until a member has what it should have, it is asked for heartbeats this often.
    consumer_settling_ms: int = 3_000
    consumer_settling_heartbeat_ms: int = 500
    # A group with at most so many members and partitions is assigned anew with every change, a larger one at most so
    # often: when a thousand members join, not each of them is worth a look at all the others.
    consumer_prompt_assignment_max: int = 300
    consumer_assignment_interval_ms: int = 1_000
    # Every topic is matched against every pattern of a group, so not more often than this (as in Kafka).
    consumer_regex_refresh_interval_ms: int = 10_000

    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    # An expiry check looks at this many groups in one turn, so that heartbeats do not wait behind it.
    expiry_groups_per_turn: int = 1_000

    # What one append may hold, a little under the log's own limit. The engine drops the whole machine when an append
    # fails, so one group's oversized assignment must be refused here, before it costs the others their coordinator.
    append_max_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        assert 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms
        assert self.initial_rebalance_delay_ms >= 0
        assert self.group_max_size > 0
        assert self.pending_members_max > 0
        assert 0 < self.consumer_min_session_timeout_ms <= self.consumer_max_session_timeout_ms
        assert 0 < self.consumer_min_heartbeat_interval_ms <= self.consumer_max_heartbeat_interval_ms
        assert self.consumer_max_size > 0
        assert self.consumer_assignors
        assert self.consumer_prompt_assignment_max >= 0
        assert self.consumer_assignment_interval_ms > 0
        assert self.consumer_regex_refresh_interval_ms > 0
        assert self.offsets_retention_check_interval_ms > 0
        assert self.expiry_groups_per_turn > 0
        # Twice the longest record that holds no member, whose size is that of two strings, always fits.
        assert self.append_max_bytes >= 4 * STRING_MAX_BYTES

    def consumer_session_ms(self, settings: GroupSettings) -> int:
        if settings.consumer_session_timeout_ms is None:
            return self.consumer_session_timeout_ms
        floor, ceiling = self.consumer_min_session_timeout_ms, self.consumer_max_session_timeout_ms
        return min(max(settings.consumer_session_timeout_ms, floor), ceiling)

    def consumer_heartbeat_ms(self, settings: GroupSettings) -> int:
        if settings.consumer_heartbeat_interval_ms is None:
            return self.consumer_heartbeat_interval_ms
        floor, ceiling = self.consumer_min_heartbeat_interval_ms, self.consumer_max_heartbeat_interval_ms
        return min(max(settings.consumer_heartbeat_interval_ms, floor), ceiling)
