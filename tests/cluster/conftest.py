from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.controlled_cluster import ControlledCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ControlledCluster]:
    cluster = await ControlledCluster(tmp_path).start()
    yield cluster
    await cluster.stop()
