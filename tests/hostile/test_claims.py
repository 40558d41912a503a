"""Small frames that claim to be large, and large ones that are: elements, tagged fields, strings, names."""

from __future__ import annotations

import struct

import pytest

from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.schema import ELEMENTS_MAX
from penstock.protocol.wire import uvarint
from tests.brokers import BrokerProcess
from tests.hostile.clients import header, sized
from tests.hostile.conftest import Hostile

INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, POLICY_VIOLATION, UNKNOWN_TOPIC_OR_PARTITION = 17, 37, 44, 3
HUGE = 2**31 - 1
REALLY_MANY = 20_000_000

# Where in a request the number of an array's elements stands: (api key, version, what stands before the number).
ARRAYS_OF_INT32_LENGTH = [(3, 8, b""), (1, 11, bytes(17) + bytes(8)), (0, 8, b"\xff\xff" + bytes(6)), (19, 4, b"")]
ARRAYS_OF_VARINT_LENGTH = [(3, 12, b""), (1, 12, bytes(17) + bytes(8)), (0, 11, b"\0" + bytes(6)), (19, 7, b"")]


@pytest.mark.parametrize(("api_key", "version", "before"), ARRAYS_OF_INT32_LENGTH)
@pytest.mark.parametrize("count", [HUGE, HUGE - 1, 2**24])
def test_a_claim_of_very_many_elements_is_not_believed(
    hostile: Hostile, api_key: int, version: int, before: bytes, count: int
) -> None:
    client = hostile()
    client.send(sized(header(api_key, version) + before + struct.pack(">i", count) + bytes(64)))
    assert client.is_closed()


@pytest.mark.parametrize(("api_key", "version", "before"), ARRAYS_OF_VARINT_LENGTH)
@pytest.mark.parametrize("count", [uvarint(HUGE), uvarint(2**32 - 1), uvarint(2**24), b"\xff" * 5, b"\x80" * 12])
def test_a_claim_of_very_many_elements_in_a_varint_is_not_believed(
    hostile: Hostile, api_key: int, version: int, before: bytes, count: bytes
) -> None:
    client = hostile()
    client.send(sized(header(api_key, version, tags=b"\0") + before + count + bytes(64)))
    assert client.is_closed()


@pytest.mark.parametrize("count", [REALLY_MANY, HUGE, 2**32 - 1])
def test_a_claim_of_millions_of_tagged_fields_is_not_believed(hostile: Hostile, count: int) -> None:
    in_the_header, in_the_body = hostile(), hostile()
    in_the_header.send(sized(header(3, 12, tags=uvarint(count)) + bytes(64)))
    in_the_body.send(sized(header(3, 12, tags=b"\0") + b"\1\0\0" + uvarint(count) + bytes(64)))
    assert in_the_header.is_closed()
    assert in_the_body.is_closed()


def test_as_many_tagged_fields_as_are_let_through_harm_nobody(hostile: Hostile) -> None:
    for _ in range(3):
        client = hostile()
        body = header(3, 12, tags=uvarint(ELEMENTS_MAX) + b"\x21\0" * ELEMENTS_MAX) + b"\1\0\0\0\0"
        client.send(sized(body))
        assert client.frame() is not None


@pytest.mark.parametrize("size", [32767, -2, -32768])
def test_a_client_id_that_is_longer_than_the_frame_closes_the_connection(hostile: Hostile, size: int) -> None:
    client = hostile()
    client.send(sized(struct.pack(">hhih", 3, 12, 1, size) + bytes(16)))
    frame = client.frame()
    assert frame is None or size < 0  # any negative length means that there is none


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x28\x8c\xbc", b"ok\x80"])
def test_text_that_is_not_utf_8_closes_the_connection(hostile: Hostile, text: bytes) -> None:
    in_the_client_id, in_a_name = hostile(), hostile()
    in_the_client_id.send(sized(header(3, 8, client_id=text) + bytes(8)))
    in_a_name.send(sized(header(3, 8) + struct.pack(">ih", 1, len(text)) + text + bytes(3)))
    assert in_the_client_id.is_closed()
    assert in_a_name.is_closed()


BAD_NAMES = [
    "", ".", "..", "../up", "../../etc/passwd", "a/b", "/", "nul\0byte", "\0", "x" * 250, "x" * 32767, "new\nline",
    "naïve", "\U0001f6b0", "%s%n", "a b", "-0/../../x", "con\\aux",
]  # fmt: skip


@pytest.mark.parametrize("version", [2, 4, 5, 7])
@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
def test_a_topic_cannot_be_created_by_a_name_that_is_no_topics_name(
    hostile: Hostile, broker: BrokerProcess, name: str, version: int
) -> None:
    before = set(broker.data.parent.rglob("*"))
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (result,) = hostile().ask(CreateTopicsRequest(topics=[topic]), version).topics
    assert result.error_code == INVALID_TOPIC_EXCEPTION
    assert {path.name for path in set(broker.data.parent.rglob("*")) - before} <= {"broker.log"}


@pytest.mark.parametrize("version", [4, 8, 9, 12])
@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
def test_asking_for_a_name_that_is_no_topics_name_creates_nothing(hostile: Hostile, name: str, version: int) -> None:
    response = hostile().ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
    assert [topic.error_code for topic in response.topics] == [INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("count", [HUGE, 2**24, 10_001, 0, -2, -(2**31)])
def test_nobody_gets_more_partitions_than_are_sensible(hostile: Hostile, topic: str, count: int) -> None:
    client = hostile()
    new = CreatableTopic(name="too-many", num_partitions=count, replication_factor=1)
    (created,) = client.ask(CreateTopicsRequest(topics=[new]), 7).topics
    (grown,) = client.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=count)]), 3).results
    assert created.error_code in (INVALID_PARTITIONS, POLICY_VIOLATION)
    assert grown.error_code in (INVALID_PARTITIONS, POLICY_VIOLATION)


@pytest.mark.parametrize("brokers", [[], [2], [1, 1], [-1], [HUGE], list(range(5_000)), [1] * 25_000], ids=len)
def test_replicas_on_brokers_that_do_not_exist_are_refused(hostile: Hostile, brokers: list[int]) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)
    topic = CreatableTopic(name="nowhere", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    (result,) = hostile().ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code != 0


def test_the_longest_client_id_there_can_be_is_nothing_special(hostile: Hostile) -> None:
    client = hostile()
    client.send(request_frame(ApiVersionsRequest(), 0, 1, "x" * 32767))
    assert client.frame() is not None
