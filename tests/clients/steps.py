"""Steps that many tests take."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic

from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.clients.wire import Wire

LATEST = -1


def create_topic(bootstrap: str, name: str, partitions: int = 1, **settings: object) -> str:
    """A topic that can be used at once. Settings' names with dots are written with underscores."""
    config = {key.replace("_", "."): str(value) for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
    made.result(20)
    asked = [ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
    with Wire(bootstrap) as wire:
        wait_until(lambda: not any(p.error_code for p in wire.ask(request, 7).topics[0].partitions))
    return name


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0, message: str = "it never came true") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)
