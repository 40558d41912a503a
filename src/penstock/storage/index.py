"""The sparse index of a segment: by offset, by position and by time at once.

One entry stands for one batch, at most one per `index.interval.bytes` of log:

    | relative offset u32 | position u32 | largest timestamp before this batch, i64 |      little-endian, 16 bytes

All three columns only rise, so each can be searched by bisection. An entry is a hint: whoever follows it finds the
batch header at that position and compares its base offset. On disk the entries are followed by one closing entry

    | 0xFFFFFFFF | CRC32C of the entries u32 | size of the segment that they cover, i64 |

which says that the segment was synced up to that size before the index was written: recovery trusts as much.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

ENTRY = struct.Struct("<IIq")
CLOSING = 0xFFFFFFFF
assert ENTRY.size == 16


class Entry(NamedTuple):
    relative_offset: int
    position: int


class Index:
    """Entries in memory while the segment grows; a view of the mapped file once it is sealed."""

    __slots__ = ("offsets", "positions", "timestamps")

    def __init__(self) -> None:
        self.offsets: Sequence[int] = array("I")
        self.positions: Sequence[int] = array("I")
        self.timestamps: Sequence[int] = array("q")

    def add(self, relative_offset: int, position: int, timestamp_before: int) -> None:
        self.offsets.append(relative_offset)  # type: ignore[attr-defined]
        self.positions.append(position)  # type: ignore[attr-defined]
        self.timestamps.append(timestamp_before)  # type: ignore[attr-defined]

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
        self.offsets = array("I", self.offsets[:keep])
        self.positions = array("I", self.positions[:keep])
        self.timestamps = array("q", self.timestamps[:keep])

    def dump(self, segment_size: int) -> bytes:
        body = b"".join(map(ENTRY.pack, self.offsets, self.positions, self.timestamps))
        return body + ENTRY.pack(CLOSING, crc32c(body), segment_size)


def load(data: memoryview | None) -> tuple[Index, int] | None:
    """The index and the size of the segment it covers, None if the file can't be trusted."""
    if data is None or len(data) < ENTRY.size or len(data) % ENTRY.size:
        return None
    body = data[: -ENTRY.size]
    mark, checksum, segment_size = ENTRY.unpack_from(data, len(body))
    if mark != CLOSING or checksum != crc32c(body) or segment_size < 0:
        return None
    index = Index()
    words, longs = body.cast("I"), body.cast("q")
    index.offsets, index.positions, index.timestamps = words[0::4], words[1::4], longs[1::2]
    return index, segment_size
