"""Whether the replicas of every partition hold the same bytes, read from the folders of brokers that are stopped.

    python -m tests.history.replicas DATA_FOLDER...

Replicas may begin and end at different offsets, since each deletes old segments by itself and some are behind when they
stop. Over the offsets that two of them share, every batch must be the same byte for byte. Where segments begin is each
one's own business. Topics that were compacted are left out: there each replica cleans in its own time.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from penstock.replication.partition import TOPIC_ID_FILE
from penstock.storage import checkpoint
from penstock.storage.disk import Disk
from penstock.storage.segment import CorruptSegment, Segment

_PARTITION = re.compile(r".+-\d+")
_LOG = re.compile(r"(\d{20})\.log")


class StoredBatch(NamedTuple):
    base_offset: int
    last_offset: int
    data: bytes


@dataclass(slots=True)
class Comparison:
    partitions: int = 0  # that more than one broker holds
    batches: int = 0  # that were compared
    bytes: int = 0
    differences: list[str] = field(default_factory=list)  # the first of each pair of replicas
    behind: dict[str, int] = field(default_factory=dict)  # replicas that lack so many of the last offsets

    @property
    def is_identical(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        word = "DIFFERENT" if self.differences else "IDENTICAL"
        held = f"{self.partitions} partitions on several brokers"
        lines = [f"{word}: {held}, {self.batches} batches and {self.bytes} bytes compared"]
        lines += [f"  {difference}" for difference in self.differences]
        lines += [f"  {replica} is {count} offsets behind" for replica, count in sorted(self.behind.items())]
        return "\n".join(lines)


def replicas_identical(folders: Sequence[Path]) -> Comparison:
    replicas: dict[tuple[str, bytes | None], list[Path]] = defaultdict(list)
    disk = Disk()
    for folder in folders:
        for name in sorted(disk.names(folder)):
            directory = folder / name
            if _PARTITION.fullmatch(name) and directory.is_dir():
                replicas[name, disk.read(directory / TOPIC_ID_FILE)].append(directory)
    comparison = Comparison()
    for _, directories in sorted(replicas.items(), key=lambda item: item[0][0]):
        was_compacted = any((each / checkpoint.CLEANER_OFFSET).exists() for each in directories)
        if len(directories) > 1 and not was_compacted:
            comparison.partitions += 1
            _compare(directories, comparison)
    return comparison


def _compare(directories: list[Path], comparison: Comparison) -> None:
    ends = {directory: _end_offset(directory) for directory in directories}
    longest = max(directories, key=lambda directory: ends[directory])
    for other in directories:
        if other == longest:
            continue
        if ends[other] < ends[longest]:
            comparison.behind[str(other)] = ends[longest] - ends[other]
        if difference := _first_difference(longest, other, comparison):
            comparison.differences.append(difference)


def _first_difference(one: Path, other: Path, comparison: Comparison) -> str | None:
    try:
        start = max(_start_offset(one), _start_offset(other))
        pairs = zip(_batches(one, start), _batches(other, start), strict=False)
        for ours, theirs in pairs:
            if ours != theirs:
                offset = min(ours.base_offset, theirs.base_offset)
                return f"{one} and {other} differ at offset {offset}: {_how(ours, theirs)}"
            comparison.batches += 1
            comparison.bytes += len(ours.data)
    except CorruptSegment as damage:
        return str(damage)
    return None


def _how(ours: StoredBatch, theirs: StoredBatch) -> str:
    if (ours.base_offset, ours.last_offset) != (theirs.base_offset, theirs.last_offset):
        return f"{ours.base_offset} to {ours.last_offset} against {theirs.base_offset} to {theirs.last_offset}"
    size = min(len(ours.data), len(theirs.data))
    at = next((at for at in range(size) if ours.data[at] != theirs.data[at]), size)
    return f"byte {at} of the batch, of {len(ours.data)} and {len(theirs.data)} bytes"


def _segments(directory: Path) -> Iterator[Segment]:
    disk = Disk()
    for name in sorted(disk.names(directory)):
        if match := _LOG.fullmatch(name):
            yield Segment(disk, directory, int(match[1]), size=disk.size(directory / name), created_ms=0)


def _batches(directory: Path, start: int) -> Iterator[StoredBatch]:
    """From the one that holds the offset on. Raises CorruptSegment where there is something else."""
    expected = None
    for segment in _segments(directory):
        for batch in segment.batches(0):
            if expected is not None and batch.base_offset < expected:
                raise CorruptSegment(f"{directory}: offset {batch.base_offset} stands behind {expected - 1}")
            expected = batch.last_offset + 1
            if batch.last_offset >= start:
                data = segment.file.read(batch.size, batch.position)
                yield StoredBatch(batch.base_offset, batch.last_offset, data)
        segment.close()


def _start_offset(directory: Path) -> int:
    first = next(islice(_batches(directory, 0), 1), None)
    return first.base_offset if first is not None else 0


def _end_offset(directory: Path) -> int:
    """Behind the last batch that can be read."""
    end = 0
    for segment in _segments(directory):
        try:
            for batch in segment.batches(0):
                end = batch.last_offset + 1
        except CorruptSegment:
            pass  # the comparison says where
        segment.close()
    return end


def main() -> int:
    comparison = replicas_identical([Path(argument) for argument in sys.argv[1:]])
    print(comparison)
    return 0 if comparison.is_identical else 1


if __name__ == "__main__":
    sys.exit(main())
