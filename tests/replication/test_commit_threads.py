"""The threads that sync while the loop goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.replication import commit
from penstock.replication.commit import Committer
from penstock.replication.partition import Partition
from penstock.replication.partition_settings import PartitionSettings
from penstock.storage.disk import Disk, NotOpened
from penstock.storage.log import Log
from penstock.transport.turn import Turn
from tests.fakes import until
from tests.replication.leading import ROOMY, TOPIC_ID, batch
from tests.storage.logs import NOW_MS


class FakeFile:
    """Its sync takes as long as the test likes."""

    def __init__(self, error: Exception | None = None, *, held: bool = False) -> None:
        self.error = error
        self.synced_by: list[str] = []
        self.go_on = threading.Event()
        if not held:
            self.go_on.set()

    def sync(self) -> None:
        assert self.go_on.wait(10)
        if self.error is not None:
            raise self.error
        self.synced_by.append(threading.current_thread().name)


@pytest.fixture
async def committer() -> AsyncIterator[Committer]:
    committer = Committer(asyncio.get_running_loop(), threads=3)
    yield committer
    committer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("commit-")]


async def synced(committer: Committer, *files: FakeFile) -> OSError | None:
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    committer.sync(list(files), done.set_result)
    return await done


async def test_files_are_synced_in_order_in_another_thread_and_the_loop_is_told(committer: Committer) -> None:
    files = [FakeFile(), FakeFile()]
    assert await synced(committer, *files) is None
    assert [file.synced_by for file in files] == [["commit-0"], ["commit-0"]]


async def test_the_error_of_a_sync_is_told_and_what_stands_behind_it_is_not_synced(committer: Committer) -> None:
    error, behind = OSError(5, "Input/output error"), FakeFile()
    assert await synced(committer, FakeFile(error), behind) is error
    assert not behind.synced_by
    assert await synced(committer, FakeFile()) is None


async def test_a_sync_that_fails_in_a_way_nobody_foresaw_is_an_error_too(committer: Committer) -> None:
    error = await synced(committer, FakeFile(ZeroDivisionError("what?")))
    assert isinstance(error, OSError)
    assert "what?" in str(error)
    assert await synced(committer, FakeFile()) is None


async def test_partitions_do_not_wait_for_each_others_syncs(committer: Committer) -> None:
    slow, told = FakeFile(held=True), []
    committer.sync([slow], told.append)
    assert await synced(committer, FakeFile()) is None
    assert told == []
    slow.go_on.set()
    await until(lambda: told == [None])


async def test_threads_are_started_when_they_are_needed_and_no_more_than_allowed(committer: Committer) -> None:
    def running() -> int:
        return len([thread for thread in threading.enumerate() if thread.name.startswith("commit-")])

    assert running() == 0
    for _ in range(5):
        await synced(committer, FakeFile())
    assert running() == 1
    told: list[OSError | None] = []
    files = [FakeFile(held=True) for _ in range(10)]
    for file in files:
        committer.sync([file], told.append)
    assert running() == 3
    for file in files:
        file.go_on.set()
    await until(lambda: len(told) == 10)
    assert running() == 3


async def test_closing_waits_for_what_is_under_way_and_tells_of_it() -> None:
    committer = Committer(asyncio.get_running_loop(), threads=2)
    files = [FakeFile(OSError(5, "Input/output error") if n == 7 else None) for n in range(20)]
    told: list[OSError | None] = []
    for file in files:
        committer.sync([file], told.append)
    committer.close()
    assert [bool(file.synced_by) for file in files] == [n != 7 for n in range(20)]
    assert len(told) == 20
    assert sum(error is not None for error in told) == 1, "a failure was overlooked"
    await asyncio.sleep(0.01)
    assert len(told) == 20


# ---- files that can't be opened


EMFILE = (errno.EMFILE, "Too many open files")


class FakeShortage(FakeFile):
    """So many times it can't be opened."""

    def __init__(self, times: int) -> None:
        super().__init__(NotOpened(*EMFILE))
        self.times = times

    def sync(self) -> None:
        self.times -= 1
        if self.times < 0:
            self.error = None
        super().sync()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "OPEN_AGAIN_S", 0.01)


@pytest.mark.usefixtures("impatient")
async def test_what_could_not_be_opened_is_synced_when_there_are_descriptors_again(
    committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    files, others = [FakeFile(), FakeShortage(3)], [FakeShortage(2), FakeFile()]
    errors = await asyncio.gather(synced(committer, *files), synced(committer, *others))
    assert errors == [None, None]
    assert [len(file.synced_by) for file in files + others] == [4, 1, 1, 1]
    assert "Too many open files" in caplog.text
    assert not committer.is_busy


@pytest.mark.usefixtures("impatient")
async def test_meanwhile_others_are_synced(committer: Committer) -> None:
    told: list[OSError | None] = []
    for _ in range(5):
        committer.sync([FakeShortage(10**9)], told.append)
    for _ in range(5):
        assert await synced(committer, FakeFile()) is None
    assert told == []
    assert committer.is_busy


@pytest.mark.usefixtures("impatient")
async def test_a_sync_that_fails_for_the_same_reason_has_failed(committer: Committer) -> None:
    """Only where nothing was asked of the device can it be asked again."""
    file = FakeFile(OSError(*EMFILE))
    assert await synced(committer, file) is file.error


async def test_what_was_put_off_is_tried_once_more_at_the_end_and_told_of() -> None:
    committer, told = Committer(asyncio.get_running_loop()), list[object]()
    for times in (1, 2):
        committer.sync([FakeShortage(times)], lambda error, times=times: told.append((times, type(error))))
    await until(lambda: len(committer._put_off) == 2)
    committer.close()
    assert sorted(told) == [(1, type(None)), (2, NotOpened)]


@pytest.mark.usefixtures("impatient")
async def test_a_partition_goes_on_when_there_are_descriptors_again(
    committer: Committer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, opened = asyncio.get_running_loop(), os.open
    refused: list[object] = []

    def open_nothing(path: Any, flags: int, mode: int = 0o777) -> int:
        if threading.current_thread().name.startswith("commit-"):
            refused.append(path)
            raise OSError(*EMFILE)
        return opened(path, flags, mode)

    log = Log(Disk(), tmp_path / "t-0", ROOMY, [], 0, 0)
    partition = Partition("t", TOPIC_ID, 0, log, PartitionSettings(), 0, Turn(loop), committer)
    answers: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_nothing)
        _, next_offset, _ = partition.append(batch(), NOW_MS)
        partition.when_committed(next_offset, lambda: answers.append(partition.high_watermark))
        await until(lambda: len(refused) > 3)
        assert (partition.error, partition.high_watermark, answers) == (None, 0, [])
    await until(lambda: answers == [1])
    partition.append(batch(), NOW_MS)
    await until(lambda: partition.high_watermark == 2)


async def test_nothing_is_begun_after_the_end() -> None:
    committer, file = Committer(asyncio.get_running_loop()), FakeFile()
    committer.close()
    committer.sync([file], lambda error: None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("commit-")]
    assert not file.synced_by
