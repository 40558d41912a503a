"""Tells the cluster that this broker has deleted what it held of topics that are gone.

A deleted topic leaves a note with the brokers that held some of it. Each takes itself off the note when its folders
are gone, and the last one removes it. A broker that was away finds the note when it comes back, and knows that what it
holds of the topic is garbage, and not data that someone forgot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

from penstock.cluster.catalog import Catalog, Conflict
from penstock.cluster.coordination import CoordinationError, NoNode, Operation
from penstock.cluster.model import TopicState
from penstock.cluster.nodes import DeletionNode, ForeignNode, save
from penstock.protocol.errors import ApiError

log = logging.getLogger("penstock.topics")

PER_WRITE = 200
AGAIN_S = 5.0
CONFLICT_REST_S = 0.01
NOTE_STAYS_S = 2.0  # so that all who run have seen it, also those who held nothing


class Deletions:
    def __init__(self, catalog: Catalog, node_id: int) -> None:
        self._catalog = catalog
        self._node_id = node_id
        self._gone: dict[str, None] = {}  # topic ids
        self._task: asyncio.Task[None] | None = None

    @property
    def awaited(self) -> set[str]:
        """The ids of topics of which this broker may hold some still."""
        return {name for name, node in self._catalog.deletions.items() if self._node_id in node.replicas}

    def topic_created(self, topic: TopicState) -> None: ...

    def topic_changed(self, before: TopicState, after: TopicState) -> None: ...

    def topic_deleted(self, topic: TopicState) -> None:
        """Whoever deletes folders was told before."""
        self.done([topic.topic_id.hex()])

    def topic_lost(self, topic: TopicState) -> None: ...

    def lost_topic_deleted(self, topic: TopicState) -> None:
        self.done([topic.topic_id.hex()])

    def done(self, topic_ids: Iterable[str]) -> None:
        self._gone.update(dict.fromkeys(topic_ids))
        if self._gone and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(0 if self._catalog.is_alone else NOTE_STAYS_S)
        while self._gone:
            some = list(self._gone)[:PER_WRITE]
            try:
                await self._tell_of(some)
            except (Conflict, ApiError, CoordinationError) as error:
                log.debug("told later: %r", error)
                await asyncio.sleep(CONFLICT_REST_S if isinstance(error, Conflict) else AGAIN_S)
                continue
            for topic_id in some:
                self._gone.pop(topic_id, None)

    async def _tell_of(self, topic_ids: list[str]) -> None:
        operations: list[Operation] = []
        for topic_id in topic_ids:
            try:
                node = DeletionNode.decode(topic_id, await self._catalog.store.get(f"/deletions/{topic_id}"))
            except (NoNode, ForeignNode):
                continue
            left = tuple(replica for replica in node.replicas if replica != self._node_id)
            if left != node.replicas:
                operations.append(save(replace(node, replicas=left)) if left else node.remove())
        if operations:
            await self._catalog.write(operations)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
