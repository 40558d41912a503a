"""The names of an archive's files, and what they cover.

    DIR/topic=orders/day=2026-11-16/orders-00003-00000000000000001000-00000000000000002000.parquet
    DIR/topic=orders/day=2026-11-16/orders-00003-00000000000000002000-00000000000000003000.1of2.parquet
    DIR/topic=orders/day=2026-11-17/orders-00003-00000000000000002000-00000000000000003000.2of2.parquet
    DIR/_penstock/empty/topic=orders/orders-00003-00000000000000003000-00000000000000003002

A file answers for its range of offsets, start and stop, of one partition. A range whose records fall on several days
has a file for each day, and counts only when all of them are there. A range without any record (aborted, or compacted
away) has an empty object among our own, because it belongs to no day.

A range that lies within another one is superseded: it was merged into that one, or is about to be deleted. So whatever
order files come and go in, each record is in exactly one file that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipeline.archive.location import Location, parse_location
from penstock.pipeline.problem import PipelineError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem

OURS = "_penstock"  # readers such as DuckDB, pandas and Spark pass over names that begin so
NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d{5,10})-(?P<start>\d{20})-(?P<stop>\d{20})")
SUFFIX = re.compile(r"(?:\.(?P<part>[1-9]\d{0,4})of(?P<parts>[1-9]\d{0,4}))?\.parquet")
DAY = re.compile(r"day=(\d{4}-\d\d-\d\d)")
NOTE_BYTES_MAX = 64
LISTINGS_MAX = 20  # of a topic that is compacted again and again meanwhile

Range = tuple[int, int]  # start, and the first offset that is not in it


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    path: str  # as the archive's file system knows it
    topic: str
    day: str  # YYYY-MM-DD, UTC
    partition: int
    start: int
    stop: int
    size: int
    part: int = 1
    parts: int = 1
    modified_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Marker:
    """The empty object of a range without records."""

    path: str
    partition: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A range that is covered, and its files, one for each day; none if it has no records."""

    partition: int
    start: int
    stop: int
    files: tuple[ArchivedFile, ...]
    marker: str | None = None  # the path of the object that stands for a range without files

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def days(self) -> tuple[str, ...]:
        return tuple(each.day for each in self.files)


@dataclass(frozen=True, slots=True)
class Resolved:
    pieces: list[Piece]  # by partition and start
    superseded: list[str]  # paths whose records are in a piece, of another name
    incomplete: list[ArchivedFile]  # of ranges that lack the files of some days
    overlaps: list[tuple[Piece, Piece]]  # what must not be: the same offsets in two pieces


# ---- names


def stem(topic: str, partition: int, start: int, stop: int) -> str:
    assert 0 <= start < stop, f"{topic}-{partition}: a range from {start} to {stop}"
    return f"{topic}-{partition:05d}-{start:020d}-{stop:020d}"


def file_name(topic: str, partition: int, start: int, stop: int, part: int = 1, parts: int = 1) -> str:
    assert 1 <= part <= parts
    suffix = f".{part}of{parts}" if parts > 1 else ""
    return f"{stem(topic, partition, start, stop)}{suffix}.parquet"


def parse_file(path: str, size: int, modified_s: float = 0.0) -> ArchivedFile | None:
    """None for whatever is not ours."""
    folders, _, name = path.rpartition("/")
    day = DAY.fullmatch(folders.rpartition("/")[2])
    named = NAME.match(name)
    if day is None or named is None:
        return None
    suffix = SUFFIX.fullmatch(name, named.end())
    start, stop = int(named["start"]), int(named["stop"])
    if suffix is None or start >= stop:
        return None
    part, parts = int(suffix["part"] or 1), int(suffix["parts"] or 1)
    if part > parts:
        return None
    partition = int(named["partition"])
    return ArchivedFile(path, named["topic"], day[1], partition, start, stop, size, part, parts, modified_s)


def parse_marker(path: str) -> Marker | None:
    named = NAME.fullmatch(path.rpartition("/")[2])
    if named is None or int(named["start"]) >= int(named["stop"]):
        return None
    return Marker(path, int(named["partition"]), int(named["start"]), int(named["stop"]))


# ---- what counts


def resolve(files: Iterable[ArchivedFile], markers: Iterable[Marker] = ()) -> Resolved:
    """Which of the files of one topic count."""
    found = Resolved([], [], [], [])
    whole: list[Piece] = []
    empty = {(each.partition, each.start, each.stop): each for each in markers}
    for key, of_range in _by_range(files).items():
        sets = [each for parts, each in sorted(of_range.items()) if _is_whole(parts, each)]
        for each in of_range.values():
            if each not in sets:
                found.incomplete.extend(each)
        if sets:
            whole.append(Piece(*key, tuple(sorted(sets[0], key=lambda file: file.part))))
            found.superseded.extend(file.path for each in sets[1:] for file in each)
            if key in empty:
                found.superseded.append(empty.pop(key).path)
    whole += [Piece(*key, (), marker.path) for key, marker in empty.items()]
    _keep_outermost(whole, found)
    return found


def _by_range(files: Iterable[ArchivedFile]) -> dict[tuple[int, int, int], dict[int, list[ArchivedFile]]]:
    """By partition, start and stop, and then by the number of files that the range is said to have."""
    found: dict[tuple[int, int, int], dict[int, list[ArchivedFile]]] = {}
    for each in files:
        found.setdefault((each.partition, each.start, each.stop), {}).setdefault(each.parts, []).append(each)
    return found


def _is_whole(parts: int, files: list[ArchivedFile]) -> bool:
    return len(files) == parts and {each.part for each in files} == set(range(1, parts + 1))


def _keep_outermost(whole: list[Piece], found: Resolved) -> None:
    last: Piece | None = None  # that reaches furthest
    for piece in sorted(whole, key=lambda each: (each.partition, each.start, -each.stop)):
        if last is not None and last.partition == piece.partition:
            if piece.stop <= last.stop:
                found.superseded.extend(each.path for each in piece.files)
                found.superseded.extend([piece.marker] if piece.marker else [])
                continue
            if piece.start < last.stop:
                found.overlaps.append((last, piece))
        found.pieces.append(piece)
        last = piece


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Ranges that touch or overlap as one."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def uncovered(start: int, stop: int, covered: Iterable[Range]) -> list[Range]:
    """The parts of a range that nothing covers. `covered` is merged."""
    found = []
    for first, last in covered:
        if last <= start or first >= stop:
            continue
        if first > start:
            found.append((start, first))
        start = last
    return [*found, (start, stop)] if start < stop else found


def first_uncovered(offset: int, covered: Iterable[Range]) -> int:
    """The offset, or the end of the range that it is in. `covered` is merged."""
    for start, stop in covered:
        if start <= offset < stop:
            return stop
    return offset


# ---- an archive


class Archive:
    """What is in a location. It can be sent to workers."""

    def __init__(self, location: str, *, s3_endpoint: str | None = None) -> None:
        self.location: Location = parse_location(location, s3_endpoint)
        self._filesystem: FileSystem | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.location, "_filesystem": None}

    @property
    def filesystem(self) -> FileSystem:
        if self._filesystem is None:
            self._filesystem = self.location.open()
        return self._filesystem

    def path(self, *parts: str) -> str:
        return "/".join((self.location.root, *parts))

    def day_folder(self, topic: str, day: str) -> str:
        return self.path(f"topic={topic}", f"day={day}")

    def empty_folder(self, topic: str) -> str:
        return self.path(OURS, "empty", f"topic={topic}")

    def spark_path(self, file: ArchivedFile) -> str:
        return self.location.spark_path(file.path)

    def open(self, file: ArchivedFile) -> NativeFile:
        return self.filesystem.open_input_file(file.path)

    # ---- what is there

    def topics(self) -> list[str]:
        names = (each.base_name for each in self._list(self.location.root, recursive=False, files=False))
        empty = (each.base_name for each in self._list(self.path(OURS, "empty"), recursive=False, files=False))
        return sorted({name.removeprefix("topic=") for name in (*names, *empty) if name.startswith("topic=")})

    def resolved(self, topic: str) -> Resolved:
        """A listing that a compaction changes while it is made is made again."""
        for _ in range(LISTINGS_MAX):
            before = self.generation(topic)
            files = [
                parsed
                for each in self._list(self.path(f"topic={topic}"))
                if (parsed := parse_file(each.path, each.size, _modified_s(each))) is not None and parsed.topic == topic
            ]
            listed = self._list(self.empty_folder(topic))
            markers = [marker for each in listed if (marker := parse_marker(each.path)) is not None]
            if self.generation(topic) == before:
                return resolve(files, markers)
        raise PipelineError(f"{self.location.given}: files of {topic!r} change as fast as they are listed")

    def pieces(self, topic: str) -> list[Piece]:
        return self.resolved(topic).pieces

    def files(self, topic: str) -> list[ArchivedFile]:
        """Those that count, by partition and offset: each record is in one of them."""
        return [file for piece in self.pieces(topic) for file in piece.files]

    def coverage(self, topic: str) -> dict[int, list[Range]]:
        return coverage_of(self.pieces(topic))

    def _list(self, folder: str, *, recursive: bool = True, files: bool = True) -> list[FileInfo]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(folder, recursive=recursive, allow_not_found=True)
        wanted = FileType.File if files else FileType.Directory
        return [each for each in self.filesystem.get_file_info(selector) if each.type == wanted]

    # ---- compactions

    def generation(self, topic: str) -> bytes:
        """Changes after a compaction put its files in place, and before it deletes what they replace."""
        return self._read_note("generation", topic)

    def set_generation(self, topic: str, generation: bytes) -> None:
        self._write_note("generation", topic, generation)

    # ---- topics

    def topic_id(self, topic: str) -> bytes:
        """Of the topic that is archived under this name; empty while nobody has said."""
        return self._read_note("topic-id", topic)

    def set_topic_id(self, topic: str, topic_id: bytes) -> None:
        self._write_note("topic-id", topic, topic_id)

    def _read_note(self, kind: str, topic: str) -> bytes:
        try:
            with self.filesystem.open_input_stream(self.path(OURS, kind, topic)) as stream:
                return bytes(stream.read(NOTE_BYTES_MAX))
        except FileNotFoundError:
            return b""

    def _write_note(self, kind: str, topic: str, note: bytes) -> None:
        if self.location.scheme != "s3":
            self.filesystem.create_dir(self.path(OURS, kind), recursive=True)
        with self.filesystem.open_output_stream(self.path(OURS, kind, topic)) as stream:
            stream.write(note)


def coverage_of(pieces: Iterable[Piece]) -> dict[int, list[Range]]:
    ranges: dict[int, list[Range]] = {}
    for each in pieces:
        ranges.setdefault(each.partition, []).append((each.start, each.stop))
    return {partition: merge(each) for partition, each in sorted(ranges.items())}


def _modified_s(info: FileInfo) -> float:
    return info.mtime_ns / 1e9 if info.mtime_ns is not None else 0.0
