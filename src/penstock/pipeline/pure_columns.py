"""The walk over the records of a batch into the buffers of Arrow's columns, in Python.

What `_columns.c` does too, with the same names, where a C compiler was found: both pass the same tests, and what they
give is the same to the byte. Records are not trusted: whatever is wrong with them is a ValueError.

A column of bytes is (number of nulls, validity, offsets, data). Rows are kept as Arrow keeps them, but for validity,
which is one character for each row until it is handed over.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from penstock.protocol.compression import Buffer
from penstock.protocol.record_batch import INT64_MAX, INT64_MIN

RECORD_BYTES_MIN = 7  # its size, attributes, two deltas, key, value and number of headers
INT32_MAX = (1 << 31) - 1
MICROSECONDS = 1000
RUNS_PAST = "a record runs past the end of its batch"

Binary = tuple[int, bytes, bytes, bytes]
Headers = tuple[int, bytes, bytes, int, Binary, Binary]
Finished = tuple[int, Binary, Binary, bytes, bytes, bytes, bytes, Headers | None]


class Full(Exception):
    """A column would pass what its offsets can count."""


@dataclass(slots=True)
class BinaryColumn:
    valid: bytearray = field(default_factory=bytearray)
    starts: array[int] = field(default_factory=lambda: array("i"))
    data: bytearray = field(default_factory=bytearray)

    def append(self, part: bytes | None, data_max: int) -> None:
        if part is not None and len(self.data) + len(part) > data_max:
            raise Full
        self.valid += b"0" if part is None else b"1"
        self.starts.append(len(self.data))
        if part:
            self.data += part

    def cut(self, count: int, data_bytes: int) -> None:
        del self.valid[count:], self.starts[count:], self.data[data_bytes:]

    def finish(self, *, with_validity: bool = True) -> Binary:
        offsets = self.starts.tobytes() + array("i", [len(self.data)]).tobytes()
        valid = _packed(self.valid) if with_validity else b""
        return self.valid.count(b"0"), valid, offsets, bytes(self.data)


class Columns:
    """Rows as the buffers of Arrow's columns."""

    def __init__(self, headers: bool, data_max: int) -> None:
        if not 1 <= data_max <= INT32_MAX:
            raise ValueError("offsets have 32 bits")
        self._with_headers = headers
        self._data_max = data_max
        self._start()

    def _start(self) -> None:
        self._key, self._value, self._name, self._header = (BinaryColumn() for _ in range(4))
        self._offset, self._timestamp = array("q"), array("q")
        self._type, self._epoch = array("i"), array("i")
        self._list_valid, self._list_starts = bytearray(), array("i")

    @property
    def rows(self) -> int:
        return len(self._offset)

    @property
    def data_bytes(self) -> int:
        return sum(len(column.data) for column in (self._key, self._value, self._name, self._header))

    def append(
        self,
        data: Buffer,
        count: int,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        append_time: bool,
        epoch: int,
        first: int,
        stop: int,
        /,
    ) -> bool:
        """The records of a batch from `first` up to `stop`: all of them, or with False or a ValueError none."""
        if base_offset < 0 or base_offset > INT64_MAX - max(last_delta, 0):
            raise ValueError("an offset is longer than 63 bits")
        if count > len(data) // RECORD_BYTES_MIN:
            raise ValueError(RUNS_PAST)
        rows, items = len(self._offset), len(self._name.starts)
        used = [len(column.data) for column in (self._key, self._value, self._name, self._header)]
        walk = Walk(bytes(data), base_offset, last_delta, base_timestamp, max_timestamp if append_time else None)
        try:
            self._walk(walk, count, first, stop)
        except (IndexError, ValueError, Full) as error:
            self._undo(rows, items, used)
            if isinstance(error, Full):
                return False
            raise ValueError(RUNS_PAST if isinstance(error, IndexError) else str(error)) from None
        added = len(self._offset) - rows
        self._type.extend([int(append_time)] * added)
        self._epoch.extend([epoch] * added)
        return True

    def _walk(self, walk: Walk, count: int, first: int, stop: int) -> None:
        most = self._data_max
        for _ in range(count):
            offset, timestamp_ms, key, value, headers = walk.record()
            if not first <= offset < stop:
                continue
            if self._with_headers:
                self._append_headers(headers)
            self._key.append(key, most)
            self._value.append(value, most)
            self._offset.append(offset)
            self._timestamp.append(_microseconds(timestamp_ms))
        if walk.at != len(walk.data):
            raise ValueError("bytes follow the last record")

    def _append_headers(self, headers: list[tuple[bytes, bytes | None]]) -> None:
        self._list_valid += b"1" if headers else b"0"
        self._list_starts.append(len(self._name.starts))
        if len(self._name.starts) + len(headers) > self._data_max:
            raise Full
        for name, value in headers:
            # Arrow's strings are UTF-8. Brokers have never looked at the encoding of names.
            text = name if name.isascii() else name.decode("utf-8", "replace").encode()
            self._name.append(text, self._data_max)
            self._header.append(value, self._data_max)

    def _undo(self, rows: int, items: int, used: list[int]) -> None:
        self._key.cut(rows, used[0])
        self._value.cut(rows, used[1])
        self._name.cut(items, used[2])
        self._header.cut(items, used[3])
        del self._offset[rows:], self._timestamp[rows:]
        del self._list_valid[rows:], self._list_starts[rows:]

    def finish(self) -> Finished:
        """Hands over the buffers of all rows, and starts again."""
        headers = None
        if self._with_headers:
            items = len(self._name.starts)
            offsets = self._list_starts.tobytes() + array("i", [items]).tobytes()
            lists = self._list_valid.count(b"0"), _packed(self._list_valid), offsets
            headers = (*lists, items, self._name.finish(with_validity=False), self._header.finish())
        numbers = (column.tobytes() for column in (self._offset, self._timestamp, self._type, self._epoch))
        offset, timestamp, kind, epoch = numbers
        done = self.rows, self._key.finish(), self._value.finish(), offset, timestamp, kind, epoch, headers
        self._start()
        return done


def _packed(flags: bytearray) -> bytes:
    """One bit for each character, the first one lowest."""
    return int(flags[::-1], 2).to_bytes((len(flags) + 7) // 8, "little") if flags else b""


def _microseconds(timestamp_ms: int) -> int:
    """What microseconds can't hold, 292,000 years from now, is as far away as they go."""
    return max(INT64_MIN, min(timestamp_ms * MICROSECONDS, INT64_MAX))


class Walk:
    """One record after the other. An IndexError is the end of the batch inside of a record."""

    __slots__ = ("_base_offset", "_base_timestamp", "_last_delta", "_previous", "_stamp", "at", "data")

    def __init__(self, data: bytes, base_offset: int, last_delta: int, base_timestamp: int, stamp: int | None) -> None:
        self.data = data
        self.at = 0
        self._base_offset = base_offset
        self._last_delta = last_delta
        self._base_timestamp = base_timestamp
        self._stamp = stamp
        self._previous = -1

    def record(self) -> tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]:
        size = self._varint()
        end = self.at + size
        if size < 1 or end > len(self.data):
            raise ValueError("a record claims more bytes than there are")
        self.at += 1  # the attributes of a record, unused so far
        timestamp_delta = self._varint(64)
        delta = self._varint()
        if not self._previous < delta <= self._last_delta:
            raise ValueError("an offset delta is out of order")
        self._previous = delta
        timestamp_ms = self._base_timestamp + timestamp_delta if self._stamp is None else self._stamp
        if not INT64_MIN <= timestamp_ms <= INT64_MAX:
            raise ValueError("a timestamp is longer than 64 bits")
        key, value = self._part(end), self._part(end)
        headers = []
        count = self._varint()
        if not 0 <= count <= end - self.at:
            raise ValueError("a record claims headers that it has no room for")
        for _ in range(count):
            name = self._part(end)
            if name is None:
                raise ValueError("a header has no name")
            headers.append((name, self._part(end)))
        if self.at != end:
            raise ValueError("a record holds less than its size")
        return self._base_offset + delta, timestamp_ms, key, value, headers

    def _part(self, end: int) -> bytes | None:
        size = self._varint()
        if size < 0:
            if size == -1:
                return None
            raise ValueError("a length is negative")
        start = self.at
        self.at += size
        if self.at > end:
            raise ValueError("a key, value or header runs past the end of its record")
        return self.data[start : self.at]

    def _varint(self, bits: int = 32) -> int:
        data = self.data
        byte = data[self.at]
        self.at += 1
        value = byte & 0x7F
        shift = 7
        while byte > 0x7F:
            if shift >= bits:
                raise ValueError(f"a varint is longer than {bits} bits")
            byte = data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        if value >> bits:
            raise ValueError(f"a varint is longer than {bits} bits")
        return (value >> 1) ^ -(value & 1)
