"""Headers of requests and responses: which have tags, and what happens to those that are no headers at all."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.serial import entity_writer
from kio.static.constants import EntityType

from penstock.protocol.apis import REQUESTS, RESPONSE_OF
from penstock.protocol.codec import DecodeError, decode, encode_bytes
from penstock.protocol.framing import RequestHeader, read_request_header, read_response, request_frame, response_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schema import Message

from .random_messages import every_message_version

CLIENT_IDS = st.none() | st.text(max_size=300)


def split_length(frame: bytes) -> memoryview:
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    return memoryview(frame)[4:]


def kio_header_size(cls: type[Message], version: int, kind: str, values: dict[str, Any]) -> int:
    name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).strip("_").rpartition("_")[0]
    schema: Any = load_entity_schema(name, version, getattr(EntityType, kind))
    header = schema.__header_schema__
    buffer = io.BytesIO()
    entity_writer(header)(buffer, header(**values))
    return len(buffer.getvalue())


@every_message_version(list(RESPONSE_OF))
def test_a_request_frame_is_read_back_and_its_header_is_as_long_as_kio_s(cls: type[Message], version: int) -> None:
    frame = split_length(request_frame(cls(), version, 77, "a client"))
    header = read_request_header(frame)
    values = {
        "request_api_key": cls.api_key,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "a client",
    }
    assert header == RequestHeader(
        cls.api_key, version, 77, "a client", kio_header_size(cls, version, "request", values)
    )
    assert decode(cls, frame, version, header.body_position) == cls()


@every_message_version(list(RESPONSE_OF.values()))
def test_a_response_frame_is_read_back_and_its_header_is_as_long_as_kio_s(cls: type[Message], version: int) -> None:
    frame = split_length(b"".join(response_frame(cls(), version, -5)))
    assert read_response(cls, frame, version) == (-5, cls())
    assert len(frame) - len(encode_bytes(cls(), version)) == kio_header_size(
        cls, version, "response", {"correlation_id": -5}
    )


@given(CLIENT_IDS, st.integers(-(2**31), 2**31 - 1), st.sampled_from([8, 9]))
def test_any_client_id_survives_a_request_frame(client_id: str | None, correlation_id: int, version: int) -> None:
    frame = split_length(request_frame(MetadataRequest(topics=None), version, correlation_id, client_id))
    header = read_request_header(frame)
    assert (header.client_id, header.correlation_id) == (client_id, correlation_id)
    assert decode(MetadataRequest, frame, version, header.body_position).topics is None


def test_the_response_to_api_versions_never_has_tags_in_its_header() -> None:
    response = ApiVersionsResponse(error_code=35)
    for version in range(5):
        frame = split_length(b"".join(response_frame(response, version, 1)))
        assert frame[4:6] == struct.pack(">h", 35)


def test_a_header_of_a_version_that_nobody_supports_is_still_read() -> None:
    newest = ApiVersionsRequest.versions.last
    frame = bytearray(split_length(request_frame(ApiVersionsRequest(), newest, 5, "c")))
    frame[2:4] = struct.pack(">h", 99)
    header = read_request_header(memoryview(frame))
    assert (header.api_version, header.correlation_id, header.client_id) == (99, 5, "c")


@pytest.mark.parametrize("api_key", [-1, 999, 32767, -32768])
def test_a_key_that_no_api_has_is_a_decode_error(api_key: int) -> None:
    assert api_key not in REQUESTS
    with pytest.raises(DecodeError, match=f"no API has the key {api_key}"):
        read_request_header(memoryview(struct.pack(">hhih", api_key, 0, 1, -1)))


@pytest.mark.parametrize("version", [8, 9])
def test_a_request_header_cut_off_at_any_byte_is_a_decode_error(version: int) -> None:
    frame = split_length(request_frame(MetadataRequest(), version, 1, "client"))
    for end in range(read_request_header(frame).body_position):
        with pytest.raises(DecodeError):
            read_request_header(frame[:end])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_header_or_a_decode_error(data: bytes) -> None:
    try:
        header = read_request_header(memoryview(data))
    except DecodeError:
        return
    assert header.body_position <= len(data)


def test_a_client_id_that_is_not_utf_8_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="utf-8"):
        read_request_header(memoryview(struct.pack(">hhih", 3, 1, 1, 2) + b"\xc3\x28"))


def test_unknown_tags_in_headers_are_skipped() -> None:
    tags = b"\2\0\3abc\x09\0"
    frame = struct.pack(">hhih", 3, 9, 1, 1) + b"c" + tags
    assert read_request_header(memoryview(frame)).body_position == len(frame)
    response = struct.pack(">i", 4) + tags + encode_bytes(MetadataResponse(cluster_id="x"), 9)
    assert read_response(MetadataResponse, response, 9) == (4, MetadataResponse(cluster_id="x"))


def test_twenty_million_tags_in_a_header_are_refused() -> None:
    header = struct.pack(">hhih", 3, 9, 1, -1) + b"\x80\xda\xc4\x09" + bytes(100)
    with pytest.raises(DecodeError, match="elements in one message"):
        read_request_header(memoryview(header))


def test_a_response_that_ends_in_its_header_is_a_decode_error() -> None:
    for data in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(DecodeError):
            read_response(MetadataResponse, data, 9)


def test_the_length_counts_parts_that_are_not_bytes() -> None:
    class FileRange:
        def __len__(self) -> int:
            return 1 << 20

    records = FileRange()
    partition = PartitionData(records=records)
    parts = response_frame(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12, 9)
    assert parts[1] is records
    assert struct.unpack_from(">ii", parts[0]) == (sum(map(len, parts)) - 4, 9)
