"""Frames: a length, a header that says which message follows, and the message.

    request   length:int32  api_key:int16  api_version:int16  correlation_id:int32  client_id:string?  [tags]  body
    response  length:int32  correlation_id:int32  [tags]  body

The tags are there when the message's version is flexible. The client id keeps its int16 length in every version, and
the response to ApiVersions never has tags: a client reads it before it knows what the broker speaks (KIP-511).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.protocol.apis import REQUESTS
from penstock.protocol.codec import decode, encode_sized
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.schema import ELEMENTS_MAX, Message
from penstock.protocol.wire import DecodeError, skip_tags

M = TypeVar("M", bound=Message)

NO_TAGS = b"\0"
_REQUEST = struct.Struct(">hhih")  # up to the length of the client id
_INT32 = struct.Struct(">i")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")

FIRST_FLEXIBLE: dict[int, int] = {
    api_key: request.flexible.first if request.flexible.first <= request.flexible.last else 0x7FFF + 1
    for api_key, request in REQUESTS.items()
}


@dataclass(frozen=True, slots=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int  # in the frame that the header was read from


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of a frame whose length has been taken off. The version may be one that nobody supports."""
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        first_flexible = FIRST_FLEXIBLE.get(api_key)
        if first_flexible is None:
            raise DecodeError(f"no API has the key {api_key}")
        position = _REQUEST.size
        client_id = None
        if size >= 0:
            if size > len(frame) - position:
                raise DecodeError("the client id runs past the end")
            client_id = str(frame[position : position + size], "utf-8")
            position += size
        if version >= first_flexible:
            position, _ = skip_tags(frame, position, len(frame), ELEMENTS_MAX)
    except DecodeError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise DecodeError(f"request header: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = client_id.encode() if client_id is not None else b""
    size = len(name) if client_id is not None else -1
    tags = NO_TAGS if version in message.flexible else b""
    header = _REQUEST.pack(message.api_key, version, correlation_id, size) + name + tags
    parts, body_size = encode_sized(message, version)
    return b"".join((_INT32.pack(len(header) + body_size), header, *parts))


def response_frame(message: Message, version: int, correlation_id: int) -> list[Any]:
    """The frame in parts, the first of which begins with the length of all that follows it."""
    parts, body_size = encode_sized(message, version)
    tags = _response_tags(type(message), version)
    head = _LENGTH_AND_CORRELATION.pack(_INT32.size + len(tags) + body_size, correlation_id) + tags
    if parts:
        parts[0] = head + parts[0]  # never records: no message begins with them
    else:
        parts.append(head)
    return parts


def read_response(cls: type[M], frame: memoryview | bytes, version: int) -> tuple[int, M]:
    """The correlation id and the message of a frame whose length has been taken off."""
    view = frame if isinstance(frame, memoryview) else memoryview(frame)
    try:
        (correlation_id,) = _INT32.unpack_from(view)
        position = _INT32.size
        if _response_tags(cls, version):
            position, _ = skip_tags(view, position, len(view), ELEMENTS_MAX)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"response header: {error}") from None
    return correlation_id, decode(cls, view, version, position)


def _response_tags(cls: type[Message], version: int) -> bytes:
    return NO_TAGS if version in cls.flexible and cls is not ApiVersionsResponse else b""
