"""The names of an archive's files, and what they cover.

    DIR/topic=orders/day=2026-11-16/orders-00003-00000000000000001000-00000000000000002000.parquet
    DIR/topic=orders/day=2026-11-16/orders-00003-00000000000000002000-00000000000000003000.1of2.parquet
    DIR/topic=orders/day=2026-11-17/orders-00003-00000000000000002000-00000000000000003000.2of2.parquet
    DIR/_penstock/empty/topic=orders/orders-00003-00000000000000003000-00000000000000003002
    DIR/_penstock/merged/topic=orders/day=2026-11-16/orders-00003-00000000000000000000-00000000000000002000.merged

A file answers for its range of offsets, start and stop, of one partition. A range whose records fall on several days
has a file for each day, and counts only when all of them are there. A range without any record (aborted, or compacted
away) has an empty object among our own, because it belongs to no day. A file that others were merged into is among our
own at first, where readers that know nothing of ranges do not see it beside them; its name does not end like theirs
either, because some look everywhere.

A range that lies within another one is superseded: it was merged into that one, or is about to be deleted. So whatever
order files come and go in, each record is in exactly one file that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipeline.archive import durably
from penstock.pipeline.archive.location import Location, parse_location
from penstock.pipeline.problem import PipelineError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem

OURS = "_penstock"  # readers such as DuckDB, pandas and Spark pass over names that begin so
MERGED = f"{OURS}/merged"  # files that others were merged into, while those are still there
NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d{5,10})-(?P<start>\d{20})-(?P<stop>\d{20})")
SUFFIX = re.compile(r"(?:\.(?P<part>[1-9]\d{0,4})of(?P<parts>[1-9]\d{0,4}))?\.(?P<ending>parquet|merged)")
DAY = re.compile(r"day=(\d{4}-\d\d-\d\d)")
NOTE_BYTES_MAX = 64
TOPIC_ID_BYTES = 16
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
    is_ours: bool = False  # among our own, where others do not look


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

    @property
    def is_ours(self) -> bool:
        return any(each.is_ours for each in self.files)

    @property
    def since_s(self) -> float:
        """When it was whole."""
        return max((each.modified_s for each in self.files), default=0.0)

    @property
    def paths(self) -> tuple[str, ...]:
        return (*(each.path for each in self.files), *([self.marker] if self.marker else []))


@dataclass(frozen=True, slots=True)
class Superseded:
    """A file, or an empty object, whose records are in a piece, of another name."""

    path: str
    by: Range
    partition: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Resolved:
    pieces: list[Piece]  # by partition and start
    superseded: list[Superseded]
    incomplete: list[ArchivedFile]  # of ranges that lack the files of some days
    overlaps: list[tuple[Piece, Piece]]  # what must not be: the same offsets in two pieces


# ---- names


def stem(topic: str, partition: int, start: int, stop: int) -> str:
    assert 0 <= start < stop, f"{topic}-{partition}: a range from {start} to {stop}"
    return f"{topic}-{partition:05d}-{start:020d}-{stop:020d}"


def file_name(
    topic: str, partition: int, start: int, stop: int, part: int = 1, parts: int = 1, *, is_ours: bool = False
) -> str:
    assert 1 <= part <= parts
    suffix = f".{part}of{parts}" if parts > 1 else ""
    return f"{stem(topic, partition, start, stop)}{suffix}.{'merged' if is_ours else 'parquet'}"


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
    place = named["topic"], day[1], int(named["partition"])
    is_ours = suffix["ending"] == "merged"
    return ArchivedFile(path, *place, start, stop, size, part, parts, modified_s, is_ours)


def parse_marker(path: str) -> Marker | None:
    named = NAME.fullmatch(path.rpartition("/")[2])
    if named is None or int(named["start"]) >= int(named["stop"]):
        return None
    return Marker(path, int(named["partition"]), int(named["start"]), int(named["stop"]))


# ---- what counts


_Whole = tuple[Piece, float]  # and when its range was whole first, which it may be under two names
_Key = tuple[int, int, int]  # partition, start and stop
_Set = tuple[bool, int]  # whether it is among our own, and the number of files that the range is said to have


def resolve(files: Iterable[ArchivedFile], markers: Iterable[Marker] = ()) -> Resolved:
    """Which of the files of one topic count."""
    found = Resolved([], [], [], [])
    whole: list[_Whole] = []
    empty = {(each.partition, each.start, each.stop): each for each in markers}
    for key, of_range in _by_range(files).items():
        sets = []
        for (_, parts), each in sorted(of_range.items()):
            if _is_whole(parts, each):
                sets.append(Piece(*key, tuple(sorted(each, key=lambda file: file.part))))
            else:
                found.incomplete.extend(each)
        if sets:
            first, *others = sets
            others += [Piece(*key, (), empty.pop(key).path)] if key in empty else []
            for other in others:
                _supersede(found, other, first, first.since_s)
            whole.append((first, min(piece.since_s for piece in sets)))
    whole += [(Piece(*key, (), marker.path), 0.0) for key, marker in empty.items()]
    _keep_outermost(whole, found)
    return found


def _by_range(files: Iterable[ArchivedFile]) -> dict[_Key, dict[_Set, list[ArchivedFile]]]:
    found: dict[_Key, dict[_Set, list[ArchivedFile]]] = {}
    for each in files:
        of_range = found.setdefault((each.partition, each.start, each.stop), {})
        of_range.setdefault((each.is_ours, each.parts), []).append(each)
    return found


def _is_whole(parts: int, files: list[ArchivedFile]) -> bool:
    return len(files) == parts and {each.part for each in files} == set(range(1, parts + 1))


def _supersede(found: Resolved, piece: Piece, by: Piece, since_s: float) -> None:
    found.superseded.extend(Superseded(each, (by.start, by.stop), by.partition, since_s) for each in piece.paths)


def _keep_outermost(whole: list[_Whole], found: Resolved) -> None:
    last: _Whole | None = None  # that reaches furthest
    for each in sorted(whole, key=lambda each: (each[0].partition, each[0].start, -each[0].stop)):
        piece = each[0]
        if last is not None and last[0].partition == piece.partition:
            if piece.stop <= last[0].stop:
                _supersede(found, piece, last[0], last[1])
                continue
            if piece.start < last[0].stop:
                found.overlaps.append((last[0], piece))
        found.pieces.append(piece)
        last = each


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

    def day_folder(self, topic: str, day: str, *, is_ours: bool = False) -> str:
        return "/".join((self.base(is_ours=is_ours), f"topic={topic}", f"day={day}"))

    def base(self, *, is_ours: bool = False) -> str:
        """The folder that has the folders of topics and days."""
        return self.path(MERGED) if is_ours else self.location.root

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
            files = [*self._parsed(topic, is_ours=False), *self._parsed(topic, is_ours=True)]
            listed = self._list(self.empty_folder(topic))
            markers = [marker for each in listed if (marker := parse_marker(each.path)) is not None]
            if self.generation(topic) == before:
                return resolve(files, markers)
        raise PipelineError(f"{self.location.given}: files of {topic!r} change as fast as they are listed")

    def _parsed(self, topic: str, *, is_ours: bool) -> Iterator[ArchivedFile]:
        for each in self._list(f"{self.base(is_ours=is_ours)}/topic={topic}"):
            parsed = parse_file(each.path, each.size, _modified_s(each))
            if parsed is not None and parsed.topic == topic and parsed.is_ours is is_ours:
                yield parsed

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
        """Changes before anything is deleted that other files replace, and after those are in place."""
        return self._read_note("generation", topic)

    def set_generation(self, topic: str, generation: bytes) -> None:
        self._write_note("generation", topic, generation)

    # ---- topics

    def topic_id(self, topic: str) -> bytes:
        """Of the topic that is archived under this name; empty while nobody has said."""
        found = self._read_note("topic-id", topic)
        return found if len(found) == TOPIC_ID_BYTES else b""  # HDFS shows a file before it is whole

    def set_topic_id(self, topic: str, topic_id: bytes) -> None:
        self._write_note("topic-id", topic, topic_id)

    def _read_note(self, kind: str, topic: str) -> bytes:
        try:
            with self.filesystem.open_input_stream(self.path(OURS, kind, topic)) as stream:
                return bytes(stream.read(NOTE_BYTES_MAX))
        except FileNotFoundError:
            return b""

    def _write_note(self, kind: str, topic: str, note: bytes) -> None:
        folder = self.path(OURS, kind)
        if self.location.is_local:
            durably.make_folder(folder)
            durably.write(f"{folder}/{topic}", note)
            return
        if self.location.scheme != "s3":
            self.filesystem.create_dir(folder, recursive=True)
        with self.filesystem.open_output_stream(f"{folder}/{topic}") as stream:
            stream.write(note)

    # ---- files that go

    def is_gone(self, file: ArchivedFile) -> bool:
        """Whether a failure to read it was that: an object store says so in the words of any other failure."""
        from pyarrow.fs import FileType

        return bool(self.filesystem.get_file_info([file.path])[0].type != FileType.File)


def coverage_of(pieces: Iterable[Piece]) -> dict[int, list[Range]]:
    ranges: dict[int, list[Range]] = {}
    for each in pieces:
        ranges.setdefault(each.partition, []).append((each.start, each.stop))
    return {partition: merge(each) for partition, each in sorted(ranges.items())}


def another_topic(archive: Archive, topic: str) -> PipelineError:
    """A topic that was deleted and made anew has the same offsets again, of other records."""
    return PipelineError(
        f"{archive.location.given} holds another topic {topic!r}, which was deleted since: its files and the log are "
        "not of one topic. Archive the new one to another place; the files can be read as Parquet"
    )


def _modified_s(info: FileInfo) -> float:
    return info.mtime_ns / 1e9 if info.mtime_ns is not None else 0.0
