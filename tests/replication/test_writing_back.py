"""What a follower copies from afar goes to the device a piece at a time, and its memory to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.replication.partition_settings import Flush
from penstock.storage.disk import File
from penstock.storage.log import LogSettings
from tests.replication.leading import ROOMY, Led, batch

PIECE = 1000
PIECES_MAX = 3


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What was given back, of which file."""
    found: list[tuple[str, int, int]] = []
    monkeypatch.setattr(File, "forget", lambda file, at, size: found.append((file.path.name, at, size)))
    return found


Forgotten = list[tuple[str, int, int]]


def in_small_pieces(path: Path, flush: Flush = Flush.OS, log: LogSettings = ROOMY) -> Led:
    led = Led(path, flush=flush, log=log)
    led.partition.syncs.piece_bytes = PIECE
    led.partition.syncs.pieces_max = PIECES_MAX
    return led


@pytest.mark.parametrize("flush", list(Flush))
def test_each_piece_is_given_back_once_and_only_when_it_is_on_the_device(
    tmp_path: Path, forgotten: Forgotten, flush: Flush
) -> None:
    led = in_small_pieces(tmp_path, flush)
    writing = led.partition.syncs
    led.write()
    led.committer.end_all()
    begin = led.partition.log.end.position
    assert writing.write_back()
    for _ in range(10):
        led.write(batch(1, size=PIECE // 3))
        before = list(forgotten)
        assert writing.write_back()
        assert forgotten == before
        led.committer.end_all()
    assert len(forgotten) == 3
    ends = [begin, *(at + size for _, at, size in forgotten)]
    assert [at for _, at, _ in forgotten] == ends[:-1], "nothing is left out, and nothing given back twice"
    assert all(size >= PIECE for _, _, size in forgotten)
    assert led.partition.log.end.position - ends[-1] < PIECE


def test_a_sync_that_fails_gives_nothing_back(tmp_path: Path, forgotten: Forgotten) -> None:
    led = in_small_pieces(tmp_path)
    led.write()
    assert led.partition.syncs.write_back()
    led.write(batch(1, size=PIECE))
    led.partition.syncs.write_back()
    led.committer.end_one(OSError(5, "Input/output error"))
    assert forgotten == []
    assert led.partition.error is not None


def test_no_more_is_to_come_while_the_device_is_slow(tmp_path: Path, forgotten: Forgotten) -> None:
    led = in_small_pieces(tmp_path)
    writing = led.partition.syncs
    led.write()
    room = [writing.write_back()]
    for _ in range(5):
        led.write(batch(1, size=PIECE))
        room.append(writing.write_back())
    assert room == [True, True, True, True, False, False]
    led.committer.end_all()
    assert writing.write_back()
    assert len(forgotten) == 5


def test_the_rest_of_a_segment_goes_with_it(tmp_path: Path, forgotten: Forgotten) -> None:
    led = in_small_pieces(tmp_path, log=LogSettings(segment_bytes=700))
    led.write()
    for _ in range(4):
        led.partition.syncs.write_back()
        led.write(batch(1, size=500))
    led.partition.syncs.write_back()
    led.write(batch(1, size=PIECE))
    led.partition.syncs.write_back()
    led.committer.end_all()
    assert len({name for name, _, _ in forgotten}) >= 4


def test_short_segments_go_to_the_device_though_none_of_them_is_a_whole_piece(tmp_path: Path) -> None:
    led = in_small_pieces(tmp_path, log=LogSettings(segment_bytes=300))
    writing = led.partition.syncs
    led.write()
    for _ in range(4 * PIECES_MAX):
        assert writing.write_back()
        led.write(batch(1, size=200))
        led.committer.end_all()


def test_once_it_is_in_sync_memory_is_kept(tmp_path: Path, forgotten: Forgotten) -> None:
    led = in_small_pieces(tmp_path)
    led.write()
    led.partition.syncs.write_back()
    led.write(batch(1, size=PIECE // 2))
    led.partition.syncs.keep()
    led.write(batch(1, size=PIECE // 2))
    assert led.partition.syncs.write_back()
    led.committer.end_all()
    assert forgotten == []


def test_what_comes_from_afar_is_written_gently_until_somebody_waits_for_it(tmp_path: Path) -> None:
    led = in_small_pieces(tmp_path, log=LogSettings(segment_bytes=700))
    led.write()
    led.partition.syncs.write_back()
    led.write(batch(1, size=500))
    led.write(batch(1, size=500))
    led.partition.syncs.write_back()
    active = led.partition.log.segments[-1]
    assert active.file.gently
    led.partition.syncs.keep()
    assert not active.file.gently
    led.partition.syncs.write_back()
    led.partition.lead(1, None)
    assert not active.file.gently
