"""What a broker changes about single partitions on its own: in-sync sets of those it leads, and its own place in them.

Changes to one topic are written together, one write after another. A change is a function of the partition's state, so
after a conflict it can be asked again about what others have written; it says None when it has become pointless.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.cluster.catalog import Catalog, Conflict
from penstock.cluster.coordination import Coordination
from penstock.cluster.model import ClusterImage, PartitionState
from penstock.protocol.errors import ApiError

log = logging.getLogger("penstock.replication")

ATTEMPTS = 10

Change = Callable[[PartitionState], PartitionState | None]
Done = Callable[[bool], None]  # whether the change was made


@dataclass(frozen=True, slots=True)
class _Asked:
    index: int
    change: Change
    done: Done
    once: bool


class PartitionChanges:
    def __init__(self, catalog: Catalog, store: Coordination, image: ClusterImage) -> None:
        self._catalog = catalog
        self._store = store
        self._image = image
        self._waiting: dict[str, list[_Asked]] = {}
        self._task: asyncio.Task[None] | None = None

    def ask(self, topic: str, index: int, change: Change, done: Done, *, once: bool = False) -> None:
        """Tells soon whether the change was made. `once`: it is given up if anyone has written to the topic since."""
        if not self._store.connected:
            done(False)
            return
        self._waiting.setdefault(topic, []).append(_Asked(index, change, done, once))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            topic = next(iter(self._waiting))
            asked = self._waiting.pop(topic)
            made = [False] * len(asked)
            try:
                made = await self._write(topic, asked)
            except ApiError as error:
                log.warning("in-sync replicas not changed: %s", error, extra={"topic": topic})
            except Exception:
                log.exception("in-sync replicas not changed", extra={"topic": topic})
            for each, was_made in zip(asked, made):
                each.done(was_made)

    async def _write(self, name: str, asked: list[_Asked]) -> list[bool]:
        for attempt in range(ATTEMPTS):
            topic = self._image.topics.get(name)
            if topic is None:
                break
            partitions, made = list(topic.partitions), []
            for each in asked:
                possible = each.index < len(partitions) and not (attempt and each.once)
                after = each.change(partitions[each.index]) if possible else None
                made.append(after is not None)
                if after is not None:
                    partitions[each.index] = after
            if not any(made) or tuple(partitions) == topic.partitions:
                return made
            try:
                await self._catalog.write_topics([replace(topic, partitions=tuple(partitions))])
                return made
            except Conflict:
                await asyncio.sleep(0)
        return [False] * len(asked)

    async def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
