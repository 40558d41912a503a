"""From the buffers of Arrow's columns to the records of partitions, in Python.

What `_records.c` does too, with the same names, where a C compiler was found: both pass the same tests, and what they
give is the same to the byte. Arrow's offsets are not trusted, and no row is encoded before all were looked at.
"""

from __future__ import annotations

import functools
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.protocol.compression import Buffer
from penstock.protocol.record_batch import NO_TIMESTAMP
from penstock.protocol.wire import uvarint

RECORD_BYTES_MAX = 1 << 30
ZIGZAGS_MAX = 1 << 14  # that are remembered: most lengths and deltas are small
MICROSECONDS = 1000
OUT_OF_BOUNDS = "a column's buffers are shorter than its rows"

# An array of Arrow's: its offset, validity, offsets and data.
ArrowArray = tuple[int, Buffer | None, Buffer | None, Buffer | None]
# Records, how many there are, the first one's timestamp and the latest.
Taken = tuple[bytes, int, int, int]


@dataclass(slots=True)
class Partition:
    """What is open is still being written; what is closed is as large as a batch may be."""

    open: bytearray = field(default_factory=bytearray)
    count: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    closed: deque[Taken] = field(default_factory=deque)

    def append(self, timestamp: int, parts: bytes, records_max: int) -> None:
        record = self._encoded(timestamp, parts)
        if self.count and len(self.open) + len(record) > records_max:
            self.closed.append(self.take_open())
            record = self._encoded(timestamp, parts)
        if self.count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = NO_TIMESTAMP  # of a batch, none is earlier, also where all of its records are
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.open += record
        self.count += 1

    def _encoded(self, timestamp: int, parts: bytes) -> bytes:
        delta = timestamp - self.base_timestamp if self.count else 0
        body = b"\0" + _zigzag(delta) + _zigzag(self.count) + parts
        return _zigzag(len(body)) + body

    def take_open(self) -> Taken:
        taken = bytes(self.open), self.count, self.base_timestamp, self.max_timestamp
        self.open.clear()
        self.count = 0
        return taken


class Partitions:
    """The encoded records of one topic's partitions."""

    def __init__(self, records_max: int) -> None:
        if not 1 <= records_max <= RECORD_BYTES_MAX:
            raise ValueError("a batch is of one byte to a GiB")
        self.records_max = records_max
        self.partitions: list[Partition] = []

    def grow(self, count: int, /) -> None:
        """Room for so many partitions, or for as many as there are."""
        self.partitions += (Partition() for _ in range(count - len(self.partitions)))

    def take(self, partition: int, /) -> Taken | None:
        """The oldest records of a partition, as many as a batch holds."""
        if not 0 <= partition < len(self.partitions):
            return None
        buffers = self.partitions[partition]
        if buffers.closed:
            return buffers.closed.popleft()
        return buffers.take_open() if buffers.count else None

    def buffered(self) -> list[tuple[int, int]]:
        """The bytes of each partition that has any."""
        sizes = (len(p.open) + sum(len(taken[0]) for taken in p.closed) for p in self.partitions)
        return [(index, size) for index, size in enumerate(sizes) if size]


# A topic's records, how many partitions it has, and which one is for rows without a key.
Topic = tuple[Partitions, int, int]


def encode(
    rows: int,
    now_ms: int,
    topics: tuple[Topic, ...],
    topic: ArrowArray | None,
    partition: ArrowArray | None,
    timestamp: ArrowArray | None,
    key: ArrowArray | None,
    value: ArrowArray,
    lists: ArrowArray | None,
    items: ArrowArray | None,
    names: ArrowArray | None,
    headers: ArrowArray | None,
    /,
) -> tuple[int, str] | None:
    """Rows to records of their partitions: all of them, or none, and which row is wrong and why."""
    topic_at, partition_at, timestamp_at = Array(topic, "i"), Array(partition, "i"), Array(timestamp, "q")
    key_at, value_at, lists_at = Array(key), Array(value), Array(lists)
    if any(a.present and a.length < rows for a in (topic_at, partition_at, timestamp_at, key_at, value_at, lists_at)):
        return 0, OUT_OF_BOUNDS
    headers_of = HeaderLists(lists_at, Array(items, None), Array(names), Array(headers)).encoded
    good = []
    for row in range(rows):
        try:
            chosen = _topic_of(topic_at, row, topics)
            parts = key_at.part(row), value_at.part(row)
            number = _partition_of(partition_at, row, chosen, parts[0])
            at_ms = _timestamp_of(timestamp_at, row, now_ms)
            encoded = _encoded(parts[0]) + _encoded(parts[1]) + headers_of(row)
            if len(encoded) > RECORD_BYTES_MAX:
                raise Refused("the record is larger than a GiB")
        except Refused as refused:
            return row, str(refused)
        good.append((chosen[0], number, at_ms, encoded))
    for partitions, number, at_ms, encoded in good:
        partitions.partitions[number].append(at_ms, encoded, partitions.records_max)
    return None


class Refused(Exception):
    """Why a row can't be a record."""


class Array:
    """An array of Arrow's. `code` is a number's, or "" where offsets say where bytes are, or None for a struct."""

    __slots__ = ("_data", "_offset", "_offsets", "_valid", "length", "present")

    def __init__(self, array: ArrowArray | None, code: Literal["i", "q", ""] | None = "") -> None:
        self.present = array is not None
        self._offset, valid, offsets, data = array or (0, None, b"", b"")
        self._valid = None if valid is None else memoryview(valid)
        self._offsets = _numbers(offsets, "i")
        self._data = _numbers(data, code) if code else memoryview(data or b"")
        room = RECORD_BYTES_MAX << 32 if code is None else len(self._data) if code else len(self._offsets) - 1
        if self._valid is not None:
            room = min(room, 8 * len(self._valid))
        self.length = max(room - self._offset, 0) if self._offset >= 0 else 0

    def is_valid(self, index: int) -> bool:
        if self._valid is None:
            return True
        index += self._offset
        return bool(self._valid[index >> 3] >> (index & 7) & 1)

    def number(self, index: int) -> int | None:
        return self._data[self._offset + index] if self.present and self.is_valid(index) else None

    def bounds(self, index: int) -> tuple[int, int] | None:
        if not self.present or not self.is_valid(index):
            return None
        start, stop = self._offsets[self._offset + index], self._offsets[self._offset + index + 1]
        if not 0 <= start <= stop:
            raise Refused(OUT_OF_BOUNDS)
        return start, stop

    def part(self, index: int) -> bytes | None:
        bounds = self.bounds(index)
        if bounds is None:
            return None
        if bounds[1] > len(self._data):
            raise Refused(OUT_OF_BOUNDS)
        return bytes(self._data[bounds[0] : bounds[1]])


def _numbers(buffer: Buffer | None, code: Literal["i", "q"]) -> memoryview:
    view = memoryview(buffer or b"").cast("B")
    width = 8 if code == "q" else 4
    return view[: len(view) // width * width].cast(code)


@dataclass(frozen=True, slots=True)
class HeaderLists:
    lists: Array
    items: Array
    names: Array
    values: Array

    def encoded(self, row: int) -> bytes:
        start, stop = self.lists.bounds(row) or (0, 0)
        if stop > start and stop > min(self.items.length, self.names.length, self.values.length):
            raise Refused(OUT_OF_BOUNDS)
        out = bytearray(_zigzag(stop - start))
        for index in range(start, stop):
            if not self.items.is_valid(index):
                raise Refused("a header is null")
            name = self.names.part(index)
            if name is None:
                raise Refused("a header's name is null")
            out += _encoded(name) + _encoded(self.values.part(index))
        return bytes(out)


def _topic_of(array: Array, row: int, topics: Sequence[Topic]) -> Topic:
    index = array.number(row) if array.present else 0
    if index is None:
        raise Refused("the topic is null")
    if not 0 <= index < len(topics):
        raise Refused(OUT_OF_BOUNDS)
    return topics[index]


def _partition_of(array: Array, row: int, topic: Topic, key: bytes | None) -> int:
    _, count, keyless = topic
    chosen = array.number(row)
    if chosen is None:
        return keyless if key is None else (murmur2(key) & 0x7FFFFFFF) % count
    if not 0 <= chosen < count:
        raise Refused("there is no such partition")
    return chosen


def _timestamp_of(array: Array, row: int, now_ms: int) -> int:
    timestamp = array.number(row)
    # The millisecond that it is in, also before 1970: -1 is the time of a record that has none.
    return now_ms if timestamp is None else timestamp // MICROSECONDS


def murmur2(key: bytes) -> int:
    """As every client of Kafka hashes keys."""
    mix, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for word in struct.unpack_from(f"<{whole >> 2}I", key):
        word = word * mix & mask
        word ^= word >> 24
        hashed = (hashed * mix & mask) ^ (word * mix & mask)
    if whole != len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * mix & mask
    hashed = (hashed ^ hashed >> 13) * mix & mask
    return hashed ^ hashed >> 15


def _encoded(part: bytes | None) -> bytes:
    return b"\x01" if part is None else _zigzag(len(part)) + part


@functools.lru_cache(maxsize=ZIGZAGS_MAX)
def _zigzag(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else ~value << 1 | 1)
