"""What an append must know of the topic's settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Flush(Enum):
    COMMIT = "commit"
    INTERVAL = "interval"
    OS = "os"


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    flush: Flush = Flush.COMMIT
    flush_ms: int = 1000
    flush_messages: int = 2**63 - 1
    max_message_bytes: int = 1048588
    log_append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3600 * 1000
    compression: int | None = None  # the codec that batches must have; None: whatever the producer chose
    compression_level: int | None = None
    require_keys: bool = False
    validate_records: bool = False
    min_insync_replicas: int = 1

    @property
    def needs_worker(self) -> bool:
        """Whether every batch must be opened before it is appended."""
        return self.compression is not None or self.require_keys or self.validate_records
