from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages import (
    api_versions,
    delete_topics,
    fetch,
    find_coordinator,
    join_group,
    offset_fetch,
    produce,
)
from penstock.protocol.schema import Message, Struct
from penstock.server.failures import error_response
from tests.protocol.random_messages import every_message_version, random_messages

ERROR = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
REQUESTS = list(RESPONSE_OF)


def structs(value: Any) -> Iterator[Struct]:
    if isinstance(value, Struct):
        yield value
        for name in value.fields:
            yield from structs(getattr(value, name))
    elif isinstance(value, list):
        for element in value:
            yield from structs(element)


def codes(response: Message, version: int) -> list[int]:
    """Of everything in the response that has a place for an error in this version."""
    found = []
    for struct in structs(response):
        declared = struct.fields.get("error_code")
        if declared is not None and version in declared.versions:
            found.append(struct.error_code)
    return found


@every_message_version(REQUESTS)
def test_every_request_of_every_version_gets_a_response_that_says_the_error(cls: type[Message], version: int) -> None:
    for request in random_messages(cls, version, 10):
        response = error_response(request, version, ERROR)
        if response is None:
            assert isinstance(request, produce.ProduceRequest)
            assert request.acks == 0
            continue
        assert type(response) is RESPONSE_OF[cls]
        received = decode(RESPONSE_OF[cls], encode_bytes(response, version), version)
        assert set(codes(received, version)) <= {ErrorCode.KAFKA_STORAGE_ERROR}


@every_message_version(REQUESTS)
def test_a_request_for_something_never_gets_a_response_without_the_error(cls: type[Message], version: int) -> None:
    for request in random_messages(cls, version, 20):
        lists = [getattr(request, name) for name, f in cls.fields.items() if f.type.name == "array"]
        response = error_response(request, version, ERROR)
        if response is None or not all(lists) or any(_empty_within(each) for each in lists):
            continue
        received = decode(RESPONSE_OF[cls], encode_bytes(response, version), version)
        assert codes(received, version)


def _empty_within(elements: list[Any]) -> bool:
    inner = [
        getattr(e, n) for e in elements if isinstance(e, Struct) for n, f in e.fields.items() if f.type.name == "array"
    ]
    return not all(inner) or any(_empty_within(each) for each in inner)


def partitions_of_produce(acks: int) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(index=index, records=memoryview(b"")) for index in (0, 3)]
    return produce.ProduceRequest(acks=acks, topic_data=[produce.TopicProduceData(name="t", partition_data=data)])


def test_every_partition_of_a_produce_gets_the_error_and_its_message() -> None:
    response = error_response(partitions_of_produce(-1), 9, ERROR)
    assert isinstance(response, produce.ProduceResponse)
    (topic,) = response.responses
    assert [(p.index, p.error_code, p.base_offset, p.error_message) for p in topic.partition_responses] == [
        (0, ErrorCode.KAFKA_STORAGE_ERROR, -1, "the disk is gone"),
        (3, ErrorCode.KAFKA_STORAGE_ERROR, -1, "the disk is gone"),
    ]


def test_a_produce_that_waits_for_no_answer_gets_none() -> None:
    assert error_response(partitions_of_produce(0), 9, ERROR) is None


@pytest.mark.parametrize(("version", "partitions"), [(4, 1), (12, 1), (13, 0)])
def test_a_fetch_gets_the_error_at_the_top_and_before_version_13_in_each_partition(
    version: int, partitions: int
) -> None:
    topics = [fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(partition=2)])]
    response = error_response(fetch.FetchRequest(session_id=5, topics=topics), version, ERROR)
    assert isinstance(response, fetch.FetchResponse)
    assert (response.error_code, response.session_id) == (ErrorCode.KAFKA_STORAGE_ERROR, 5)
    assert sum(len(topic.partitions) for topic in response.responses) == partitions


@pytest.mark.parametrize("version", [1, 2, 8])
def test_an_offset_fetch_gets_the_error_where_its_version_has_it(version: int) -> None:
    request = offset_fetch.OffsetFetchRequest(
        group_id="g",
        topics=[offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[4])],
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g")],
    )
    response = error_response(request, version, ERROR)
    assert isinstance(response, offset_fetch.OffsetFetchResponse)
    received = decode(offset_fetch.OffsetFetchResponse, encode_bytes(response, version), version)
    assert codes(received, version) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert [topic.name for topic in received.topics] == (["t"] if version == 1 else [])


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_that_is_not_found_is_no_node(version: int) -> None:
    request = find_coordinator.FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    response = error_response(request, version, ERROR)
    assert isinstance(response, find_coordinator.FindCoordinatorResponse)
    node = response if version < 4 else response.coordinators[0]
    assert (node.node_id, node.port, node.error_message) == (-1, -1, "the disk is gone")


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_join_that_failed_has_no_protocol(version: int, name: str | None) -> None:
    response = error_response(join_group.JoinGroupRequest(), version, ERROR)
    assert isinstance(response, join_group.JoinGroupResponse)
    assert (response.protocol_name, response.generation_id) == (name, -1)


def test_topics_to_be_deleted_are_answered_by_name_and_by_id() -> None:
    by_name = delete_topics.DeleteTopicsRequest(topic_names=["a", "b"])
    response = error_response(by_name, 5, ERROR)
    assert isinstance(response, delete_topics.DeleteTopicsResponse)
    assert [result.name for result in response.responses] == ["a", "b"]
    by_id = delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(topic_id=b"x" * 16)])
    response = error_response(by_id, 6, ERROR)
    assert isinstance(response, delete_topics.DeleteTopicsResponse)
    assert [(result.name, result.topic_id) for result in response.responses] == [(None, b"x" * 16)]


def test_a_version_that_is_not_served_is_answered_with_those_that_are() -> None:
    error = ApiError(ErrorCode.UNSUPPORTED_VERSION)
    response = error_response(api_versions.ApiVersionsRequest(), 0, error)
    assert isinstance(response, api_versions.ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]
