"""What a file holds after an append, however it was written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.disk import GENTLY_AT_ONCE, KEPT_TOGETHER, PARTS_PER_WRITE, WRITTEN_AT_ONCE, Disk, NotOpened

PIECE = WRITTEN_AT_ONCE
Write = Callable[[int, Sequence[Any], int], int]


def numbered(sizes: Sequence[int]) -> list[bytes]:
    return [bytes([1 + number % 255]) * size for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "sizes",
    [
        [3, PIECE - 3],
        [PIECE + 1],
        [3, 4 * PIECE, 5],
        [PIECE, PIECE],
        [16_384] * 40,
        [1] * (2 * PARTS_PER_WRITE + 1),
    ],
)
def test_an_append_is_all_there_whatever_its_parts(tmp_path: Path, sizes: list[int]) -> None:
    file = Disk().open(tmp_path / "log", create=True)
    file.append([b"before"], 6)
    parts = numbered(sizes)
    file.append([memoryview(part) for part in parts], sum(sizes))
    assert file.size == 6 + sum(sizes)
    assert (tmp_path / "log").read_bytes() == b"before" + b"".join(parts)


def test_what_is_appended_gently_lets_others_have_the_core_between_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    whole: Write = os.pwritev

    def noted(fd: int, parts: Sequence[Any], position: int) -> int:
        written = whole(fd, parts, position)
        done.append(str(written))
        return written

    monkeypatch.setattr(os, "pwritev", noted)
    monkeypatch.setattr(os, "sched_yield", lambda: done.append("yields"))
    file = Disk().open(tmp_path / "log", create=True)
    parts = numbered([GENTLY_AT_ONCE + 1, 5])
    file.gently = True
    file.append(parts, GENTLY_AT_ONCE + 6)
    assert done == [str(GENTLY_AT_ONCE), "yields", "6", "yields"]
    file.gently = False
    file.append(parts, GENTLY_AT_ONCE + 6)
    assert done[4:] == [str(GENTLY_AT_ONCE + 6)]
    assert (tmp_path / "log").read_bytes() == 2 * b"".join(parts)


def test_what_the_disk_took_only_a_part_of_is_written_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Write = os.pwritev

    def half(fd: int, parts: Sequence[Any], position: int) -> int:
        together = b"".join(parts)
        return whole(fd, [together[: len(together) // 2]], position)

    monkeypatch.setattr(os, "pwritev", half)
    file = Disk().open(tmp_path / "log", create=True)
    parts = numbered([7, 3 * PIECE])
    file.append(parts, 7 + 3 * PIECE)
    assert (tmp_path / "log").read_bytes() == b"".join(parts)


def test_what_is_forgotten_goes_in_whole_pieces_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux keeps a page, or several that it keeps as one, of which it is not told to forget all."""
    asked: list[tuple[int, int]] = []
    advise = os.posix_fadvise

    def noted(fd: int, position: int, size: int, advice: int) -> None:
        asked.append((position, position + size))
        advise(fd, position, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    file = Disk().open(tmp_path / "log", create=True)
    data = os.urandom(3 * KEPT_TOGETHER + 5000)
    file.append([data], len(data))
    for position in (0, 5000, KEPT_TOGETHER, 3 * KEPT_TOGETHER + 4999):
        file.forget(position, len(data) - position)
    third = 3 * KEPT_TOGETHER
    assert asked == [(start, len(data)) for start in (0, 0, KEPT_TOGETHER, third)]
    assert file.read(len(data), 0) == data, "none of it was synced"


def test_a_piece_that_fails_leaves_nothing_of_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Write = os.pwritev
    written: list[int] = []

    def until_full(fd: int, parts: Sequence[Any], position: int) -> int:
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "no room")
        written.append(whole(fd, parts, position))
        return written[-1]

    file = Disk().open(tmp_path / "log", create=True)
    file.append([b"before"], 6)
    monkeypatch.setattr(os, "pwritev", until_full)
    with pytest.raises(OSError, match="no room"):
        file.append([b"x" * 4 * PIECE], 4 * PIECE)
    assert written == [PIECE] * 3
    assert file.size == 6
    assert (tmp_path / "log").read_bytes() == b"before"


@pytest.mark.parametrize("ask", [Disk.open, Disk.sync_directory], ids=["a file", "a folder"])
@pytest.mark.parametrize(
    ("code", "is_short"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ENOMEM, True), (errno.EIO, False)]
)
def test_what_there_was_no_descriptor_for_is_told_from_what_the_device_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Disk, Path], object], code: int, is_short: bool
) -> None:
    def open_nothing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", open_nothing)
    with pytest.raises(OSError, match=os.strerror(code)) as raised:
        ask(Disk(), tmp_path)
    monkeypatch.undo()
    assert raised.value.errno == code
    assert isinstance(raised.value, NotOpened) == is_short
