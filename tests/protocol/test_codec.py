"""What the codec does with bytes that no honest peer sends, and with those of peers from the future."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.codec import (
    DecodeError,
    decode,
    decode_versioned,
    encode,
    encode_bytes,
    encode_sized,
    encode_versioned,
)
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.create_topics import CreateTopicsRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.schema import BYTES, Field, Message, Struct, StructType, Type, field
from penstock.protocol.wire import read_uvarint, uvarint
from penstock.protocol.writer import compile_writer
from tests.machine import slowness

from .random_messages import MESSAGES, every_message_version, random_messages

INT32_MAX = b"\x7f\xff\xff\xff"
UVARINT_INT32_MAX = b"\xff\xff\xff\xff\x07"


@every_message_version(MESSAGES)
def test_a_message_cut_off_at_any_byte_is_a_decode_error(cls: type[Message], version: int) -> None:
    encoded = [encode_bytes(message, version) for message in random_messages(cls, version, 12)]
    for data in sorted(encoded, key=lambda data: abs(len(data) - 200))[:2]:
        for end in range(min(len(data), 600)):
            with pytest.raises(DecodeError):
                decode(cls, data[:end], version)


@every_message_version(MESSAGES)
def test_damaged_bytes_are_another_message_or_a_decode_error(cls: type[Message], version: int) -> None:
    rng = random.Random(0)
    for message in random_messages(cls, version, 3):
        data = bytearray(encode_bytes(message, version))
        for _ in range(40 if data else 0):
            damaged = bytearray(data)
            for _ in range(rng.choice([1, 1, 2, 4])):
                damaged[rng.randrange(len(damaged))] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            try:
                decode(cls, bytes(damaged), version)
            except DecodeError:
                pass


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([(cls, v) for cls in MESSAGES for v in (cls.versions.first, cls.versions.last)]), st.binary())
def test_arbitrary_bytes_are_a_message_or_a_decode_error(case: tuple[type[Message], int], data: bytes) -> None:
    try:
        decode(case[0], data, case[1])
    except DecodeError:
        pass


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(MetadataRequest, 1, INT32_MAX, id="array of structs"),
        pytest.param(MetadataRequest, 9, UVARINT_INT32_MAX, id="compact array of structs"),
        pytest.param(DeleteGroupsRequest, 0, INT32_MAX, id="array of strings"),
        pytest.param(DeleteGroupsRequest, 2, b"\xff\xff\xff\xff\x0f", id="compact array of the largest varint"),
        pytest.param(MetadataRequest, 1, b"\0\0\0\1" + b"\x7f\xff", id="string"),
        pytest.param(MetadataRequest, 9, b"\x02" + UVARINT_INT32_MAX, id="compact string"),
        pytest.param(ConsumerProtocolSubscription, 0, b"\0\0\0\0" + INT32_MAX, id="bytes"),
    ],
)
def test_a_claim_of_two_billion_is_refused_at_once(cls: type[Message], version: int, data: bytes) -> None:
    started = time.thread_time()
    with pytest.raises(DecodeError, match="runs past the end"):
        decode(cls, data + bytes(100), version)
    assert time.thread_time() - started < 0.1 * slowness()


def test_an_array_of_integers_is_held_against_what_the_frame_holds() -> None:
    request = FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1, 2, 3])])
    data = encode_bytes(request, 11).replace(b"\0\0\0\x03\0\0\0\1", b"\0\0\0\x08\0\0\0\1")
    with pytest.raises(DecodeError, match="partitions runs past the end"):
        decode(FetchRequest, data, 11)


def test_twenty_million_tagged_fields_are_refused_at_once() -> None:
    data = encode_bytes(MetadataRequest(topics=[]), 9)[:-1] + uvarint(20_000_000) + bytes(1000)
    started = time.thread_time()
    with pytest.raises(DecodeError, match="elements in one message"):
        decode(MetadataRequest, data, 9)
    assert time.thread_time() - started < 0.1 * slowness()


def test_the_elements_of_one_message_are_limited_even_where_the_frame_holds_them() -> None:
    limit = DeleteGroupsRequest.elements_max
    assert len(decode(DeleteGroupsRequest, _empty_names(limit), 0).groups_names) == limit
    with pytest.raises(DecodeError, match="elements in one message"):
        decode(DeleteGroupsRequest, _empty_names(limit + 1), 0)


def _empty_names(count: int) -> bytes:
    return count.to_bytes(4, "big") + bytes(2 * count)


@pytest.mark.parametrize(
    ("cls", "version", "data", "what"),
    [
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics"),
        (MetadataRequest, 1, b"\0\0\0\1\xff\xff", "name"),
        (MetadataRequest, 9, b"\x02\0\0", "name"),
        (CreateTopicsRequest, 5, b"\0", "topics"),
        (DeleteGroupsRequest, 0, b"\x80\0\0\0", "groups_names"),
    ],
)
def test_null_is_refused_where_a_version_does_not_allow_it(
    cls: type[Message], version: int, data: bytes, what: str
) -> None:
    with pytest.raises(DecodeError, match=f"{what} must not be null"):
        decode(cls, data + bytes(8), version)


def test_text_that_is_not_utf_8_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="utf-8"):
        decode(MetadataRequest, b"\0\0\0\1\0\2\xc3\x28", 1)


@pytest.mark.parametrize("version", [-1, 0, 3, 19, 32767])
def test_a_version_that_was_never_declared_is_a_decode_error(version: int) -> None:
    with pytest.raises(DecodeError, match="has no version"):
        decode(FetchRequest, bytes(100), version)


def test_bytes_after_the_message_are_left_alone() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert decode(MetadataRequest, encode_bytes(request, 9) + b"more", 9) == request


def test_a_field_that_a_version_does_not_carry_keeps_its_default() -> None:
    request = FetchRequest(session_id=7, rack_id="r", replica_id=3, max_wait_ms=10)
    read = decode(FetchRequest, encode_bytes(request, 4), 4)
    assert (read.session_id, read.session_epoch, read.rack_id) == (0, -1, "")
    assert (read.replica_id, read.max_wait_ms) == (3, 10)


def test_lists_of_defaults_are_not_shared_between_messages() -> None:
    first, second = decode(FetchRequest, encode_bytes(FetchRequest(), 4), 4), FetchRequest()
    first.forgotten_topics_data.append(ForgottenTopic())
    assert second.forgotten_topics_data == FetchRequest().forgotten_topics_data == []


# ---- tagged fields


@every_message_version(MESSAGES, flexible_only=True)
def test_tagged_fields_from_the_future_are_skipped_in_every_struct(cls: type[Message], version: int) -> None:
    future = with_a_new_tag(cls)
    write = compile_writer(future, version)
    for message in random_messages(cls, version, 6):
        data = b"".join(write(carry_over(message, future))[0])
        assert b"from the future" in data
        assert decode(cls, data, version) == message


def with_a_new_tag(cls: Any) -> Any:
    """The same struct as a later Kafka may declare it: each struct in it has one more tagged field."""
    fields: dict[str, Field] = {name: f._replace(type=_later(f.type)) for name, f in cls.fields.items()}
    fields["new"] = field(BYTES, tag=1000, default=b"")
    later = StructType(cls.__name__, (Struct,), dict(fields))
    if issubclass(cls, Message):
        later.versions, later.flexible = cls.versions, cls.flexible
    return later


def _later(t: Type) -> Type:
    if isinstance(t.element, Type) or t.element is None:
        return t
    return Type(t.name, t.default, element=with_a_new_tag(t.element))


def carry_over(message: Any, later: Any) -> Any:
    values = {}
    for name, f in message.fields.items():
        value, element = getattr(message, name), later.fields[name].type.element
        if isinstance(value, Struct):
            value = carry_over(value, element)
        elif isinstance(value, list) and f.type.element is not element:
            value = [carry_over(item, element) for item in value]
        values[name] = value
    return later(**values, new=b"from the future")


def test_a_tagged_struct_is_sent_only_when_it_is_there() -> None:
    without = encode_bytes(FetchRequest(), 15)
    given_one = encode_bytes(FetchRequest(replica_state=ReplicaState(replica_id=2)), 15)
    assert len(given_one) > len(without)
    assert decode(FetchRequest, without, 15).replica_state is None
    assert decode(FetchRequest, given_one, 15).replica_state == ReplicaState(replica_id=2)


def test_a_tagged_field_that_lies_about_its_size_is_a_decode_error() -> None:
    honest = encode_bytes(FetchRequest(cluster_id="abc"), 12)
    assert honest.endswith(b"\1\0\4\4abc")
    with pytest.raises(DecodeError, match="does not have the size that it claims"):
        decode(FetchRequest, honest.removesuffix(b"\4\4abc") + b"\5\4abc ", 12)
    with pytest.raises(DecodeError, match="runs past the end"):
        decode(FetchRequest, honest.removesuffix(b"\4\4abc") + b"\x7f\4abc ", 12)


# ---- parts


@pytest.mark.parametrize("version", [11, 12])
def test_records_are_a_part_of_their_own_and_are_not_copied(version: int) -> None:
    class FileRange:
        def __len__(self) -> int:
            return 70_000

    records, view = FileRange(), memoryview(bytes(1000)).cast("I")
    partitions = [PartitionData(partition_index=i, records=part) for i, part in enumerate([records, view, None])]
    parts, size = encode_sized(FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)]), version)
    assert parts[1] is records
    assert parts[3] is view
    assert size == 70_000 + 1000 + sum(len(part) for part in parts[0::2])


def test_records_are_read_as_a_view_of_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=memoryview(b"batch"))])]
    )
    frame = bytearray(encode_bytes(request, 9))
    records = decode(ProduceRequest, memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert records is not None
    assert bytes(records) == b"batch"
    frame[frame.index(b"batch")] = ord("m")
    assert bytes(records) == b"match"


def test_a_message_without_fields_has_no_parts() -> None:
    assert encode(ListGroupsRequest(), 0) == []


# ---- versioned messages and varints


def test_a_versioned_message_begins_with_its_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], generation_id=4)
    data = encode_versioned(subscription, 2)
    assert data[:2] == b"\0\2"
    assert decode_versioned(ConsumerProtocolSubscription, data) == subscription


def test_a_version_from_the_future_is_read_as_the_newest_only_where_asked() -> None:
    data = b"\0\x09" + encode_bytes(ConsumerProtocolSubscription(topics=["t"]), 3) + b"appended"
    assert decode_versioned(ConsumerProtocolSubscription, data, newer_as_newest=True).topics == ["t"]
    with pytest.raises(DecodeError, match="has no version 9"):
        decode_versioned(ConsumerProtocolSubscription, data)
    with pytest.raises(DecodeError, match="no version"):
        decode_versioned(ConsumerProtocolSubscription, b"\0")


@given(st.integers(0, 0xFFFFFFFF))
def test_a_varint_is_read_back_as_it_was_written(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 20])
def test_a_varint_of_more_than_32_bits_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="longer than 32 bits"):
        read_uvarint(memoryview(data), 0)
