from __future__ import annotations

import asyncio
import random
from pathlib import Path

from penstock.replication.commit import Syncable
from tests.simulation.committer import SimulatedCommitter
from tests.simulation.disk import SimulatedDisk


class BrokenFile:
    def sync(self) -> None:
        raise OSError("broken")


class SomeFile:
    def __init__(self) -> None:
        self.synced_at: float | None = None

    def sync(self) -> None:
        self.synced_at = asyncio.get_running_loop().time()


async def test_a_sync_is_done_before_it_is_said() -> None:
    loop = asyncio.get_running_loop()
    committer = SimulatedCommitter(loop, random.Random(1))
    files = [SomeFile() for _ in range(20)]
    said: dict[int, float] = {}
    start = loop.time()
    for number, file in enumerate(files):
        wanted: list[Syncable] = [file]
        committer.sync(wanted, lambda error, number=number: said.update({number: loop.time()}))
    assert not said
    await asyncio.sleep(1)
    assert len(said) == 20
    for number, file in enumerate(files):
        assert file.synced_at is not None
        assert start < file.synced_at < said[number]
    assert list(said) != sorted(said), "syncs of different partitions should overtake each other"


async def test_a_failure_is_told_and_a_close_leaves_nobody_waiting() -> None:
    committer = SimulatedCommitter(asyncio.get_running_loop(), random.Random(1))
    errors: list[OSError | None] = []
    committer.sync([BrokenFile()], errors.append)
    await asyncio.sleep(1)
    committer.sync([SomeFile()], errors.append)
    committer.sync([BrokenFile()], errors.append)
    committer.close()
    committer.sync([SomeFile()], errors.append)
    await asyncio.sleep(1)
    assert [type(error) for error in errors] == [OSError, type(None), OSError]


async def test_power_that_fails_before_a_sync_reached_the_device_loses_what_was_written(tmp_path: Path) -> None:
    kept = []
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        disk = SimulatedDisk(folder, seed)
        file = disk.open(folder / "file", create=True)
        disk.sync_directory(folder)
        committer = SimulatedCommitter(asyncio.get_running_loop(), random.Random(seed))
        file.append([b"data"], 4)
        said: list[object] = []
        committer.sync([file], said.append)
        await asyncio.sleep(0.0015)
        disk.crash()
        content = disk.read(folder / "file")
        assert content == b"data" or not said, "said to be on the device, and gone"
        kept.append(content == b"data")
    assert any(kept)
    assert not all(kept)


async def test_names_are_listed_in_one_order(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    for name in ("c", "a", "b"):
        disk.replace(tmp_path / name, b"")
    assert disk.names(tmp_path) == ["a", "b", "c"]
