"""What is done while somebody waits for memory: buffers that are merely kept are given back, and a connection whose
peer holds up a large frame is closed. Nobody else's request waits for a peer that has gone quiet in the middle of one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from penstock.transport.connection import Connection
from penstock.transport.memory import MemoryBudget

LOOK_EVERY_S = 0.25
STALLED_S = 1.0
PROGRESS_BYTES_MIN = 4 * 1024  # a peer that sends less than this in that time holds up its frame

log = logging.getLogger("penstock.transport")


class Relief:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, memory: MemoryBudget, connections: Iterable[Connection]
    ) -> None:
        self._loop = loop
        self._memory = memory
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = 0.0
        self._seen: dict[Connection, tuple[int, float]] = {}  # how much of its frame was there, and since when
        memory.on_shortage = self._begin

    def _begin(self) -> None:
        if self._timer is None:
            delay_s = self._looked_s + LOOK_EVERY_S - self._loop.time()
            self._timer = self._loop.call_later(max(delay_s, 0), self._look)

    def _look(self) -> None:
        self._timer = None
        self._looked_s = self._loop.time()
        for connection in list(self._connections):
            connection.release_idle_memory()
        self._close_stalled(self._looked_s)
        if self._memory.waiting:
            self._begin()

    def _close_stalled(self, now_s: float) -> None:
        before, self._seen = self._seen, {}
        for connection in list(self._connections):
            have = connection.held_up_at
            if have < 0:
                continue
            had, since_s = before.get(connection, (have, now_s))
            if not had <= have < had + PROGRESS_BYTES_MIN:
                had, since_s = have, now_s
            if now_s - since_s < STALLED_S:
                self._seen[connection] = (had, since_s)
            else:
                log.warning("closed connection: it stopped inside a large request", extra={"from": connection.host})
                connection.close()

    def close(self) -> None:
        self._memory.on_shortage = None
        if self._timer is not None:
            self._timer.cancel()
