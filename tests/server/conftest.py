from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.server.admin_broker import AdminBroker


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
