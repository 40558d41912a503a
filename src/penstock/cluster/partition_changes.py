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
from penstock.cluster.nodes import TopicNode
from penstock.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("penstock.replication")

ATTEMPTS = 10
CONFLICT_REST_S = 0.01  # and as much more with every attempt
FIND_OUT_S = 0.1

Change = Callable[[PartitionState], PartitionState | None]
Done = Callable[[bool], None]  # whether the change was made


@dataclass(slots=True)
class _Asked:
    index: int
    change: Change
    done: Done
    version: int | None  # of the topic's node when it was asked, if it counts for that one alone


class PartitionChanges:
    def __init__(self, catalog: Catalog, store: Coordination, image: ClusterImage) -> None:
        self._catalog = catalog
        self._store = store
        self._image = image
        self._waiting: dict[str, list[_Asked]] = {}
        self._task: asyncio.Task[None] | None = None

    def ask(self, topic: str, index: int, change: Change, done: Done, *, once: bool = False) -> None:
        """Tells whether the change was made, when that is known. `once`: it is given up if anyone else has written to
        the topic since."""
        if not self._store.connected:
            done(False)
            return
        version = self._catalog.version_of(topic) if once else None
        self._waiting.setdefault(topic, []).append(_Asked(index, change, done, version))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def touch(self, name: str) -> None:
        """Writes the topic as it is: what others were about to write to it fails. Raises ApiError."""
        for attempt in range(ATTEMPTS):
            topic = self._image.topics.get(name)
            if topic is None:
                return
            try:
                await self._catalog.write_topics([topic])
                return
            except Conflict:
                await asyncio.sleep(attempt * CONFLICT_REST_S)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others keep changing {name}")

    async def _work(self) -> None:
        while self._waiting:
            topic = next(iter(self._waiting))
            asked = self._waiting.pop(topic)
            made = [False] * len(asked)
            try:
                made = await self._write(topic, asked)
            except Exception as error:  # it may have been made: nobody is told otherwise before that is known
                log.warning("in-sync replicas not changed, or it is not known: %s", error, extra={"topic": topic})
                await self._find_out(topic)
            for each, was_made in zip(asked, made):
                each.done(was_made)

    async def _find_out(self, topic: str) -> None:
        """Behind this, the image has what the write has done, if it has done anything."""
        while True:
            await asyncio.sleep(FIND_OUT_S)
            if self._store.connected:
                try:
                    await self._catalog.refresh([TopicNode.path_of(topic)])
                    return
                except ApiError as error:
                    log.debug("not known yet: %s", error)

    async def _write(self, name: str, asked: list[_Asked]) -> list[bool]:
        for attempt in range(ATTEMPTS):
            topic, version = self._image.topics.get(name), self._catalog.version_of(name)
            if topic is None:
                break
            partitions, made = list(topic.partitions), []
            for each in asked:
                stale = each.version is not None and (attempt > 0 or each.version != version)
                after = each.change(partitions[each.index]) if each.index < len(partitions) and not stale else None
                made.append(after is not None)
                if after is not None:
                    partitions[each.index] = after
            if not any(made) or tuple(partitions) == topic.partitions:
                return made
            try:
                await self._catalog.write_topics([replace(topic, partitions=tuple(partitions))])
            except Conflict:
                await asyncio.sleep(attempt * CONFLICT_REST_S)
                continue
            for waiting in self._waiting.get(name, ()):  # a write of this broker's own takes nothing from them
                if waiting.version == version:
                    waiting.version = version + 1
            return made
        else:
            log.warning("in-sync replicas not changed: others keep changing the topic", extra={"topic": name})
        return [False] * len(asked)

    async def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
