"""Steps that many tests take."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic


def create_topic(bootstrap: str, name: str, partitions: int = 1, **settings: object) -> str:
    """Settings' names with dots are written with underscores."""
    config = {key.replace("_", "."): str(value) for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
    made.result(20)
    wait_until(lambda: name in admin.list_topics(timeout=20).topics)
    return name


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0, message: str = "it never came true") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)
