"""The sparse index of a segment: by offset, by position and by time at once.

One entry stands for one batch, at most one per `index.interval.bytes` of log:

    | relative offset u32 | position u32 | largest timestamp before this batch, i64 |      little-endian, 16 bytes

All three columns only rise, so each can be searched by bisection. An entry is a hint: whoever follows it finds the
batch header at that position and compares its base offset. On disk the entries are followed by a footer of 80 bytes

    | 0xFFFFFFFF u32 | CRC32C of the entries u32 | size of the segment that they cover i64 | end offset i64 |
    | created i64 | first timestamp i64 | largest timestamp i64 | base offset of the batch that holds it i64 |
    | number of aborted transactions i64 | CRC32C of their entries in a file of their own i64 |
    | version u32 | CRC32C of the footer so far u32 |

which says that the segment was synced up to that size before the index was written: recovery trusts as much, and
learns from the footer alone what it would otherwise have to read the segment for.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

ENTRY = struct.Struct("<IIq")
CLOSING: Final = 0xFFFFFFFF
VERSION: Final = 2
FOOTER = struct.Struct("<IIqqqqqqqqII")
FOOTER_SIZE = FOOTER.size
assert ENTRY.size == 16
assert FOOTER_SIZE == 80


class Entry(NamedTuple):
    relative_offset: int
    position: int


class Footer(NamedTuple):
    """What is known of a segment whose first `segment_size` bytes are on the device."""

    segment_size: int
    end_offset: int
    created_ms: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    aborted: int = 0
    aborted_crc: int = 0


class Index:
    """Entries in memory while the segment grows; a view of the mapped file once it is sealed."""

    __slots__ = ("offsets", "positions", "timestamps")

    def __init__(self) -> None:
        self.offsets: Sequence[int] = array("I")
        self.positions: Sequence[int] = array("I")
        self.timestamps: Sequence[int] = array("q")

    def add(self, relative_offset: int, position: int, timestamp_before: int) -> None:
        try:
            self.offsets.append(relative_offset)  # type: ignore[attr-defined]
        except AttributeError:  # the segment was active at the last stop, and grows on
            self._copy_into_memory()
            self.offsets.append(relative_offset)  # type: ignore[attr-defined]
        self.positions.append(position)  # type: ignore[attr-defined]
        self.timestamps.append(timestamp_before)  # type: ignore[attr-defined]

    def _copy_into_memory(self) -> None:
        self.offsets = array("I", memoryview(self.offsets).tobytes())  # type: ignore[arg-type]
        self.positions = array("I", memoryview(self.positions).tobytes())  # type: ignore[arg-type]
        self.timestamps = array("q", memoryview(self.timestamps).tobytes())  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.offsets)

    def at_or_before(self, relative_offset: int) -> Entry | None:
        """The last entry whose batch begins at or before the offset."""
        slot = bisect_right(self.offsets, relative_offset) - 1
        return None if slot < 0 else Entry(self.offsets[slot], self.positions[slot])

    def last_within(self, position_max: int) -> Entry | None:
        """The last entry whose batch begins at or before the position."""
        slot = bisect_right(self.positions, position_max) - 1
        return None if slot < 0 else Entry(self.offsets[slot], self.positions[slot])

    def before_time(self, timestamp_ms: int) -> Entry | None:
        """The last entry with only older timestamps in front of it: a search for the time may begin there."""
        slot = bisect_left(self.timestamps, timestamp_ms) - 1
        return None if slot < 0 else Entry(self.offsets[slot], self.positions[slot])

    def truncate(self, position: int) -> None:
        """Forgets the batches at the position and behind it."""
        keep = bisect_left(self.positions, position)
        if not isinstance(self.offsets, array):
            self._copy_into_memory()
        for column in (self.offsets, self.positions, self.timestamps):
            del column[keep:]  # type: ignore[attr-defined]

    def dump(self, footer: Footer) -> bytes:
        """The entries that the footer covers. The slices are copies: another thread may be adding entries meanwhile,
        and an array can't grow while something looks at its memory."""
        keep = bisect_left(self.positions, footer.segment_size)
        body = bytearray(keep * ENTRY.size)
        words, longs = memoryview(body).cast("I"), memoryview(body).cast("q")
        words[0::4] = memoryview(self.offsets[:keep])  # type: ignore[arg-type]
        words[1::4] = memoryview(self.positions[:keep])  # type: ignore[arg-type]
        longs[1::2] = memoryview(self.timestamps[:keep])  # type: ignore[arg-type]
        head = FOOTER.pack(CLOSING, crc32c(body), *footer, VERSION, 0)[:-4]
        return bytes(body) + head + crc32c(head).to_bytes(4, "little")


def read_footer(data: bytes | memoryview) -> Footer | None:
    """From the last bytes of an index file, None if they can't be trusted."""
    if len(data) < FOOTER_SIZE:
        return None
    tail = data[-FOOTER_SIZE:]
    mark, _, *fields, version, checksum = FOOTER.unpack(tail)
    if mark != CLOSING or version != VERSION or crc32c(tail[:-4]) != checksum:
        return None
    return Footer(*fields)


def load(data: memoryview | None) -> tuple[Index, Footer] | None:
    """The index and what its footer says of the segment, None if the file can't be trusted."""
    if data is None or len(data) % ENTRY.size or (footer := read_footer(data)) is None:
        return None
    body = data[:-FOOTER_SIZE]
    if crc32c(body) != FOOTER.unpack(data[-FOOTER_SIZE:])[1]:
        return None
    index = Index()
    words, longs = body.cast("I"), body.cast("q")
    index.offsets, index.positions, index.timestamps = words[0::4], words[1::4], longs[1::2]
    return index, footer
