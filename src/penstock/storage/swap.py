"""Putting a compacted segment in the place of those it was made from, so that a crash finds the one or the others.

A compacted segment is named by the range of offsets that it stands for, and goes through these names:

    <base>-<end>.log.cleaned     written and synced; a crash removes it
    <base>-<end>.log.swap        decided; a crash goes on from here
    <base>.log                   in place

Between the last two, all other segments with a base offset in the range are removed, and that is made durable before
the swap file takes its final name: as long as any of them may be there, so is the file that says they are old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.segment import file_name

_NAME = re.compile(r"(\d{20})-(\d{20})\.(log|index|aborted)\.(cleaned|swap)")


class OffsetRange(NamedTuple):
    base: int
    end: int

    def path(self, directory: Path, suffix: str) -> Path:
        return directory / f"{self.base:020d}-{self.end:020d}.{suffix}"


def replace_segments(disk: Disk, directory: Path, ranges: Iterable[OffsetRange]) -> None:
    """The cleaned files of the ranges must have been synced, and their names too."""
    ranges = list(ranges)
    names = set(disk.names(directory))
    for each in ranges:
        if each.path(directory, "aborted.cleaned").name in names:
            disk.rename(each.path(directory, "aborted.cleaned"), each.path(directory, "aborted.swap"))
        disk.rename(each.path(directory, "index.cleaned"), each.path(directory, "index.swap"))
        disk.rename(each.path(directory, "log.cleaned"), each.path(directory, "log.swap"))
    disk.sync_directory(directory)
    _finish(disk, directory, ranges)


def finish_interrupted(disk: Disk, directory: Path) -> None:
    """At recovery: what was decided is done, what was not is removed."""
    found: dict[tuple[OffsetRange, str], set[str]] = {}
    for name in disk.names(directory):
        if match := _NAME.fullmatch(name):
            base, end, kind, state = match.groups()
            found.setdefault((OffsetRange(int(base), int(end)), state), set()).add(kind)
    decided = sorted(each for (each, state), kinds in found.items() if state == "swap" and "log" in kinds)
    for each in decided:
        for kind in ("index", "aborted"):
            if kind in found.get((each, "cleaned"), ()):  # the crash kept only some of the new names
                disk.rename(each.path(directory, f"{kind}.cleaned"), each.path(directory, f"{kind}.swap"))
    if decided:
        _finish(disk, directory, decided)
    for each, state in found:
        remove(disk, directory, each, state)


def remove(disk: Disk, directory: Path, each: OffsetRange, state: str = "cleaned") -> None:
    for kind in ("log", "index", "aborted"):
        disk.remove(each.path(directory, f"{kind}.{state}"))


def _finish(disk: Disk, directory: Path, ranges: list[OffsetRange]) -> None:
    names = set(disk.names(directory))
    bases = [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.log", name)]
    indexed = [each for each in ranges if each.path(directory, "index.swap").name in names]
    for each in ranges:
        if each in indexed:  # else it has its final name already
            disk.remove(directory / file_name(each.base, "index"))
            disk.remove(directory / file_name(each.base, "aborted"))
        for base in bases:
            if each.base < base < each.end:
                for kind in ("log", "index", "aborted"):
                    disk.remove(directory / file_name(base, kind))
    disk.sync_directory(directory)
    for each in ranges:
        if each in indexed:
            disk.rename(each.path(directory, "index.swap"), directory / file_name(each.base, "index"))
        if each.path(directory, "aborted.swap").name in names:
            disk.rename(each.path(directory, "aborted.swap"), directory / file_name(each.base, "aborted"))
        disk.rename(each.path(directory, "log.swap"), directory / file_name(each.base, "log"))
