"""What a clean stop leaves behind: one file that describes every log, so that the next start need not look at them.

`clean-shutdown`, in the data folder, big-endian:

    | "penstock" | version u16 | CRC32C of what follows u32 | number of logs u32 |
    for each log:      | length of the folder's name u16 | name |
                       | topic id 16 bytes | start i64 | end i64 | snapshot i64 | segments u32 |
    for each segment:  | base i64 | size i64 | created i64 | first timestamp i64 | largest i64 | its batch i64 |

A folder has the name of a topic, and the same name may be another topic's when it is opened: the id tells them apart
without a look into the folder. A file of version 1 had no ids, and counts as no clean stop.

`snapshot` is where the log's producers were saved; -1 if it has none, -2 if the folder must be searched. The file is
taken away, durably, as soon as it was read: a crash later on must not be taken for a clean stop. What it says holds
because everything it speaks of was synced before it was written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from penstock.storage import snapshots
from penstock.storage.disk import Disk
from penstock.storage.log import NO_PRODUCERS, Log, LogSettings
from penstock.storage.segment import Segment

FILE_NAME = "clean-shutdown"
UNKNOWN_SNAPSHOT = -2

_MAGIC = b"penstock"
_VERSION = 2
_HEAD = struct.Struct(">8sHII")
_NAME = struct.Struct(">H")
_LOG = struct.Struct(">16sqqqI")
_SEGMENT = struct.Struct(">qqqqqq")
_CHECKED_FROM = _HEAD.size - 4  # the number of logs is under the checksum too


class LogSummary(NamedTuple):
    topic_id: bytes
    start_offset: int
    end_offset: int
    snapshot_offset: int
    segments: bytes  # as in the file: most logs are not opened for a long time

    @property
    def size(self) -> int:
        return sum(segment[1] for segment in _SEGMENT.iter_unpack(self.segments))


def summarize(log: Log, topic_id: bytes) -> LogSummary:
    segments = b"".join(
        _SEGMENT.pack(
            segment.base_offset, segment.size, segment.created_ms, segment.first_timestamp_ms,
            segment.max_timestamp_ms, segment.max_timestamp_offset,
        )
        for segment in log.segments
    )  # fmt: skip
    snapshot = UNKNOWN_SNAPSHOT if log.snapshot_offset is None else log.snapshot_offset
    return LogSummary(topic_id, log.start_offset, log.end_offset, snapshot, segments)


def dump(summaries: Mapping[str, LogSummary]) -> bytes:
    body = bytearray(len(summaries).to_bytes(4, "big"))
    for name, summary in summaries.items():
        encoded = name.encode()
        body += _NAME.pack(len(encoded)) + encoded
        body += _LOG.pack(*summary[:4], len(summary.segments) // _SEGMENT.size) + summary.segments
    return _HEAD.pack(_MAGIC, _VERSION, crc32c(body), 0)[:_CHECKED_FROM] + body


def parse(data: bytes) -> dict[str, LogSummary] | None:
    """None if the bytes are not what `dump` wrote."""
    if len(data) < _HEAD.size:
        return None
    magic, version, checksum, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum:
        return None
    summaries: dict[str, LogSummary] = {}
    position = _HEAD.size
    for _ in range(count):
        (length,) = _NAME.unpack_from(data, position)
        position += _NAME.size
        name = data[position : position + length].decode()
        topic_id, start, end, snapshot, segments = _LOG.unpack_from(data, position + length)
        position += length + _LOG.size
        stop = position + segments * _SEGMENT.size
        summaries[name] = LogSummary(topic_id, start, end, snapshot, data[position:stop])
        position = stop
    return summaries


def save(disk: Disk, data_dir: Path, summaries: Mapping[str, LogSummary]) -> None:
    """The last thing that a clean stop does, by the names of the folders."""
    disk.replace(data_dir / FILE_NAME, dump(summaries))


def load(disk: Disk, data_dir: Path) -> dict[str, LogSummary] | None:
    """None if the last stop was not a clean one. The file is gone when this returns."""
    data = disk.read(data_dir / FILE_NAME)
    if data is None:
        return None
    disk.remove(data_dir / FILE_NAME)
    disk.sync_directory(data_dir)
    return parse(data)


def open_log(disk: Disk, directory: Path, settings: LogSettings, summary: LogSummary) -> Log:
    """Touches no file: whatever is needed is opened when it is needed."""
    segments = []
    for base, size, created, first, newest, newest_at in _SEGMENT.iter_unpack(summary.segments):
        segment = Segment(disk, directory, base, size=size, created_ms=created)
        segment.first_timestamp_ms, segment.max_timestamp_ms, segment.max_timestamp_offset = first, newest, newest_at
        segment.sealed_to = size
        segments.append(segment)
    log = Log(disk, directory, settings, segments, summary.start_offset, summary.end_offset)
    log.snapshot_offset = None if summary.snapshot_offset == UNKNOWN_SNAPSHOT else summary.snapshot_offset
    return log


def close_cleanly(log: Log) -> None:
    """Everything on the device, and beside it what the next start would otherwise read batches for."""
    assert not log.staged, "what is staged must be written first"
    for segment in log.segments:
        if segment.sealed_to != segment.size or not segment.name_is_durable:
            segment.seal()
    if not log.segments and not log.producers.entries:
        log.snapshot_offset = NO_PRODUCERS
    elif log.snapshot_offset != log.end_offset:
        log.save_producers(log.end_offset)
        snapshots.prune(log.disk, log.directory, [segment.base_offset for segment in log.segments])
