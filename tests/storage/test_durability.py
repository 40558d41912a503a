"""A machine that loses power: what was synced is there afterwards, and what is there is right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage import summary, truncation
from penstock.storage.log import Log, LogSettings
from penstock.storage.recovery import recover
from tests.storage.disks import ForgetfulDisk, PowerFailure
from tests.storage.logs import NOW_MS, append, batch_at, new_log, offsets, read_all, seal_all, sync

SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=100)


def test_a_file_loses_what_was_not_synced_and_a_name_too(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    disk.make_directory(tmp_path / "a")
    for name in ("named", "unnamed"):
        file = disk.open(tmp_path / "a" / name, create=True)
        file.append([b"synced"], 6)
        file.sync()
        if name == "named":
            disk.sync_directory(tmp_path / "a")
    disk.sync_directory(tmp_path)
    file = disk.open(tmp_path / "a" / "named")
    file.append([b" not"], 4)
    seen = set()
    for _ in range(20):
        disk.crash()
        seen.add((tmp_path / "a" / "named").read_bytes())
        assert not (tmp_path / "a" / "unnamed").exists()
        disk.open(tmp_path / "a" / "named").truncate(6)
        file = disk.open(tmp_path / "a" / "named")
        file.sync()
        file.append([b" not"], 4)
    assert all(content.startswith(b"synced") for content in seen)
    assert {b"synced", b"synced not"} <= seen


def test_a_folder_whose_name_was_not_synced_vanishes_whole(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    disk.make_directory(tmp_path / "a")
    disk.replace(tmp_path / "a" / "file", b"content")
    (tmp_path / "not-ours").write_bytes(b"x")
    disk.crash()
    assert [path.name for path in tmp_path.iterdir()] == ["not-ours"]


def test_a_replaced_file_has_its_old_bytes_or_its_new_ones(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    disk.replace(tmp_path / "file", b"old")
    disk.stop_after(1)
    with pytest.raises(PowerFailure):
        disk.replace(tmp_path / "file", b"new")
    disk.crash()
    assert (tmp_path / "file").read_bytes() == b"old"
    disk.replace(tmp_path / "file", b"new")
    disk.crash()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_synced_segment_of_a_new_partition_is_there_with_its_folder(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    log = new_log(tmp_path / "t-0", SETTINGS, disk)
    append(log, batch_at(0, 3))
    sync(log)
    disk.crash()
    assert offsets(recover(disk, tmp_path / "t-0", SETTINGS, NOW_MS).log) == [0, 1, 2]


def test_a_clean_stop_is_clean_after_a_power_failure_too(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    log = new_log(tmp_path / "t-0", SETTINGS, disk)
    for n in range(20):
        append(log, batch_at(n, producer=(1, 0, n)))
    summary.close_cleanly(log)
    summary.save(disk, tmp_path, {"t-0": summary.summarize(log, bytes(16))})
    disk.crash()
    found = summary.load(disk, tmp_path)
    assert found is not None
    again = summary.open_log(disk, tmp_path / "t-0", SETTINGS, found["t-0"])
    assert offsets(again) == list(range(20))
    assert again.producers.entries[1].last_sequence == 19
    disk.crash()
    assert summary.load(disk, tmp_path) is None  # it was taken away for good


@pytest.mark.parametrize("keep_names", [0.0, 0.5, 1.0])
def test_a_crash_while_segments_are_deleted_leaves_no_hole_and_no_older_start(
    tmp_path: Path, keep_names: float
) -> None:
    for step in range(12):
        folder = tmp_path / f"{step}"
        folder.mkdir()
        disk = ForgetfulDisk(folder, seed=step)
        log = new_log(folder / "t-0", SETTINGS, disk)
        for n in range(30):
            append(log, batch_at(n, producer=(1, 0, n)))
        seal_all(log)
        sync(log)
        dropped = log.delete_before(30, NOW_MS)
        disk.stop_after(step)
        try:
            log.discard(dropped)
        except PowerFailure:
            pass
        disk.crash(keep_names)
        again = recover(disk, folder / "t-0", SETTINGS, NOW_MS)
        assert not again.damaged
        assert again.log.end_offset == 30
        assert offsets(again.log) == list(range(again.log.start_offset, 30))
        assert again.log.start_offset in (0, 30)
        assert again.log.producers.entries[1].last_sequence == 29


@pytest.mark.parametrize("keep_names", [0.0, 0.5, 1.0])
def test_a_crash_while_a_log_is_truncated_leaves_it_longer_at_most(tmp_path: Path, keep_names: float) -> None:
    for step in range(30):
        folder = tmp_path / f"{step}"
        folder.mkdir()
        disk = ForgetfulDisk(folder, seed=step)
        log = new_log(folder / "t-0", SETTINGS, disk)
        for n in range(30):
            append(log, batch_at(n, epoch=0))
        seal_all(log)
        sync(log)
        disk.stop_after(step)
        done = False
        try:
            truncation.truncate_to(log, 11)
            append(log, batch_at(11, size=33))
            sync(log)
            done = True
        except PowerFailure:
            pass
        disk.crash(keep_names)
        again = recover(disk, folder / "t-0", SETTINGS, NOW_MS)
        found = offsets(again.log)
        assert found == list(range(len(found)))
        assert len(found) >= 11
        if done:
            assert len(found) == 12
            assert len(read_all(again.log)[11].value or b"") == 33


def _work(log: Log, chance: random.Random, synced: int) -> int:
    """One thing that a partition does with its log; returns up to where it is durable."""
    action = chance.randrange(10)
    if action < 6:
        batches = [batch_at(log.next_offset, 1, size=chance.randrange(200), producer=(1, 0, log.next_offset % 2**31))]
        append(log, *batches)
    elif action < 8:
        sync(log)
        return log.end_offset
    elif action == 8:
        seal_all(log)
    else:
        segment = log.segments[-1] if log.segments else None
        if segment is not None:
            segment.sync()
            segment.save_index(segment.size)
    return synced


@given(seed=st.integers(0, 2**32), keep_names=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=120, deadline=None)
def test_nothing_that_was_synced_is_lost_and_nothing_is_made_up(
    tmp_path_factory: pytest.TempPathFactory, seed: int, keep_names: float
) -> None:
    folder = tmp_path_factory.mktemp("power")
    chance = random.Random(seed)
    disk = ForgetfulDisk(folder, seed)
    log = new_log(folder / "t-0", SETTINGS, disk)
    for _ in range(3):
        start, synced = log.start_offset, log.end_offset
        disk.stop_after(chance.randrange(5, 60))
        try:
            for _ in range(chance.randrange(40)):
                synced = _work(log, chance, synced)
        except PowerFailure:
            pass
        disk.stop_after(None)
        written = read_all(log)
        disk.crash(keep_names)
        result = recover(disk, folder / "t-0", SETTINGS, NOW_MS)
        log = result.log
        assert log.end_offset >= synced
        assert log.start_offset == start or synced == start  # where nothing was synced, even names may be missing
        assert read_all(log) == [r for r in written if log.start_offset <= r.offset < log.end_offset]
        if log.end_offset > log.start_offset:
            assert log.producers.entries[1].last_sequence == log.end_offset - 1
