"""Handlers that are cancelled, because a loop ends or somebody is in a hurry: no message has failed by that."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.client.async_consumer import AsyncConsumer
from penstock.client.retrying.calling import InThread
from tests.client.conftest import MakeTopic
from tests.client.retrying.conftest import committed, copies, produce

WAIT_S = 20.0

Handler = Callable[[Any], Coroutine[Any, Any, None]]


def consumer_of(bootstrap: str, group: str, topic: str, handler: Handler) -> AsyncConsumer[bytes, bytes]:
    consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(bootstrap, group, topic, handle_signals=False)
    consumer.handler(dead_letter=True)(handler)
    return consumer


def test_a_loop_that_ends_gives_the_message_in_hand_back(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(3), key=lambda value: None)
    tasks: list[asyncio.Task[None]] = []
    consumers: list[AsyncConsumer[bytes, bytes]] = []

    async def begin_and_return() -> None:
        has_begun = asyncio.Event()

        async def handle(message: Any) -> None:
            if message.offset == 1:
                has_begun.set()
                await asyncio.sleep(WAIT_S)

        consumers.append(consumer_of(bootstrap, group, topic, handle))
        tasks.append(asyncio.create_task(consumers[0].run()))
        await asyncio.wait_for(has_begun.wait(), WAIT_S)

    asyncio.run(begin_and_return())
    assert tasks[0].cancelled()
    assert committed(bootstrap, group, topic) == [(1, "")], "and it is stored when the loop has ended, not later"
    assert copies(bootstrap, f"{topic}.{group}.dlq") == []
    asyncio.run(consumers[0].close())


async def test_a_cancelled_run_finishes_the_message_in_hand(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(bootstrap, topic, range(3), key=lambda value: None)
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: Any) -> None:
        if message.offset == 1:
            has_begun.set()
            await may_end.wait()

    async with consumer_of(bootstrap, group, topic, handle) as consumer:
        running = asyncio.create_task(consumer.run())
        await asyncio.wait_for(has_begun.wait(), WAIT_S)
        running.cancel()
        await asyncio.sleep(0.05)
        assert not running.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert committed(bootstrap, group, topic) == [(2, "")]


async def test_a_handler_that_waits_for_what_was_cancelled_has_failed(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [0], key=lambda value: None)

    async def handle(message: Any) -> None:
        other = asyncio.ensure_future(asyncio.sleep(WAIT_S))
        other.cancel()
        await other

    async with consumer_of(bootstrap, group, topic, handle) as consumer:
        running = asyncio.create_task(consumer.run())
        deadline_s = time.monotonic() + WAIT_S
        while not await asyncio.to_thread(copies, bootstrap, f"{topic}.{group}.dlq"):
            assert time.monotonic() < deadline_s
        consumer.stop()
        await running


def test_a_second_interrupt_does_not_wait_for_a_handler_that_hangs() -> None:
    may_end = threading.Event()
    call = InThread(lambda message: may_end.wait(WAIT_S), timeout_ms=60_000)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    message: Any = None
    with pytest.raises(KeyboardInterrupt):
        call(message)
    began_s = time.monotonic()
    call.close()
    assert time.monotonic() - began_s < WAIT_S / 2
    may_end.set()
