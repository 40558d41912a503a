"""Brokers in this process, on the event loop that they run on in earnest."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import struct
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.broker.app import Broker
from penstock.cluster.settings import BrokerSettings
from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.schema import Message
from penstock.storage.disk import Disk
from tests.fakes import TIMEOUT_S


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


class Caller:
    """A client that asks one thing after the other."""

    def __init__(self, broker: Broker) -> None:
        self._address = (broker.host, broker.port)
        self._numbers = itertools.count(1)

    async def connect(self) -> Caller:
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    def send(self, request: Message, version: int | None = None) -> tuple[type[Message], int]:
        version = type(request).versions.last if version is None else version
        self.writer.write(request_frame(request, version, next(self._numbers), "caller"))
        return RESPONSE_OF[type(request)], version

    async def ask(self, request: Message, version: int | None = None) -> Any:
        return await self.receive(*self.send(request, version))

    async def receive(self, response: type[Message], version: int) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return read_response(response, await self.reader.readexactly(size), version)[1]

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def settings(data: Path, **more: str) -> BrokerSettings:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return BrokerSettings({"data": str(data), "listen": "127.0.0.1:0", "offsets.topic.num.partitions": "3", **named})


class Brokers:
    """Starts brokers, and stops those that are still there in the end."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._running: list[Broker] = []
        self._callers: list[Caller] = []

    async def start(self, disk: Disk | None = None, data: Path | None = None, **more: str) -> Broker:
        broker = Broker(settings(data or self.data, **more), disk)
        await broker.start()
        self._running.append(broker)
        return broker

    async def call(self, broker: Broker) -> Caller:
        self._callers.append(await Caller(broker).connect())
        return self._callers[-1]

    async def stop(self, broker: Broker) -> None:
        self._running.remove(broker)
        await broker.stop()

    async def close(self) -> None:
        for caller in self._callers:
            caller.writer.close()
        for broker in list(self._running):
            await self.stop(broker)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    await brokers.close()


class Held:
    """What this process holds that a broker could have left behind."""

    def __init__(self) -> None:
        gc.unfreeze()
        gc.collect()
        self.descriptors = {name: _target(name) for name in os.listdir("/proc/self/fd")}
        self.threads = {thread for thread in threading.enumerate() if thread.is_alive()}
        self.tasks = asyncio.all_tasks()

    def since(self, before: Held) -> dict[str, Any]:
        return {
            "descriptors": [t for name, t in self.descriptors.items() if t and before.descriptors.get(name) != t],
            "threads": [thread.name for thread in self.threads - before.threads],
            "tasks": list(self.tasks - before.tasks),
        }


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""  # the one that listed them
