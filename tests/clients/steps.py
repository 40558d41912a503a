"""Steps that many tests take."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec


def create_topic(bootstrap: str, name: str, partitions: int = 1, **settings: object) -> str:
    """Settings' names with dots are written with underscores."""
    config = {key.replace("_", "."): str(value) for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
    made.result(20)
    ends = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}
    for end in admin.list_offsets(ends, request_timeout=20).values():
        end.result(20)  # every partition has a leader that knows of it
    return name


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0, message: str = "it never came true") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)
