from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.protocol.schema import ZERO_UUID
from penstock.server.handlers import delete_topics
from tests.server.admin_broker import AdminBroker


async def ask(broker: AdminBroker, request: DeleteTopicsRequest, version: int = 6) -> DeleteTopicsResponse:
    return await broker.ask(delete_topics.handle, request, DeleteTopicsResponse, version)


@pytest.mark.parametrize("version", range(1, 6))
async def test_older_versions_delete_by_name(admin_broker: AdminBroker, version: int) -> None:
    await admin_broker.administration.create_topic("t")
    response = await ask(admin_broker, DeleteTopicsRequest(topic_names=["t", "nowhere"]), version)
    assert [(result.name, result.error_code) for result in response.responses] == [
        ("t", ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert admin_broker.image.topics == {}


async def test_version_6_deletes_by_name_and_by_id(admin_broker: AdminBroker) -> None:
    a = await admin_broker.administration.create_topic("a")
    b = await admin_broker.administration.create_topic("b")
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=b.topic_id),
            DeleteTopicState(topic_id=b"x" * 16),
            DeleteTopicState(name="nowhere"),
        ]
    )
    response = await ask(admin_broker, request)
    assert [(result.name, result.topic_id, result.error_code) for result in response.responses] == [
        ("a", a.topic_id, ErrorCode.NONE),
        ("b", b.topic_id, ErrorCode.NONE),
        (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        ("nowhere", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert admin_broker.image.topics == {}


async def test_what_is_not_clear_is_refused_and_nothing_of_it_deleted(admin_broker: AdminBroker) -> None:
    t = await admin_broker.administration.create_topic("t")
    u = await admin_broker.administration.create_topic("u")
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(),
            DeleteTopicState(name="t", topic_id=t.topic_id),
            DeleteTopicState(name="t"),
            DeleteTopicState(name="t"),
            DeleteTopicState(name="u"),
            DeleteTopicState(topic_id=u.topic_id),
        ]
    )
    response = await ask(admin_broker, request)
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST] * 5
    assert [result.error_message for result in response.responses] == [
        "Neither topic name nor id were specified.",
        "You may not specify both topic name and topic id.",
        "Duplicate topic name.",
        "The provided topic name maps to an ID that was already supplied.",
        "The provided topic name maps to an ID that was already supplied.",
    ]
    assert set(admin_broker.image.topics) == {"t", "u"}


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_may_be_disabled(
    admin_broker_with: Callable[..., Awaitable[AdminBroker]], version: int, error: ErrorCode
) -> None:
    broker = await admin_broker_with(delete_topic_enable="false")
    await broker.administration.create_topic("t")
    (result,) = (await ask(broker, DeleteTopicsRequest(topic_names=["t"]), version)).responses
    assert (result.name, result.error_code) == ("t", error)
    assert list(broker.image.topics) == ["t"]
