"""The names of `confluent_kafka.admin` that we use. It is typed, but does not declare what it passes on."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "AdminClient",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "NewPartitions",
    "NewTopic",
    "ResourceType",
    "TopicMetadata",
    "at_time",
]

_SPEC: Any = OffsetSpec
EARLIEST = _SPEC.earliest()
LATEST = _SPEC.latest()


def at_time(timestamp_ms: int) -> Any:
    return _SPEC.for_timestamp(timestamp_ms)
