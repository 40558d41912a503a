"""Bytes that changed on the device after a clean stop are refused, and what stands before and behind them is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocol.record_batch import Record, build_batch
from penstock.storage import summary
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogSettings
from penstock.storage.segment import CorruptSegment

NOW_MS = 1_700_000_000_000
BATCHES = 6


def write(log: Log, count: int) -> None:
    for _ in range(count):
        offset = log.next_offset
        batch = build_batch([Record(offset, NOW_MS, None, b"x" * 50, ())], base_offset=offset)
        log.stage(batch, len(batch), offset, offset, NOW_MS, NOW_MS)
        log.write_staged()


def reopened(tmp_path: Path) -> tuple[Log, int]:
    """A log of a few batches, closed cleanly and opened again; and the size of a batch."""
    disk, folder = Disk(), tmp_path / "t-0"
    log = Log(disk, folder, LogSettings(), [], 0, 0)
    write(log, BATCHES)
    summary.close_cleanly(log)
    size = log.size // BATCHES
    return summary.open_log(disk, folder, LogSettings(), summary.summarize(log, bytes(16))), size


def flip(log: Log, position: int) -> None:
    path = log.segments[0].path("log")
    data = bytearray(path.read_bytes())
    data[position] ^= 0x04
    path.write_bytes(data)


@pytest.mark.parametrize("behind", [21, 40, 61, 80])
def test_a_changed_batch_is_refused_and_its_neighbours_are_served(tmp_path: Path, behind: int) -> None:
    log, size = reopened(tmp_path)
    flip(log, 3 * size + behind)
    served = b""
    for offset in range(3):
        found = log.read(offset, size, log.end)
        assert found is not None
        served += found.read()
    assert served == log.segments[0].path("log").read_bytes()[: 3 * size]
    with pytest.raises(CorruptSegment, match="checksum"):
        log.read(3, size, log.end)
    with pytest.raises(CorruptSegment, match="checksum"):
        log.read(2, 3 * size, log.end)
    found = log.read(4, 10 * size, log.end)
    assert found is not None
    assert found.size == 2 * size


def test_what_this_process_wrote_is_not_read_again_to_be_checked(tmp_path: Path) -> None:
    log, size = reopened(tmp_path)
    flip(log, 3 * size + 40)
    write(log, 2)
    found = log.read(BATCHES, 10 * size, log.end)
    assert found is not None
    assert found.size == 2 * size
    assert log.segments[0].checked_to == 0


def test_a_reader_in_order_has_each_batch_checked_once(tmp_path: Path) -> None:
    log, size = reopened(tmp_path)
    for offset in range(BATCHES):
        log.read(offset, size, log.end)
        assert log.segments[0].checked_to == (offset + 1) * size
    flip(log, 40)
    assert log.read(0, size, log.end) is not None, "it was checked before"
