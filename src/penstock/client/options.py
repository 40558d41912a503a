"""Arguments that one call hands on to another, by name: so that a type checker, and an editor, know them there too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from penstock.client.consumer import Start
    from penstock.client.delivery import DeliveryName
    from penstock.client.filtering import HeaderFilter, Where
    from penstock.client.partitioning import Partitioner
    from penstock.client.producer import Headers
    from penstock.client.profiles import ProfileName
    from penstock.client.queue import JobSerializer
    from penstock.client.retrying.policy import Duration, Retry
    from penstock.client.serializers import Deserializer, Serializer


class SendOptions(TypedDict, total=False):
    """Of `Producer.send`."""

    key: Any
    headers: Headers | None
    timestamp_ms: int | None
    partition: int | None


class ProducerOptions(TypedDict, total=False):
    """Of `Producer`, but those that an `AsyncProducer` has itself."""

    delivery: DeliveryName
    profile: ProfileName
    key: str | Serializer | None
    value: str | Serializer | None
    partitioner: str | Partitioner | None
    transactional_id: str | None
    connect_timeout_s: float
    settings: Mapping[str, Any] | None


class ConsumerOptions(TypedDict, total=False):
    """Of `Consumer`, but those that an `AsyncConsumer` has itself."""

    delivery: DeliveryName
    profile: ProfileName
    key: str | Deserializer | None
    value: str | Deserializer | None
    where: Where | HeaderFilter | None
    start: Start
    commit_interval_s: float
    commit_every: int
    connect_timeout_s: float
    settings: Mapping[str, Any] | None


class SubscribeOptions(ConsumerOptions, total=False):
    """Of `Consumer`, but those that a `Topic` knows."""

    handle_signals: bool


class HandlerOptions(TypedDict, total=False):
    """Of `Consumer.handler`."""

    retry: Retry | None
    dead_letter: bool | str
    ordered: bool
    timeout: Duration | None


class QueueOptions(TypedDict, total=False):
    """Of `Queue`, but those that an `AsyncQueue` has itself."""

    group: str | None
    partitions: int
    value: JobSerializer
    retry: Retry | None
    dead_letter: bool | str
    profile: ProfileName
    producer_settings: dict[str, Any] | None
    consumer_settings: dict[str, Any] | None


class TopicOptions(TypedDict, total=False):
    """Of `Topic`."""

    delivery: DeliveryName
    profile: ProfileName
    key: str | Serializer | None
    value: str | Serializer | None
    settings: Mapping[str, Any] | None
