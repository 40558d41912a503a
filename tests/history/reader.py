"""A member of a group that reads what is committed. What it read is written down before it is committed."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from tests.faults.copier import FAITHFUL
from tests.faults.load import PATIENT
from tests.history.events import READ_COMMITTED, Assigned, Read, Trouble, read_payload
from tests.history.writer import EventWriter, now

READ_MAX = 500
WAIT_S = 0.1
HEARTBEATS_PER_SESSION = 3


def place_of(message: KafkaMessage) -> tuple[str, int, int]:
    """Topic, partition and offset, which the client leaves out only of messages that never were anywhere."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise ValueError("a message that is nowhere")
    return topic, partition, offset


def read_event(reader: str, group: str | None, isolation: str, message: KafkaMessage) -> Read:
    value = message.value()
    found = read_payload(value if isinstance(value, bytes) else None)
    return Read(now(), reader, group, *place_of(message), *found, isolation)


class GroupReader:
    def __init__(self, arguments: argparse.Namespace, events: EventWriter) -> None:
        self._arguments = arguments
        self._events = events
        self._is_lost = False
        self._consumer = self._new_consumer()

    def _new_consumer(self) -> Consumer:
        arguments = self._arguments
        config = {
            "bootstrap.servers": arguments.bootstrap, "group.id": arguments.group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": READ_COMMITTED, "fetch.wait.max.ms": 50,
            "group.protocol": arguments.group_protocol, "error_cb": self._client_failed, **PATIENT, **FAITHFUL,
        }  # fmt: skip
        if arguments.group_protocol == "classic":
            config["session.timeout.ms"] = arguments.session_timeout_ms
            config["heartbeat.interval.ms"] = arguments.session_timeout_ms // HEARTBEATS_PER_SESSION
        consumer = Consumer(config)
        consumer.subscribe([arguments.topic], on_assign=self._assigned)
        return consumer

    def _client_failed(self, error: KafkaError) -> None:
        self._is_lost = self._is_lost or error.fatal()
        self._events.write(Trouble(now(), self._arguments.name, error.name()))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        name = self._arguments.name
        self._events.write_all(Assigned(now(), name, each.topic, each.partition) for each in partitions)

    def run(self, is_stopped: Callable[[], bool]) -> None:
        idle_since = now()
        while not is_stopped() or now() - idle_since < self._arguments.drain_s:
            if self._read():
                idle_since = now()
            if self._is_lost:
                self._consumer.close()
                self._is_lost = False
                self._consumer = self._new_consumer()
        self._consumer.close()

    def _read(self) -> bool:
        arguments = self._arguments
        messages = []
        for message in self._consumer.consume(READ_MAX, WAIT_S):
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                self._events.write(Trouble(now(), arguments.name, error.name()))
        if not messages:
            return False
        self._events.write_all(
            read_event(arguments.name, arguments.group, READ_COMMITTED, message) for message in messages
        )
        try:
            self._commit(messages)
        except KafkaException as failure:  # whoever has the partitions next reads it again
            self._events.write(Trouble(now(), arguments.name, f"commit: {failure.args[0].name()}"))
        return True

    def _commit(self, messages: list[KafkaMessage]) -> None:
        following = {place[:2]: place[2] + 1 for place in map(place_of, messages)}
        self._consumer.commit(
            offsets=[TopicPartition(*each, offset) for each, offset in following.items()], asynchronous=False
        )
