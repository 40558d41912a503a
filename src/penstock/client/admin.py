"""What the client asks of the cluster besides messages: whether a topic exists, and to create one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.client.errors import BrokerUnreachable
from penstock.client.setting_names import CONSUMER_NAMES, PRODUCER_NAMES

TIMEOUT_S = 30.0
CALLBACKS = frozenset({"error_cb", "stats_cb", "throttle_cb", "logger"})
NOT_OF_THE_CONNECTION = CONSUMER_NAMES | PRODUCER_NAMES | CALLBACKS | {"allow.auto.create.topics"}


def connection_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a client's settings, those with which another client comes to the same brokers."""
    return {name: value for name, value in settings.items() if name not in NOT_OF_THE_CONNECTION}


def is_missing(client: Any, topic: str, timeout_s: float) -> bool:
    """Whether there is no such topic, or not yet. If a producer asks, a broker may create it; if a consumer, not."""
    return client.list_topics(topic, timeout_s).topics[topic].error is not None


def create_topic(admin: AdminClient, name: str, partitions: int, config: dict[str, str]) -> KafkaError | None:
    """Why it could not be created. That another was quicker is no reason."""
    (future,) = admin.create_topics(
        [NewTopic(name, partitions, config=config)], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
    ).values()
    error = error_of(future)
    return None if error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS else error


def error_of(future: Any) -> KafkaError | None:
    try:
        failure = future.exception(TIMEOUT_S + 5)
    except TimeoutError:
        raise BrokerUnreachable("the broker gave no answer.", "Try again.") from None
    if failure is None:
        return None
    if isinstance(failure, KafkaException):
        error: KafkaError = failure.args[0]
        return error
    raise failure
