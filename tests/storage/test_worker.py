"""The worker process: there when it is needed, gone when it is not, replaced when it dies."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import read_header, read_records
from penstock.storage import compaction, jobs
from penstock.storage.log import LogSettings
from penstock.storage.worker import Worker, WorkerFailed
from tests.storage.logs import NOW_MS, append, batch_at, new_log, offsets, seal_all


def double(value: int) -> int:
    return 2 * value


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_as_a_full_disk_does() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class Unreadable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail_strangely() -> None:
    raise Unreadable(1, 2)


def print_and_sleep(seconds: float) -> str:
    print("this must not end up among the results")
    time.sleep(seconds)
    return "slept"


async def test_a_worker_is_started_by_its_first_job_and_ends_when_idle() -> None:
    worker = Worker(idle_seconds=0.2)
    assert not worker.is_running
    assert await worker.run(double, 21) == 42
    process = await worker.run(os.getpid)
    assert process != os.getpid()
    assert await worker.run(os.getpid) == process
    await asyncio.sleep(0.6)
    assert not worker.is_running
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert await worker.run(double, 1) == 2
    await worker.close()


async def test_what_a_job_raises_is_raised_here_and_the_worker_goes_on() -> None:
    worker = Worker()
    process = await worker.run(os.getpid)
    with pytest.raises(OSError, match="No space") as raised:
        await worker.run(fail_as_a_full_disk_does)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(RuntimeError, match="Unreadable: 1 and 2"):
        await worker.run(fail_strangely)
    assert await worker.run(os.getpid) == process
    await worker.close()


async def test_a_worker_that_dies_fails_its_jobs_and_is_replaced() -> None:
    worker = Worker()
    waiting = asyncio.ensure_future(worker.run(print_and_sleep, 30))
    await worker.run(double, 1)
    with pytest.raises(WorkerFailed, match="ended"):
        await worker.run(die)
    with pytest.raises(WorkerFailed):
        await waiting
    assert await worker.run(double, 3) == 6
    await worker.close()


async def test_a_short_job_does_not_wait_for_a_long_one() -> None:
    worker = Worker()
    long = asyncio.ensure_future(worker.run(print_and_sleep, 1.0))
    await worker.run(double, 1)
    assert await worker.run(double, 2) == 4
    assert not long.done()
    assert await long == "slept"
    await worker.close()


async def test_more_jobs_than_it_may_have_are_refused() -> None:
    worker = Worker(jobs_max=2)
    running = [asyncio.ensure_future(worker.run(print_and_sleep, 0.3)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(WorkerFailed, match="waiting already"):
        await worker.run(double, 1)
    assert await asyncio.gather(*running) == ["slept", "slept"]
    assert await worker.run(double, 1) == 2
    await worker.close()


async def test_closing_fails_what_is_under_way_and_leaves_no_process() -> None:
    worker = Worker()
    process = await worker.run(os.getpid)
    running = asyncio.ensure_future(worker.run(print_and_sleep, 30))
    await asyncio.sleep(0.1)
    await worker.close()
    with pytest.raises(WorkerFailed):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_log_is_compacted_by_the_worker(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=300, compact=True, min_cleanable_dirty_ratio=0.0)
    log = new_log(tmp_path / "t-0", settings)
    for n in range(40):
        append(log, batch_at(n, keys=[f"{n % 4}"]))
    seal_all(log)
    worker = Worker()
    plan = compaction.plan(log, NOW_MS, 40)
    assert plan is not None
    compaction.install(log, await worker.run(compaction.run, plan))
    await worker.close()
    assert len(offsets(log)) < 12
    assert offsets(log)[-4:] == [36, 37, 38, 39]


def test_the_worker_dies_with_the_broker(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys, time
from penstock.storage.worker import Worker
async def main():
    worker = Worker()
    process = await worker.run(os.getpid)
    asyncio.ensure_future(worker.run(time.sleep, 60))
    await asyncio.sleep(0.2)
    print(process, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    broker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, cwd=tmp_path)
    assert broker.stdout is not None
    process = int(broker.stdout.readline())
    broker.kill()
    broker.wait()
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize(("target", "level"), [(0, None), (1, 9), (1, None), (2, None), (3, 1), (4, 7), (4, None)])
def test_a_batch_is_recompressed_with_everything_else_the_same(
    source: Compression, target: int, level: int | None
) -> None:
    batch = batch_at(7, 3, size=500, compression=source, producer=(5, 1, 9), epoch=4)
    result = jobs.recompress(batch, target, level, 1 << 20)
    assert isinstance(result, bytes)
    assert list(read_records(result, 1 << 20, check_crc=True)) == list(read_records(batch, 1 << 20))
    before, after = read_header(batch), read_header(result)
    assert after.compression == target
    assert after._replace(length=0, crc=0, attributes=0) == before._replace(length=0, crc=0, attributes=0)
    assert jobs.validate(result, False, 1 << 20) is None


def test_what_is_wrong_with_a_batch_is_told() -> None:
    batch = batch_at(0, 3, size=50_000, compression=Compression.ZSTD)
    assert "expands" in str(jobs.recompress(batch, 0, None, 1000))
    assert "expands" in str(jobs.validate(batch, False, 1000))
    assert "key" in str(jobs.validate(batch, True, 1 << 20))
    assert "CRC" in str(jobs.validate(batch[:-1] + b"x", False, 1 << 20))
    assert jobs.validate(batch_at(0, 2, keys=["a", "b"]), True, 1 << 20) is None
