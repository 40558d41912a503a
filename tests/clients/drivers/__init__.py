"""The three clients behind one face, so that a test is written once and runs with each."""

from __future__ import annotations

from tests.clients.drivers.aio import Aiokafka
from tests.clients.drivers.confluent import Confluent
from tests.clients.drivers.face import (
    Client,
    Commit,
    Consumer,
    Outgoing,
    Placed,
    Producer,
    Received,
    Refused,
    read_all,
    send_all,
)
from tests.clients.drivers.kafka_python import KafkaPython

CLIENTS: dict[str, Client] = {client.name: client for client in (Confluent(), KafkaPython(), Aiokafka())}

__all__ = [
    "CLIENTS",
    "Client",
    "Commit",
    "Consumer",
    "Outgoing",
    "Placed",
    "Producer",
    "Received",
    "Refused",
    "read_all",
    "send_all",
]
