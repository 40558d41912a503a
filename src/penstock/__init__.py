"""Penstock: a distributed message queue that speaks the Kafka protocol.

The names of the Python client are here too: `from penstock import Producer, Consumer`. They are loaded when they are
asked for, so that a broker pays nothing for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client import (
        AsyncConsumer,
        AsyncProducer,
        AsyncQueue,
        Backoff,
        BadName,
        BrokerUnreachable,
        CommitFailed,
        Consumer,
        Delivery,
        DeliveryFailed,
        DeliveryTimedOut,
        DeserializationError,
        HandlerTimedOut,
        Message,
        MessageTooLarge,
        NotAuthorized,
        PenstockError,
        ProcessDied,
        Producer,
        ProducerFenced,
        Queue,
        QueueEmpty,
        QueueStopped,
        Receipt,
        Retry,
        SerializationError,
        SettingsError,
        Topic,
        TopicNotFound,
        Transaction,
        TransactionAborted,
        UsageError,
        exponential,
        fixed,
        steps,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "Backoff",
    "BadName",
    "BrokerUnreachable",
    "CommitFailed",
    "Consumer",
    "Delivery",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "DeserializationError",
    "HandlerTimedOut",
    "Message",
    "MessageTooLarge",
    "NotAuthorized",
    "PenstockError",
    "ProcessDied",
    "Producer",
    "ProducerFenced",
    "Queue",
    "QueueEmpty",
    "QueueStopped",
    "Receipt",
    "Retry",
    "SerializationError",
    "SettingsError",
    "Topic",
    "TopicNotFound",
    "Transaction",
    "TransactionAborted",
    "UsageError",
    "exponential",
    "fixed",
    "steps",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock import client

    return getattr(client, name)
