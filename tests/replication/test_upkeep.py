"""What logs need now and then, and what becomes of it when the disk is full or the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.replication.upkeep import Upkeep
from penstock.storage.disk import Disk
from tests.fakes import FakeClock, until
from tests.replication.holding import Holding
from tests.storage.disks import FailingDisk, FullDisk
from tests.storage.logs import NOW_MS

SMALL = {"internal_segment_bytes": "300"}


class Kept:
    """Partitions and their upkeep, each piece of which happens when the test says so."""

    def __init__(self, folder: Path, disk: Disk | None = None, **settings: str) -> None:
        self.clock = FakeClock(NOW_MS)
        self.held = Holding(folder, disk, **settings)
        self.upkeep = Upkeep(self.held.partitions, self.held.settings, cast(Any, None), self.clock)

    async def seal_and_flush(self) -> None:
        await self.upkeep._seal_and_flush()

    async def checkpoint(self) -> None:
        await self.upkeep._checkpoint()

    async def retain(self) -> None:
        await self.upkeep._retain()


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(disk: Disk | None = None, **settings: str) -> Kept:
        made.append(Kept(tmp_path, disk, **settings))
        return made[-1]

    yield make
    for each in made:
        await each.upkeep.close()


def fill(held: Holding, batches: int = 6, topic: str = "t") -> None:
    for _ in range(batches):
        held.write(topic, size=100)


def files(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


async def test_rolled_segments_are_sealed_and_the_active_one_is_not(kept: Callable[..., Kept], tmp_path: Path) -> None:
    each = kept()
    each.held.create("t", **SMALL)
    fill(each.held)
    await each.seal_and_flush()
    segments = each.held.get("t").log.segments
    assert [segment.sealed_to == segment.size for segment in segments] == [True] * (len(segments) - 1) + [False]
    assert files(tmp_path / "t-0", ".index") == [f"{s.base_offset:020d}.index" for s in segments[:-1]]
    assert each.held.get("t").retired == []
    assert each.held.read("t") == list(range(6))


async def test_a_full_disk_keeps_no_partition_from_going_on_after_it_has_healed(kept: Callable[..., Kept]) -> None:
    disk = FullDisk(100_000)
    each = kept(disk)
    each.held.create("t", **SMALL)
    fill(each.held)
    disk.room, room = 0, disk.room
    await each.seal_and_flush()
    partition = each.held.get("t")
    assert partition.error is None
    disk.room = room
    fill(each.held, 1)
    await each.seal_and_flush()
    assert all(segment.sealed_to == segment.size for segment in partition.log.segments[:-1])
    assert each.held.read("t") == list(range(7))


async def test_a_sync_that_fails_while_sealing_stops_the_partition(kept: Callable[..., Kept]) -> None:
    disk = FailingDisk()
    each = kept(disk, flush="os")
    each.held.create("t", **SMALL)
    each.held.create("other", **SMALL)
    fill(each.held)
    fill(each.held, 1, "other")
    disk.fail_sync = disk.syncs
    await each.seal_and_flush()
    assert each.held.get("t").error is not None
    assert each.held.get("other").error is None


async def test_under_interval_a_sync_is_begun_by_upkeep(kept: Callable[..., Kept]) -> None:
    each = kept(flush="interval")
    each.held.create("t", flush_ms="500")
    each.held.write("t")
    await each.seal_and_flush()
    assert each.held.committer.begun == 1
    each.held.committer.end_all()
    each.held.write("t")
    each.clock.now += 499
    await each.seal_and_flush()
    assert each.held.committer.begun == 1
    each.clock.now += 1
    await each.seal_and_flush()
    assert each.held.committer.begun == 2


async def test_an_index_of_the_growing_segment_spares_recovery_what_is_committed(kept: Callable[..., Kept]) -> None:
    each = kept()
    each.held.create("t")
    fill(each.held)
    await each.checkpoint()
    segment = each.held.get("t").log.segments[0]
    assert segment.sealed_to == segment.size
    fill(each.held, 1)
    each.held.start_again(cleanly=False)
    assert each.held.read("t") == list(range(7))


async def test_an_index_that_could_not_be_saved_is_saved_the_next_time(kept: Callable[..., Kept]) -> None:
    disk = FullDisk(100_000)
    each = kept(disk)
    for topic in ("t", "u"):
        each.held.create(topic)
        fill(each.held, topic=topic)
    disk.room, room = 0, disk.room
    await each.checkpoint()
    disk.room = room
    await each.checkpoint()
    for topic in ("t", "u"):
        segment = each.held.get(topic).log.segments[0]
        assert segment.sealed_to == segment.size


# ---- what grows old


async def test_retention_drops_old_segments_and_removes_their_files_later(
    kept: Callable[..., Kept], tmp_path: Path
) -> None:
    each = kept()
    each.held.create("t", retention_ms="1000", file_delete_delay_ms="20", **SMALL)
    fill(each.held)
    each.clock.now += 1001
    await each.retain()
    partition = each.held.get("t")
    assert (partition.log.start_offset, partition.high_watermark) == (6, 6)
    assert each.held.read("t") == []
    assert each.held.write("t") == 6
    await until(lambda: files(tmp_path / "t-0", ".log") == [f"{6:020d}.log"])
    each.held.start_again(cleanly=False)
    assert each.held.read("t") == [6]


async def with_files_to_be_removed(kept: Callable[..., Kept], folder: Path) -> Kept:
    """Retention has taken all of t, whose files stay for a while."""
    each = kept()
    each.held.create("t", retention_ms="1000", **SMALL)
    fill(each.held)
    each.clock.now += 1001
    await each.retain()
    assert len(files(folder / "t-0", ".log")) > 1
    return each


async def test_what_retention_took_does_not_come_back_after_a_crash_while_its_files_are_there(
    kept: Callable[..., Kept], tmp_path: Path
) -> None:
    each = await with_files_to_be_removed(kept, tmp_path)
    each.held.start_again(cleanly=False)
    assert each.held.get("t").log.start_offset == 6
    assert each.held.read("t") == []


async def test_retention_on_a_full_disk_goes_on(kept: Callable[..., Kept], tmp_path: Path) -> None:
    disk = FullDisk(100_000)
    each = kept(disk)
    each.held.create("t", retention_ms="1000", file_delete_delay_ms="20", **SMALL)
    fill(each.held)
    each.clock.now += 1001
    disk.room = 0
    await each.retain()
    await until(lambda: len(files(tmp_path / "t-0", ".log")) == 1)
    assert each.held.get("t").log.start_offset == 5  # the last segment stays: there is no room for another


async def test_files_that_were_to_be_removed_later_are_removed_at_the_stop(
    kept: Callable[..., Kept], tmp_path: Path
) -> None:
    each = await with_files_to_be_removed(kept, tmp_path)
    await each.upkeep.close()
    assert len(files(tmp_path / "t-0", ".log")) == 1
    each.held.start_again()
    assert each.held.get("t").log.start_offset == 6


async def test_records_deleted_on_request_stay_deleted_whatever_happens(kept: Callable[..., Kept]) -> None:
    each = kept()
    each.held.create("t", **SMALL)
    fill(each.held)
    partition = each.held.get("t")
    await each.upkeep.advance_start(partition, 3)
    assert each.held.read("t")[0] <= 3
    await each.upkeep.advance_start(partition, 2)
    assert partition.log.start_offset == 3
    each.held.start_again(cleanly=False)
    assert each.held.get("t").log.start_offset == 3


async def test_a_beginning_that_could_not_be_made_to_last_is_taken_back(kept: Callable[..., Kept]) -> None:
    disk = FullDisk(100_000)
    each = kept(disk)
    each.held.create("t")
    fill(each.held)
    partition = each.held.get("t")
    disk.room, room = 0, disk.room
    with pytest.raises(OSError, match="No space"):
        await each.upkeep.advance_start(partition, 3)
    assert partition.log.start_offset == 0
    disk.room = room
    await each.upkeep.advance_start(partition, 3)
    assert partition.log.start_offset == 3


async def test_what_fails_is_tried_again_and_the_rest_goes_on(
    kept: Callable[..., Kept], caplog: pytest.LogCaptureFixture
) -> None:
    each = kept(log_retention_check_interval_ms="1")
    tried = []

    def fail() -> None:
        tried.append(1)
        raise ZeroDivisionError

    each.upkeep._retain = fail  # type: ignore[assignment,method-assign]
    each.upkeep.start()
    await until(lambda: len(tried) >= 2)
    assert "it will be tried again" in caplog.text
    await each.upkeep.close()
    assert all(task.done() for task in each.upkeep._tasks)
    await asyncio.sleep(0)
