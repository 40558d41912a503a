"""Fetch between brokers in its plain shape, read and written without the codec.

Followers and leaders exchange one such pair for every message that must be on all of them before it is acknowledged.
Whatever is not plain (an error, a tag, a partition that is forgotten) is left to the codec: reading says None then.
Only one version is spoken here.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, Final

from penstock.protocol.codec import encode_bytes
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.wire import uvarint

VERSION: Final = 17
API_KEY: Final = 1

Asked = tuple[bytes, int, int, int, int, int, int]
"""Topic id, partition, the leader's epoch, the offset, the epoch of the batch before it, where the log begins, and how
many bytes at most."""

Answered = tuple[bytes, int, int, int, Any]
"""Topic id, partition, high watermark, where the log begins, records."""

SESSION_AT: Final = 13  # in the body: behind the wait, the two sizes and the isolation level
TOPICS_AT: Final = 21
ASKED_SIZE: Final = 33
HEAD_SIZE: Final = 19
DATA_SIZE: Final = 35

_session = Struct(">ii").pack
_pack_asked = Struct(">iiqiqib").pack
_unpack_asked = Struct(">iiqiqib").unpack_from
_pack_head = Struct(">iibihi").pack  # length, correlation id, tags, throttle time, error, session id
_unpack_head = Struct(">ibihi").unpack_from  # without the length
# Partition, error, high watermark, last stable offset, log start, aborted transactions (none), preferred read replica.
_pack_data = Struct(">ihqqqbi").pack
_unpack_data = Struct(">ihqqqbi").unpack_from


def request_ends(request: FetchRequest) -> tuple[bytes, bytes]:
    """What stands in the body before the session and behind the topics, if no partition is forgotten."""
    bare = FetchRequest(
        replica_state=request.replica_state, max_wait_ms=request.max_wait_ms, min_bytes=request.min_bytes,
        max_bytes=request.max_bytes, isolation_level=request.isolation_level,
    )  # fmt: skip
    body = encode_bytes(bare, VERSION)
    return body[:SESSION_AT], body[TOPICS_AT + 1 :]


def write_asked(session_id: int, session_epoch: int, asked: list[Asked]) -> bytes:
    """The middle of a request's body: the session, and the partitions that are asked for."""
    parts: list[bytes] = []
    topics = _topics([each[0] for each in asked])
    for first, stop in topics:
        parts.append(asked[first][0])
        parts.append(uvarint(stop - first + 1))
        for _, index, epoch, offset, last_epoch, start, size_max in asked[first:stop]:
            parts.append(_pack_asked(index, epoch, offset, last_epoch, start, size_max, 0))
        parts.append(b"\0")
    return b"".join((_session(session_id, session_epoch), uvarint(len(topics) + 1), *parts))


def _topics(topic_ids: list[bytes]) -> list[tuple[int, int]]:
    """Where each topic's partitions begin and end, which stand together."""
    found: list[tuple[int, int]] = []
    first = 0
    for at in range(1, len(topic_ids) + 1):
        if at == len(topic_ids) or topic_ids[at] != topic_ids[first]:
            found.append((first, at))
            first = at
    return found


def read_asked(data: bytearray, at: int, stop: int) -> list[Asked] | None:
    """The topics of a request, which end at `stop` if it is plain."""
    found: list[Asked] = []
    try:
        topics = data[at] - 1
        at += 1
        if topics >= 0x7F:
            return None
        while topics > 0:
            topic_id = bytes(data[at : at + 16])
            partitions = data[at + 16] - 1
            at += 17
            if partitions >= 0x7F:
                return None
            while partitions > 0:
                index, epoch, offset, last_epoch, start, size_max, tags = _unpack_asked(data, at)
                if tags:
                    return None
                found.append((topic_id, index, epoch, offset, last_epoch, start, size_max))
                at += ASKED_SIZE
                partitions -= 1
            if data[at]:
                return None
            at += 1
            topics -= 1
    except (IndexError, StructError):
        return None
    return found if at == stop and topics == 0 else None


def write_answer(correlation_id: int, session_id: int, answered: list[Answered]) -> list[Any]:
    """A whole frame, in parts: records may be ranges of files."""
    out: list[Any] = [b""]
    parts: list[bytes] = []  # those that have not gone to `out` yet
    size, topics = 0, _topics([each[0] for each in answered])
    for first, stop in topics:
        parts.append(answered[first][0])
        parts.append(uvarint(stop - first + 1))
        for _, index, high_watermark, start, records in answered[first:stop]:
            parts.append(_pack_data(index, 0, high_watermark, -1, start, 0, -1))
            parts.append(uvarint(len(records) + 1))
            if isinstance(records, bytes):
                parts.append(records)
            else:
                before = b"".join(parts)
                out.append(before)
                out.append(records)
                size += len(before) + len(records)
                parts = []
            parts.append(b"\0")
        parts.append(b"\0")
    parts.append(b"\0")
    rest, number = b"".join(parts), uvarint(len(topics) + 1)
    size += len(rest)
    head = _pack_head(HEAD_SIZE - 4 + len(number) + size, correlation_id, 0, 0, 0, session_id) + number
    if len(out) == 1:
        return [head + rest]
    out[1] = head + out[1]
    out.append(rest)
    return out[1:]


def read_answer(frame: memoryview) -> tuple[int, int, list[Answered]] | None:
    """The correlation id, the session and the partitions of an answer without errors, whose length was taken off."""
    found: list[Answered] = []
    size = len(frame)
    try:
        correlation_id, tags, _, error, session_id = _unpack_head(frame)
        at = HEAD_SIZE - 4
        topics = frame[at] - 1
        at += 1
        if tags or error or topics >= 0x7F:
            return None
        while topics > 0:
            topic_id = bytes(frame[at : at + 16])
            partitions = frame[at + 16] - 1
            at += 17
            if partitions >= 0x7F:
                return None
            while partitions > 0:
                index, error, high_watermark, _, start, aborted, _ = _unpack_data(frame, at)
                at += DATA_SIZE
                length, shift = 0, 0
                while True:
                    byte = frame[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 28:
                        return None
                length -= 1
                if error or aborted not in (0, 1) or length < 0 or frame[at + length]:
                    return None
                found.append((topic_id, index, high_watermark, start, frame[at : at + length]))
                at += length + 1
                partitions -= 1
            if frame[at]:
                return None
            at += 1
            topics -= 1
        if frame[at] or at + 1 != size or topics:
            return None
    except (IndexError, StructError):
        return None
    return correlation_id, session_id, found
