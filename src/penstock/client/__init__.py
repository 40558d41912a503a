"""The Python client: what a program that sends and reads messages holds in its hands.

Owns the meaning of delivery modes and profiles, the order of processing and committing, transactions, retries and dead
letters. It is thin over confluent-kafka, knows nothing of a broker's inside, and works against Apache Kafka too.
"""

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.async_producer import AsyncProducer
from penstock.client.consumer import Consumer
from penstock.client.deliveries import Delivery
from penstock.client.delivery import DeliveryName
from penstock.client.errors import (
    BadName,
    BrokerUnreachable,
    CommitFailed,
    DeliveryFailed,
    DeliveryTimedOut,
    DeserializationError,
    HandlerTimedOut,
    MessageTooLarge,
    NotAuthorized,
    PenstockError,
    ProcessDied,
    ProducerFenced,
    QueueEmpty,
    QueueStopped,
    SerializationError,
    SettingsError,
    TopicNotFound,
    TransactionAborted,
    UsageError,
)
from penstock.client.message import Message, Receipt
from penstock.client.producer import Producer
from penstock.client.profiles import ProfileName
from penstock.client.queue import AsyncQueue, Queue
from penstock.client.retrying.policy import Backoff, Retry, exponential, fixed, steps
from penstock.client.topic import AsyncTopic, Topic
from penstock.client.transactions import Transaction

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncTopic",
    "Backoff",
    "BadName",
    "BrokerUnreachable",
    "CommitFailed",
    "Consumer",
    "Delivery",
    "DeliveryFailed",
    "DeliveryName",
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
    "ProfileName",
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
