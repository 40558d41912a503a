"""The settings of the transaction coordinator, under Kafka's names, with the unit last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    max_timeout_ms: int = 15 * 60_000  # transaction.max.timeout.ms
    two_phase_commit: bool = True  # transaction.two.phase.commit.enable
    id_expiration_ms: int = 7 * 24 * 3600 * 1000  # transactional.id.expiration.ms
    expiration_check_ms: int = 3600 * 1000  # transaction.remove.expired.transaction.cleanup.interval.ms

    # Who asks while the markers of the last transaction are on their way is answered when they have been written. After
    # this long, or if so many wait already, it is told to come again.
    wait_for_markers_ms: int = 1_000
    waiting_max: int = 100

    partitions_max: int = 10_000  # of one transaction: all of them are in each of its records
    append_max_bytes: int = 1_000_000
