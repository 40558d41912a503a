"""Throughput or latency, by name: what each profile sets in librdkafka. All of it may be overridden.

| profile      | for                                    | the producer waits | batches       | compression |
| ------------ | -------------------------------------- | ------------------ | ------------- | ----------- |
| `latency`    | a traditional queue, request and reply | not at all         | up to 64 KiB  | none        |
| `balanced`   | most programs                          | up to 5 ms         | up to 256 KiB | lz4         |
| `throughput` | log shipping, bulk loads               | up to 50 ms        | up to 1 MB    | lz4         |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from penstock.client.errors import SettingsError, near_miss

ProfileName = Literal["latency", "balanced", "throughput"]
PROFILE_NAMES: tuple[ProfileName, ...] = get_args(ProfileName)


@dataclass(frozen=True, slots=True)
class Profile:
    name: ProfileName
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]
    batch_messages_max: int  # how many a consumer takes from librdkafka at once


LATENCY = Profile(
    "latency",
    producer=MappingProxyType({"linger.ms": 0, "batch.size": 65_536, "compression.type": "none"}),
    consumer=MappingProxyType(
        {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500, "fetch.error.backoff.ms": 50, "queued.min.messages": 10_000}
    ),
    batch_messages_max=100,
)
BALANCED = Profile(
    "balanced",
    producer=MappingProxyType({"linger.ms": 5, "batch.size": 262_144, "compression.type": "lz4"}),
    consumer=MappingProxyType(
        {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500, "fetch.error.backoff.ms": 100, "queued.min.messages": 100_000}
    ),
    batch_messages_max=500,
)
THROUGHPUT = Profile(
    "throughput",
    producer=MappingProxyType(
        {
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
        }
    ),
    consumer=MappingProxyType(
        {
            "fetch.min.bytes": 65_536,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 200,
            "fetch.queue.backoff.ms": 10,  # librdkafka's second between fetches leaves a fast program waiting
            "max.partition.fetch.bytes": 4_194_304,
            "queued.min.messages": 200_000,
        }
    ),
    batch_messages_max=1000,
)

_PROFILES: dict[str, Profile] = {each.name: each for each in (LATENCY, BALANCED, THROUGHPUT)}


def find_profile(name: str) -> Profile:
    if isinstance(name, str) and name in _PROFILES:
        return _PROFILES[name]
    hint = near_miss(str(name), _PROFILES) or f"There are {', '.join(map(repr, _PROFILES))}."
    raise SettingsError(f"there is no profile {name!r}.", hint)
