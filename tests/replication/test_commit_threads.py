"""The threads that sync while the loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from penstock.replication.commit import Committer
from tests.fakes import until


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


async def test_nothing_is_begun_after_the_end() -> None:
    committer, file = Committer(asyncio.get_running_loop()), FakeFile()
    committer.close()
    committer.sync([file], lambda error: None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("commit-")]
    assert not file.synced_by
