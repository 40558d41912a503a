"""The settings of the group coordinator, under Kafka's names, with the unit last."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000
STRING_MAX_BYTES = 2**16


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
        assert self.offsets_retention_check_interval_ms > 0
        assert self.expiry_groups_per_turn > 0
        # Twice the longest record that holds no member, whose size is that of two strings, always fits.
        assert self.append_max_bytes >= 4 * STRING_MAX_BYTES
