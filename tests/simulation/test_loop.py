from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes import rounds
from tests.simulation.loop import Deadlock, Endless, VirtualLoop
from tests.simulation.process import PROCESS, Process


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def test_hours_take_no_time() -> None:
    began, loop = time.monotonic(), the_loop()
    before, wall = loop.time(), loop.wall_ns()
    await asyncio.sleep(3600)
    assert loop.time() - before == pytest.approx(3600)
    assert loop.wall_ns() - wall == pytest.approx(3600e9, abs=1000)
    assert loop.wall_ns(ahead_s=60) - loop.wall_ns() == 60_000_000_000
    assert time.monotonic() - began < 5


async def test_timers_run_in_the_order_of_their_time_and_what_is_ready_runs_first() -> None:
    loop, ran = the_loop(), list[str]()
    loop.call_later(2, ran.append, "later")
    loop.call_later(1, ran.append, "sooner")
    loop.call_soon(ran.append, "soon")
    cancelled = loop.call_later(1.5, ran.append, "never")
    cancelled.cancel()
    await asyncio.sleep(3)
    assert ran == ["soon", "sooner", "later"]


async def test_a_timeout_is_one_of_virtual_time() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 100)


def test_who_waits_for_nothing_is_told() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(Deadlock):
        runner.run(asyncio.Event().wait())


def test_time_has_an_end() -> None:
    async def for_ever() -> None:
        async for _ in rounds(1):
            pass

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seconds_max=1000)) as runner, pytest.raises(Endless):
        runner.run(for_ever())


async def test_what_an_executor_does_is_done_later_on_the_loop() -> None:
    loop, done = the_loop(), list[int]()
    with ThreadPoolExecutor(1) as executor:
        futures = [loop.run_in_executor(executor, done.append, number) for number in range(50)]
        assert done == []
        await asyncio.gather(*futures)
    assert done == list(range(50))  # one thread does one thing after the other
    assert await asyncio.to_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(None, lambda: 1 // 0)


async def test_what_other_threads_post_arrives() -> None:
    arrived = asyncio.Event()
    the_loop().call_soon_threadsafe(arrived.set)
    await arrived.wait()


async def ticker(ticks: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        ticks.append(asyncio.get_running_loop().time())


async def test_a_process_that_is_paused_goes_on_where_it_was() -> None:
    loop, ticks = the_loop(), list[float]()
    start = loop.time()
    process = Process(loop, "one")
    process.start(ticker(ticks))
    await asyncio.sleep(2.5)
    process.pause()
    await asyncio.sleep(10)
    assert len(ticks) == 2
    process.resume()
    await asyncio.sleep(1.6)
    assert [round(tick - start, 1) for tick in ticks] == [1.0, 2.0, 12.5, 13.5]
    process.kill()


async def test_of_a_process_that_is_killed_nothing_runs_again() -> None:
    loop, ticks, cleaned = the_loop(), list[float](), list[str]()
    process = Process(loop, "one")

    async def parent() -> None:
        assert PROCESS.get() is process
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ticker(ticks))
                loop.call_later(5, ticks.append, 0.0)
        finally:
            cleaned.append("as if it lived")

    process.start(parent())
    process.on_kill(lambda: cleaned.append("by the kernel"))
    await asyncio.sleep(3.5)
    process.kill()
    await asyncio.sleep(10)
    assert len(ticks) == 3
    assert cleaned == ["by the kernel"]
