from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.simulation.loop import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """All tests of this folder run under the virtual clock."""
    return {"virtual": VirtualLoop}
