"""What the stories of attackers are made of: a look at what ZooKeeper holds, and things that go wrong at one moment."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.cluster.coordination import Operation, Result, Versioned
from penstock.cluster.nodes import TopicNode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.storage import leader_epochs
from tests.simulation.brokers import SimulatedBroker, SimulatedBrokers
from tests.simulation.client import Client

TOPIC = "orders"


def stored(cluster: SimulatedBrokers, topic: str = TOPIC) -> Versioned:
    """What ZooKeeper holds, whoever has heard of it."""
    content: Versioned = cluster.zookeeper.tree.find(TopicNode.path_of(topic)).content
    return content


def in_sync(cluster: SimulatedBrokers, topic: str = TOPIC) -> tuple[int, ...]:
    return TopicNode.decode(topic, stored(cluster, topic)).topic.partitions[0].isr


def on_write(
    cluster: SimulatedBrokers, host: str, topic: str, happens: Callable[[Operation, Callable[[], object]], Any]
) -> None:
    """A write of the topic by that host goes through other hands, which may let it through."""
    real = cluster.zookeeper.write

    def passed(connection: Any, operations: Sequence[Operation]) -> Any:
        for operation in operations:
            if connection.host == host and operation.path == TopicNode.path_of(topic):
                return happens(operation, lambda: real(connection, operations))
        return real(connection, operations)

    cluster.zookeeper.write = passed


def slow_down_writes(broker: SimulatedBroker, seconds: float) -> None:
    assert broker.broker is not None
    store = broker.broker._store
    real = store.multi

    async def multi(operations: Sequence[Operation]) -> list[Result]:
        await asyncio.sleep(seconds)
        return await real(operations)

    store.multi = multi


def fill_disk_for_a_moment(broker: SimulatedBroker) -> list[Path]:
    """The next time that epochs are saved, it fails."""
    disk = broker.machine.disk
    real = disk.replace
    failed: list[Path] = []

    def replace(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == leader_epochs.FILE_NAME and not failed:
            failed.append(path)
            raise OSError(errno.ENOSPC, "no space left")
        real(path, *arguments, **options)

    disk.replace = replace
    return failed


async def delete_before(client: Client, offset: int) -> tuple[int, int]:
    """The error, and where the replicas begin."""
    wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=1000)
    found = await client.ask(1, request, 2, DeleteRecordsResponse)
    assert found is not None
    (answer,) = found.topics[0].partitions
    return answer.error_code, answer.low_watermark
