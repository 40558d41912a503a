"""Publish and subscribe: what is published, every group that subscribes reads, each at its own pace."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer
from penstock.client.consumer import Consumer
from penstock.client.deliveries import Delivery
from penstock.client.delivery import DeliveryName, find_delivery
from penstock.client.errors import SettingsError, after
from penstock.client.names import check_topic, find_bootstrap
from penstock.client.options import ProducerOptions, SubscribeOptions, TopicOptions
from penstock.client.producer import Headers, Producer
from penstock.client.profiles import ProfileName, find_profile
from penstock.client.serializers import Serializer, serializer
from penstock.client.settings import check_settings, producer_settings


class Topic:
    """A topic by its name: `publish` to it, `subscribe(group)` to it.

    `name`       the topic
    `bootstrap`  brokers to ask first, HOST:PORT with commas between; else $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092
    `delivery`   what is promised about each message, published or read; exactly-once is a `Producer`'s
    `profile`    what it may cost
    `key`        how keys become bytes, as for a `Producer`
    `value`      the same for values
    `settings`   settings of librdkafka for publishing
    """

    def __init__(
        self,
        name: str,
        bootstrap: str | None = None,
        *,
        delivery: DeliveryName = "at-least-once",
        profile: ProfileName = "balanced",
        key: str | Serializer | None = None,
        value: str | Serializer | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = check_topic(name)
        if find_delivery(delivery).is_transactional:
            raise SettingsError(
                "a Topic publishes each message by itself, so delivery='exactly-once' can't be its own.",
                "Send in transactions: Producer(delivery='exactly-once').transaction(). "
                "To read so: topic.subscribe(group, delivery='exactly-once').",
            )
        self.bootstrap = find_bootstrap(bootstrap)
        producer_settings(find_delivery(delivery), find_profile(profile), {}, settings)
        serializer(key, "key")
        serializer(value, "value")
        self._delivery: DeliveryName = delivery
        self._profile: ProfileName = profile
        self._key = key
        self._value = value
        self._settings = settings
        self._producer: Producer | None = None

    def publish(self, value: Any = None, *, key: Any = None, headers: Headers | None = None) -> Delivery:
        """Sends a message to all groups that subscribe, as `Producer.send` does."""
        if self._producer is None:
            self._producer = Producer(self.bootstrap, **self.producer_options())
        return self._producer.send(self.name, value, key=key, headers=headers)

    def subscribe(self, group: str, **options: Unpack[SubscribeOptions]) -> Consumer[Any, Any]:
        """A consumer of this topic, which a broker may create for it, as for the first message.

        It deserializes as this topic serializes, where that was given by name.
        """
        return Consumer(self.bootstrap, group, self.name, **self.consumer_options(options))

    def producer_options(self) -> ProducerOptions:
        """What publishes is made with."""
        return {
            "delivery": self._delivery,
            "profile": self._profile,
            "key": self._key,
            "value": self._value,
            "settings": self._settings,
        }

    def consumer_options(self, given: SubscribeOptions) -> SubscribeOptions:
        """What reads is made with."""
        named: SubscribeOptions = {"delivery": self._delivery, "profile": self._profile}
        if isinstance(self._key, str):
            named["key"] = self._key
        if isinstance(self._value, str):
            named["value"] = self._value
        settings = {"allow.auto.create.topics": True, **check_settings(given.get("settings"))}
        return {**named, **given, "settings": settings}

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was published is acknowledged."""
        if self._producer is not None:
            self._producer.flush(timeout)

    def close(self) -> None:
        """Sends what is still to be sent. Consumers that came of `subscribe` are their own."""
        if self._producer is not None:
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after(error, self.close, "the topic could not deliver everything")


class AsyncTopic:
    """As `Topic`, with the same arguments: `await topic.publish(…)`, `async for message in topic.subscribe(group)`."""

    def __init__(self, name: str, bootstrap: str | None = None, **options: Unpack[TopicOptions]) -> None:
        self.topic = Topic(name, bootstrap, **options)
        self.name = self.topic.name
        self._producer: AsyncProducer | None = None

    async def publish(self, value: Any = None, *, key: Any = None, headers: Headers | None = None) -> Delivery:
        """Sends a message to all groups that subscribe. Await what it returns to know that it has arrived."""
        if self._producer is None:
            self._producer = AsyncProducer(self.topic.bootstrap, **self.topic.producer_options())
        return await self._producer.send(self.name, value, key=key, headers=headers)

    def subscribe(self, group: str, **options: Unpack[SubscribeOptions]) -> AsyncConsumer[Any, Any]:
        """An `AsyncConsumer` of this topic."""
        return AsyncConsumer(self.topic.bootstrap, group, self.name, **self.topic.consumer_options(options))

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until everything that was published is acknowledged."""
        if self._producer is not None:
            await self._producer.flush(timeout)

    async def close(self) -> None:
        """Sends what is still to be sent. Consumers that came of `subscribe` are their own."""
        if self._producer is not None:
            await self._producer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            await self._producer.__aexit__(kind, error, trace)
