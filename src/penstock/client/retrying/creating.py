"""The topics of a group's parked messages, made where they are missing.

A tier has as many partitions as its origin, room for our headers on top of the origin's largest message, and keeps what
the group has not read: Penstock's retention waits for the group; elsewhere it keeps everything. So do dead letters, for
which nobody can say when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from penstock.client.admin import TIMEOUT_S, create_topic, error_of
from penstock.client.errors import TopicNotFound, from_kafka
from penstock.client.retrying.headers import ERROR_BYTES_MAX, STACK_BYTES_MAX
from penstock.client.retrying.policy import UNITS_MS
from penstock.client.retrying.topics import NAME_MAX, Places, Tier

HEADERS_BYTES_MAX = STACK_BYTES_MAX + ERROR_BYTES_MAX + 8 * NAME_MAX + 1024
KEEP_EVERYTHING = {"retention.ms": "-1", "retention.bytes": "-1"}


class Topics:
    """What the cluster has, as it was asked once."""

    def __init__(self, client: Mapping[str, Any], group: str) -> None:
        self._admin = AdminClient(dict(client))
        self._group = group
        self.partitions: dict[str, int] = {}
        self._look()

    def _look(self) -> None:
        try:
            found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as failure:
            raise from_kafka(failure.args[0], "asking for the topics") from failure
        self.partitions = {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def with_earlier_tiers(self, places: Places) -> Places:
        """Tiers of an earlier policy may hold messages still, and are read until someone deletes them."""
        prefix = f"{places.origin}.{self._group}.retry."
        known = {tier.topic for tier in places.tiers}
        earlier = []
        for name in sorted(self.partitions):
            delay = name.removeprefix(prefix)
            unit = delay.lstrip("0123456789")
            if name.startswith(prefix) and name not in known and unit in UNITS_MS and delay[: -len(unit)]:
                earlier.append(Tier(name, int(delay[: -len(unit)]) * UNITS_MS[unit]))
        return Places(places.origin, (*places.tiers, *earlier), places.dead_letters)

    def ensure(self, places: Places) -> None:
        if places.origin not in self.partitions:
            raise TopicNotFound(
                f"there is no topic {places.origin!r}.",
                f"Create it first, 'penstock topic create {places.origin}': its retry topics have as many partitions.",
            )
        count = self.partitions[places.origin]
        missing = [name for name in places.names if name not in self.partitions]
        if missing:
            self._create(places, missing, count)
        self._widen([tier.topic for tier in places.tiers if self.partitions[tier.topic] < count], count)

    def _create(self, places: Places, missing: Iterable[str], count: int) -> None:
        bytes_max = {"max.message.bytes": str(self._largest(places.origin) + HEADERS_BYTES_MAX)}
        held = {"retention.hold.group": self._group}
        for name in missing:
            is_tier = name != places.dead_letters
            if not (is_tier and self._create_one(name, count, {**bytes_max, **held})):
                self._create_one(name, count, {**bytes_max, **KEEP_EVERYTHING})
            self.partitions[name] = count

    def _create_one(self, name: str, count: int, config: dict[str, str]) -> bool:
        """False where the broker does not know one of the settings, as Kafka does not know Penstock's own."""
        error = create_topic(self._admin, name, count, config)
        if error is None:
            return True
        if error.code() == KafkaError.INVALID_CONFIG and "retention.hold.group" in config:
            return False
        raise from_kafka(error, f"creating the topic {name!r}")

    def _widen(self, names: Iterable[str], count: int) -> None:
        """Its origin has more partitions than when it was made."""
        for name in names:
            (future,) = self._admin.create_partitions(
                [NewPartitions(name, count)], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
            ).values()
            error = error_of(future)
            if error is not None and error.code() != KafkaError.INVALID_PARTITIONS:  # another member was quicker
                raise from_kafka(error, f"adding partitions to {name!r}")
            self.partitions[name] = count

    def _largest(self, topic: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self._admin.describe_configs([resource], request_timeout=TIMEOUT_S).values()
        error = error_of(future)
        if error is not None:
            raise from_kafka(error, f"asking for the settings of {topic!r}")
        return int(future.result()["max.message.bytes"].value)
