from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.server.handlers import create_partitions
from tests.cluster.controlled_cluster import NODE_ID
from tests.server.admin_broker import AdminBroker


async def ask(
    broker: AdminBroker, *topics: CreatePartitionsTopic, validate_only: bool = False, version: int = 3
) -> list[tuple[str, int, str | None]]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    response = await broker.ask(create_partitions.handle, request, CreatePartitionsResponse, version)
    return [(result.name, result.error_code, result.error_message) for result in response.results]


def topic(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


@pytest.mark.parametrize("version", range(4))
async def test_every_version_adds_partitions(admin_broker: AdminBroker, version: int) -> None:
    await admin_broker.administration.create_topic("t")
    assert await ask(admin_broker, topic("t", 4), version=version) == [("t", ErrorCode.NONE, None)]
    assert len(admin_broker.image.topics["t"].partitions) == 4


async def test_partitions_may_be_placed_by_hand(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    assert await ask(admin_broker, topic("t", 2, [[NODE_ID]])) == [("t", ErrorCode.NONE, None)]


async def test_validation_alone_adds_none(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    assert await ask(admin_broker, topic("t", 4), validate_only=True) == [("t", ErrorCode.NONE, None)]
    assert len(admin_broker.image.topics["t"].partitions) == 1


async def test_each_topic_has_its_own_answer(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("good")
    await admin_broker.administration.create_topic("same", 3)
    results = await ask(
        admin_broker, topic("good", 2), topic("same", 3), topic("nowhere", 2), topic("x", 2), topic("x", 3)
    )
    assert [(name, code) for name, code, _ in results] == [
        ("good", ErrorCode.NONE),
        ("same", ErrorCode.INVALID_PARTITIONS),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", ErrorCode.INVALID_REQUEST),
    ]
    assert results[1][2] == "Topic already has 3 partition(s)."
    assert results[3][2] == "Duplicate topic name."
