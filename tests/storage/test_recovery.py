"""Opening logs that were not closed cleanly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.protocol.record_batch import Record
from penstock.storage import checkpoint, recovery, snapshots
from penstock.storage.log import Log, LogSettings
from penstock.storage.segment import file_name
from tests.storage.disks import CountingDisk, FailingDisk, ForgetfulDisk, HastyDisk, PowerFailure
from tests.storage.logs import NOW_MS, SMALL, append, batch_at, fill, new_log, offsets, read_all, recovered, seal_all


def make(directory: Path, settings: LogSettings = SMALL) -> Log:
    """Three segments; the last one is not sealed."""
    log = new_log(directory, settings)
    for slot in range(24):
        append(log, batch_at(2 * slot, 2, producer=(slot % 3, 0, slot // 3 * 2)))
    seal_all(log)
    assert len(log.segments) == 3
    return log


def is_prefix(found: list[Record], whole: list[Record]) -> bool:
    return found == whole[: len(found)]


def test_a_log_that_was_killed_is_as_it_was(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    again = recovered(tmp_path / "t-0")
    assert read_all(again.log) == read_all(log)
    assert (again.bytes_cut, again.damaged) == (0, False)
    assert again.log.producers.dump() == log.producers.dump()
    assert again.log.epochs.epochs == [0]
    assert [(s.base_offset, s.size, s.max_timestamp_ms) for s in again.log.segments] == [
        (s.base_offset, s.size, s.max_timestamp_ms) for s in log.segments
    ]
    fill(again.log, 3)
    assert offsets(again.log) == list(range(54))


def test_a_folder_that_is_not_there_is_an_empty_log(tmp_path: Path) -> None:
    again = recovered(tmp_path / "t-0")
    assert (again.log.start_offset, again.log.end_offset, again.log.segments) == (0, 0, [])
    fill(again.log, 1)
    assert offsets(again.log) == [0, 1]


def test_only_what_may_be_torn_is_read(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    disk = CountingDisk()
    again = recovered(tmp_path / "t-0", disk=disk)
    active = log.segments[-1]
    assert again.bytes_read <= active.size
    assert sum(disk.bytes_read.get(file_name(s.base_offset, "log"), 0) for s in log.segments[:-1]) == 0
    assert disk.bytes_read[file_name(active.base_offset, "log")] <= 2 * active.size  # once more to seal it

    disk = CountingDisk()
    again = recovered(tmp_path / "t-0", disk=disk)
    assert again.bytes_read == 0
    assert disk.log_bytes_read == 0
    assert again.log.end_offset == log.end_offset

    fill(again.log, 1)
    grown = again.log.segments[-1].size
    again = recovered(tmp_path / "t-0")
    assert again.bytes_read == grown - active.size
    assert again.log.end_offset == log.end_offset + 2


def test_what_was_read_is_on_the_device_before_it_is_served(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    log = new_log(tmp_path / "t-0", disk=disk)
    fill(log, 20)
    again = recovered(tmp_path / "t-0", disk=disk)  # the process died, the machine did not
    served = read_all(again.log)
    disk.crash()
    assert read_all(recovered(tmp_path / "t-0", disk=disk).log) == served


def test_a_sync_that_fails_during_recovery_is_not_hidden(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with pytest.raises(OSError, match="Input/output"):
        recovered(tmp_path / "t-0", disk=FailingDisk(fail_sync=0))


def test_a_log_cut_at_every_byte_is_recovered_up_to_there(tmp_path: Path) -> None:
    log = make(tmp_path / "whole")
    whole = read_all(log)
    active = log.segments[-1]
    ends = [0, *(batch.end for batch in active.batches(0))]
    for size in range(active.size + 1):
        directory = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", directory)
        with (directory / active.path("log").name).open("r+b") as file:
            file.truncate(size)
        again = recovered(directory, disk=HastyDisk())
        assert is_prefix(read_all(again.log), whole)
        assert again.log.segments[-1].size == max(end for end in ends if end <= size)
        assert not again.damaged
        fill(again.log, 1)
        assert offsets(again.log) == list(range(again.log.end_offset))
        shutil.rmtree(directory)


def test_a_sealed_segment_cut_at_every_byte_is_reported_and_what_follows_is_kept_aside(tmp_path: Path) -> None:
    log = make(tmp_path / "whole")
    whole = read_all(log)
    second = log.segments[1]
    for size in range(0, second.size, 7):
        directory = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", directory)
        with (directory / second.path("log").name).open("r+b") as file:
            file.truncate(size)
        again = recovered(directory, disk=HastyDisk())
        assert is_prefix(read_all(again.log), whole)
        assert again.log.end_offset >= second.base_offset
        assert again.damaged
        aside = directory / file_name(log.segments[2].base_offset, "log.cut-0")
        assert aside.read_bytes() == log.segments[2].path("log").read_bytes()
        fill(again.log, 1)
        assert offsets(again.log) == list(range(again.log.end_offset))
        shutil.rmtree(directory)


@pytest.mark.parametrize("first_bit", [0, 5])
def test_a_bit_flipped_anywhere_in_what_is_read_is_never_served(tmp_path: Path, first_bit: int) -> None:
    log = make(tmp_path / "whole")
    whole = read_all(log)
    active = log.segments[-1]
    data = active.path("log").read_bytes()
    batches = list(active.batches(0))
    for at in range(len(data)):
        directory = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", directory)
        flipped = bytearray(data)
        flipped[at] ^= 1 << (first_bit + at) % 8
        (directory / active.path("log").name).write_bytes(flipped)
        again = recovered(directory, disk=HastyDisk())
        assert is_prefix(read_all(again.log), whole)
        cut = again.log.segments[-1]
        found = list(cut.batches(0))
        assert found == batches[: len(found)]  # with their leader epochs
        in_epoch = any(batch.position + 12 <= at < batch.position + 16 for batch in batches)
        assert cut.size == active.size if in_epoch else cut.size <= at
        assert again.damaged == (at < batches[-1].position and not in_epoch)
        if again.damaged:
            aside = directory / cut.path(f"log.cut-{cut.size}").name
            assert aside.read_bytes() == flipped[cut.size :]
        shutil.rmtree(directory)


def test_bytes_behind_the_last_batch_are_no_damage(tmp_path: Path) -> None:
    for garbage in (bytes(5000), b"\x02" * 5000, bytes(range(256)) * 20, b"x"):
        log = make(tmp_path / "t-0")
        whole = read_all(log)
        with log.segments[-1].path("log").open("ab") as file:
            file.write(garbage)
        again = recovered(tmp_path / "t-0")
        assert (again.bytes_cut, again.damaged) == (len(garbage), False)
        assert read_all(again.log) == whole
        shutil.rmtree(tmp_path / "t-0")


def test_a_segment_that_lost_its_end_before_it_was_sealed_takes_the_next_ones_with_it(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 20)
    first, second = log.segments[0], log.segments[1]
    *_, last = first.batches(0)
    with first.path("log").open("r+b") as file:
        file.truncate(last.position)  # exactly one batch: no torn bytes give it away
    again = recovered(tmp_path / "t-0")
    assert again.log.end_offset == last.base_offset
    assert again.damaged
    assert again.bytes_cut == second.size


def test_a_missing_segment_in_the_middle_is_noticed(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    log.segments[1].remove()
    again = recovered(tmp_path / "t-0")
    assert again.log.end_offset == log.segments[1].base_offset
    assert again.damaged


def test_lost_files_beside_the_segments_are_rebuilt(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    whole, producers = read_all(log), log.producers.dump()
    for path in (tmp_path / "t-0").iterdir():
        if path.suffix != ".log":
            path.unlink()
    again = recovered(tmp_path / "t-0")
    assert read_all(again.log) == whole
    assert again.log.producers.dump() == producers
    assert (again.log.epochs.epochs, again.log.epochs.starts) == ([0], [0])
    assert not again.damaged
    assert recovered(tmp_path / "t-0").bytes_read == 0


@pytest.mark.parametrize("at", [0, 5, -1, -30, -64])
def test_damaged_files_beside_the_segments_are_rebuilt(tmp_path: Path, at: int) -> None:
    log = make(tmp_path / "t-0")
    whole, producers = read_all(log), log.producers.dump()
    for path in (tmp_path / "t-0").iterdir():
        if path.suffix in (".index", ".snapshot"):
            data = bytearray(path.read_bytes())
            data[at % len(data)] ^= 0x10
            path.write_bytes(data)
    again = recovered(tmp_path / "t-0")
    assert read_all(again.log) == whole
    assert again.log.producers.dump() == producers
    assert again.log.offset_for_timestamp(NOW_MS) == (0, NOW_MS, 0)
    assert not again.damaged


def test_what_interrupted_work_left_is_removed(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    base = log.segments[1].base_offset
    for name in ("00000000000000000000.index.tmp", "00000000000000000000.log.deleted", file_name(999, "index")):
        (tmp_path / "t-0" / name).write_bytes(b"left")
    (tmp_path / "t-0" / f"{0:020d}-{base:020d}.log.cleaned").write_bytes(b"left")
    (tmp_path / "t-0" / f"{0:020d}-{base:020d}.index.swap").write_bytes(b"left")
    (tmp_path / "t-0" / "topic-id").write_bytes(b"not ours")
    again = recovered(tmp_path / "t-0")
    assert read_all(again.log) == read_all(log)
    left = {path.suffix for path in (tmp_path / "t-0").iterdir()}
    assert left == {".log", ".index", ".snapshot", ""}
    assert (tmp_path / "t-0" / "topic-id").exists()


def test_snapshots_behind_the_cut_are_removed(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    log.save_producers(log.end_offset)
    active = log.segments[-1]
    with active.path("log").open("r+b") as file:
        file.truncate(active.size - 1)
    again = recovered(tmp_path / "t-0").log
    assert max(snapshots.offsets(log.disk, log.directory)) == again.end_offset < log.end_offset
    assert again.producers.entries[2].last_sequence == log.producers.entries[2].last_sequence - 2


def test_the_start_offset_survives_and_hides_what_lies_below(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    first, second = log.segments[0], log.segments[1]
    log.advance_start(second.base_offset + 3)
    log.save_start()
    again = recovered(tmp_path / "t-0").log
    assert again.start_offset == second.base_offset + 3
    assert not first.path("log").exists()
    assert offsets(again)[0] == second.base_offset + 3


def test_a_start_offset_behind_the_end_begins_the_log_anew_there(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    checkpoint.save(log.disk, log.directory / checkpoint.START_OFFSET, 500, durable=True)
    again = recovered(tmp_path / "t-0").log
    assert (again.start_offset, again.end_offset) == (500, 500)
    assert again.producers.dump() == log.producers.dump()
    append(again, batch_at(500))
    assert offsets(recovered(tmp_path / "t-0").log) == [500]


def test_epochs_are_learnt_from_the_batches_and_cut_with_them(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 2)
    log.begin_epoch(3)
    fill(log, 2, epoch=3)
    log.begin_epoch(5)
    fill(log, 1, epoch=5)
    log.segments[-1].file.truncate(log.segments[-1].size - 5)
    again = recovered(tmp_path / "t-0").log
    assert (again.epochs.epochs, again.epochs.starts) == ([0, 3, 5], [0, 4, 8])
    (tmp_path / "t-0" / "leader-epochs").unlink()
    again = recovered(tmp_path / "t-0").log
    assert (again.epochs.epochs, again.epochs.starts) == ([0, 3], [0, 4])


def test_gaps_that_compaction_left_are_no_damage(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=1000, compact=True)
    log = new_log(tmp_path / "t-0", settings)
    append(log, batch_at(0), batch_at(5), batch_at(9, 2))
    log.roll(20, NOW_MS)
    append(log, batch_at(20), batch_at(25))
    again = recovered(tmp_path / "t-0", settings)
    assert offsets(again.log) == [0, 5, 9, 10, 20, 25]
    assert not again.damaged


def test_a_batch_larger_than_what_is_read_at_once_is_recovered(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogSettings())
    append(log, batch_at(0), batch_at(1, size=3_000_000), batch_at(2), batch_at(3, size=1_200_000), batch_at(4))
    again = recovered(tmp_path / "t-0", LogSettings())
    assert offsets(again.log) == [0, 1, 2, 3, 4]
    assert again.bytes_read < log.size + 1000


def test_a_log_that_lost_more_than_a_torn_end_says_so_until_that_was_told(tmp_path: Path) -> None:
    """What is left after the cut looks sound."""
    log = make(tmp_path / "t-0")
    path = log.segments[1].path("log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    found = [recovered(tmp_path / "t-0") for _ in range(3)]
    assert [each.lost_more for each in found] == [True, True, True]
    assert [each.bytes_cut > 0 for each in found] == [True, False, False]
    (tmp_path / "t-0" / recovery.DAMAGED).unlink()
    assert not recovered(tmp_path / "t-0").lost_more


def test_a_torn_end_is_no_loss(tmp_path: Path) -> None:
    log = make(tmp_path / "t-0")
    append(log, batch_at(48, 2))
    path = log.segments[-1].path("log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    again = recovered(tmp_path / "t-0")
    assert (again.bytes_cut > 0, again.lost_more) == (True, False)
    assert not (tmp_path / "t-0" / recovery.DAMAGED).exists()


@pytest.mark.parametrize("seed", range(3))
def test_power_that_fails_in_the_recovery_of_a_damaged_log_leaves_the_damage_known(tmp_path: Path, seed: int) -> None:
    steps = 0
    while True:
        directory = tmp_path / f"{steps}" / "t-0"
        log = make(directory)
        path = log.segments[0].path("log")
        content = bytearray(path.read_bytes())
        path.write_bytes(content[:-1])
        log.segments[0].path("index").unlink()
        disk = ForgetfulDisk(tmp_path / f"{steps}", seed)
        disk.stop_after(steps)
        try:
            recovery.recover(disk, directory, SMALL, NOW_MS)
        except PowerFailure:
            disk.crash()
            assert recovered(directory).lost_more, f"power failed at step {steps}"
            steps += 1
            continue
        break
    assert steps > 3
