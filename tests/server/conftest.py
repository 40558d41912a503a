from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.admin_broker import AdminBroker
from tests.server.rooms import Rooms


@pytest.fixture
async def admin_broker(tmp_path: Path) -> AsyncIterator[AdminBroker]:
    broker = await AdminBroker(tmp_path).start()
    yield broker
    await broker.stop()


@pytest.fixture
async def admin_broker_with(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[AdminBroker]]]:
    """A broker with settings: dots are written as underscores."""
    started: list[AdminBroker] = []

    async def start(**settings: str) -> AdminBroker:
        started.append(await AdminBroker(tmp_path / str(len(started)), **settings).start())
        return started[-1]

    yield start
    for broker in started:
        await broker.stop()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Rooms]]:
    """Rooms in a folder of a name, and with options."""
    made: list[Rooms] = []

    def make(folder: str = "data", **options: Any) -> Rooms:
        made.append(Rooms(tmp_path / folder, **options))
        return made[-1]

    yield make
    for rooms in made:
        await rooms.close()
