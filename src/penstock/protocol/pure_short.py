"""What the short ways do with the bytes of every request: compare, take apart, check, stamp, answer.

`_short.c` does the same, with the same names, where a C compiler was found.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from penstock.protocol.wire import uvarint

Buffer = bytearray | memoryview

Opened = tuple[bool, int, int, int, int, int, int, int, int, int, int, int]
"""Whether the batch is whole and its checksum right; base offset, length, leader epoch, magic, attributes, last offset
delta, largest timestamp, producer id, its epoch, its sequence, how many records."""

BEFORE_CLIENT = 12  # length, api key, version, correlation id
HEADER_SIZE = 61
LENGTH_COUNTS_FROM = 12
SUMMED_FROM = 21
LONG_MIN = -(2**63)
LONG_MASK = 2**64 - 1

_header = Struct(">qiibIhi8xqqhii").unpack_from
_int32 = Struct(">i").unpack_from
_put_int32 = Struct(">i").pack_into
_put_int64 = Struct(">q").pack_into
_put_numbers = Struct(">qqq").pack_into


def open_batch(buffer: Buffer, at: int) -> Opened:
    """The header of the batch that begins there."""
    size = len(buffer) - at
    if at < 0 or size < HEADER_SIZE:
        raise ValueError("there is no header of a batch")
    base_offset, length, epoch, magic, crc, *rest = _header(buffer, at)
    sound = False
    if HEADER_SIZE - LENGTH_COUNTS_FROM <= length <= size - LENGTH_COUNTS_FROM:
        sound = crc32c(memoryview(buffer)[at + SUMMED_FROM : at + LENGTH_COUNTS_FROM + length]) == crc
    attributes, last_delta, max_timestamp, producer_id, producer_epoch, sequence, count = rest
    return (
        sound, base_offset, length, epoch, magic, attributes, last_delta, max_timestamp, producer_id, producer_epoch,
        sequence, count,
    )  # fmt: skip


def newest_delta(batch: Buffer, count: int) -> int | None:
    """The largest timestamp delta in a batch that is not compressed; None unless behind its header there are so many
    whole records, each in its place, and nothing else."""
    at, end = HEADER_SIZE, len(batch)
    newest = LONG_MIN
    if end < HEADER_SIZE or count < 1:
        return None
    try:
        for place in range(count):
            at, delta = _behind_record(batch, at, end, place)
            newest = max(newest, delta)
    except _NoRecord:
        return None
    return newest if at == end else None


class _NoRecord(Exception):
    pass


def _behind_record(data: Buffer, at: int, end: int, place: int) -> tuple[int, int]:
    """Where it ends, and its timestamp delta."""
    size, at = _varint(data, at, end)
    if not 1 <= size <= end - at:
        raise _NoRecord
    end = at + size
    time, at = _varint(data, at + 1, end, 10)  # behind the attributes, of which there are none
    delta, at = _varint(data, at, end)
    if delta != place:
        raise _NoRecord
    at = _behind_bytes(data, _behind_bytes(data, at, end, -1), end, -1)
    headers, at = _varint(data, at, end)
    if not 0 <= headers <= end - at:
        raise _NoRecord
    for _ in range(headers):
        at = _behind_bytes(data, _behind_bytes(data, at, end, 0), end, -1)
    if at != end:
        raise _NoRecord
    return at, time


def _behind_bytes(data: Buffer, at: int, end: int, size_min: int) -> int:
    """A size of -1 means that there are none."""
    size, at = _varint(data, at, end)
    if not size_min <= size <= end - at:
        raise _NoRecord
    return at + max(size, 0)


def _varint(data: Buffer, at: int, end: int, bytes_max: int = 5) -> tuple[int, int]:
    """A signed number of at most so many bytes, and where it ends."""
    found = 0
    for place in range(min(bytes_max, end - at)):
        byte = data[at + place]
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            found &= LONG_MASK
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise _NoRecord


def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> None:
    """What a leader writes into a batch; neither is under its checksum."""
    if len(batch) < HEADER_SIZE or memoryview(batch).readonly:
        raise ValueError("there is no header of a batch to be written to")
    _put_int64(batch, 0, base_offset)
    _put_int32(batch, LENGTH_COUNTS_FROM, leader_epoch)


class ProduceShape:
    """Produce requests of one partition each, that are alike up to its index but for their correlation ids."""

    __slots__ = ("_flexible", "_prefix", "_version")

    def __init__(self, version: int, prefix: bytes, flexible: bool) -> None:
        """The prefix is what stands between the correlation id and the partition's index."""
        self._version = version
        self._prefix = prefix
        self._flexible = flexible

    def match(self, data: Buffer, start: int, stop: int) -> tuple[int, int, int, int] | None:
        """Correlation id, partition, and where its records begin and end. None if the request is of another kind."""
        at = start + BEFORE_CLIENT + len(self._prefix)
        if start < 0 or stop > len(data) or at + 4 + 3 >= stop:
            return None
        if _int32(data, start + 4)[0] != self._version or bytes(data[start + BEFORE_CLIENT : at]) != self._prefix:
            return None  # the key of Produce is 0
        (index,) = _int32(data, at)
        at += 4
        if self._flexible:
            # A varint of one to three bytes, one above the size. Behind the records stand three sets of tags, all
            # empty.
            length, shift, byte = 0, 0, 0x80
            while byte >= 0x80 and shift <= 14:
                byte = data[at]
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
            end = at + length - 1
            if byte >= 0x80 or end + 3 != stop or data[end] | data[end + 1] | data[end + 2]:
                return None
        else:
            end = at + 4 + _int32(data, at)[0]
            at += 4
            if end != stop:
                return None
        return (_int32(data, start + 8)[0], index, at, end) if at <= end else None


class FetchShape:
    """Fetch requests of one partition each, that are alike but for their correlation ids and what they ask of it."""

    __slots__ = ("_asked", "_has_last_epoch", "_key_and_version", "_prefix", "_tail")

    def __init__(self, version: int, prefix: bytes, tail: bytes, has_last_epoch: bool) -> None:
        """The prefix stands between the correlation id and the partition, the tail behind it."""
        self._key_and_version = 1 << 16 | version
        self._prefix = prefix
        self._tail = tail
        self._has_last_epoch = has_last_epoch
        # Partition, current leader epoch, fetch offset, [last fetched epoch,] log start offset, partition max bytes.
        self._asked = Struct(">iiqiqi" if has_last_epoch else ">iiqqi")

    def match(self, data: Buffer, start: int, stop: int) -> tuple[int, int, int, int, int, int] | None:
        """Correlation id, partition, current leader epoch, offset, the epoch of the batch before it or -1, and how many
        bytes at most. None if the request is of another kind."""
        at = start + BEFORE_CLIENT + len(self._prefix)
        tail_at = at + self._asked.size
        if start < 0 or stop > len(data) or tail_at + len(self._tail) != stop:
            return None
        if _int32(data, start + 4)[0] != self._key_and_version or bytes(data[tail_at:stop]) != self._tail:
            return None
        if bytes(data[start + BEFORE_CLIENT : at]) != self._prefix:
            return None
        index, epoch, offset, *rest = self._asked.unpack_from(data, at)
        return _int32(data, start + 8)[0], index, epoch, offset, rest[0] if self._has_last_epoch else -1, rest[-1]


class AnswerShape:
    """Answers that differ in their correlation ids and in three numbers, which stand one behind another."""

    __slots__ = ("_at", "_frame")

    def __init__(self, frame: bytes, at: int) -> None:
        if not 8 <= at <= len(frame) - 24:
            raise ValueError("the three numbers must stand within the frame, behind its header")
        self._frame = frame
        self._at = at

    def fill(self, correlation_id: int, first: int, second: int, third: int) -> bytes:
        filled = bytearray(self._frame)
        _put_int32(filled, 4, correlation_id)
        _put_numbers(filled, self._at, first, second, third)
        return bytes(filled)


class RecordsShape:
    """Answers with records in them, that differ in these, their correlation ids and three numbers before them."""

    __slots__ = ("_at", "_flexible", "_head", "_tail")

    def __init__(self, head: bytes, at: int, tail: bytes, flexible: bool) -> None:
        """The head ends before the length of the records."""
        if not 8 <= at <= len(head) - 24:
            raise ValueError("the three numbers must stand within the frame, behind its header")
        self._head = head
        self._at = at
        self._tail = tail
        self._flexible = flexible

    def before(self, correlation_id: int, size: int, first: int, second: int, third: int) -> bytes:
        """What stands before so many bytes of records. Behind them comes the tail."""
        if not 0 <= size <= 0x7FFFFFFF - len(self._head) - len(self._tail) - 5:
            raise ValueError("so many records do not fit into a frame")
        begun = bytearray(self._head)
        begun += uvarint(size + 1) if self._flexible else size.to_bytes(4, "big")
        _put_int32(begun, 0, len(begun) - 4 + size + len(self._tail))
        _put_int32(begun, 4, correlation_id)
        _put_numbers(begun, self._at, first, second, third)
        return bytes(begun)

    def around(self, correlation_id: int, records: bytes, first: int, second: int, third: int) -> bytes:
        """The whole answer."""
        return self.before(correlation_id, len(records), first, second, third) + records + self._tail
