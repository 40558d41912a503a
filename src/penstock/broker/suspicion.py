"""What a broker does about its replicas before it tells anyone that it is back.

What it led in its former life it leads no more, until it is elected to it in another epoch.

Under `flush=commit` nothing that was acknowledged can be lost with the power. Otherwise a machine that went down took
along what was written and not synced, whatever `flush` is set by now; a folder that is new to its broker lacks
everything; and recovery may have found damage. Such a replica must not count as in sync until it has fetched again what
it lacks, so it takes itself out. The write happens even where it changes nothing: whoever was about to take it in on
the strength of its former life fails.

The start may fail before that is written, and recovery has mended by then what it found. So nothing that speaks for the
suspicion goes before: the folder keeps the boot that it knew, the marks of damage and the notes of what was not synced,
and gets no word of a clean stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from penstock.cluster.catalog import Catalog, Conflict
from penstock.cluster.elections import put_last, vacate, withdraw
from penstock.cluster.model import NO_LEADER, ClusterImage, PartitionState, TopicState
from penstock.cluster.settings import BrokerSettings, effective_topic_settings
from penstock.replication.unsynced_topics import is_noted

log = logging.getLogger("penstock.broker")

TOPICS_PER_WRITE = 100
AGAIN_S = 0.05  # behind a write that met another


class Suspicion:
    def __init__(
        self,
        node_id: int,
        settings: BrokerSettings,
        *,
        damaged: Collection[tuple[str, int]],
        lost: Collection[tuple[str, int]],
        power_lost: bool,
        folder_is_new: bool,
        unsynced: Collection[bytes] = (),
    ) -> None:
        """`unsynced` notes the topics that had something to lose with the power."""
        self._node_id = node_id
        self._settings = settings
        self._damaged = damaged
        self._lost = lost
        self._power_lost = power_lost
        self._folder_is_new = folder_is_new
        self._unsynced = unsynced

    async def act(self, catalog: Catalog, image: ClusterImage) -> None:
        names = [topic.name for topic in image.topics.values() if self._after(topic, image) is not None]
        for start in range(0, len(names), TOPICS_PER_WRITE):
            await self._write(catalog, image, names[start : start + TOPICS_PER_WRITE])

    async def _write(self, catalog: Catalog, image: ClusterImage, names: list[str]) -> None:
        while True:
            found = [image.topics[name] for name in names if name in image.topics]
            changed = [after for topic in found if (after := self._after(topic, image)) is not None]
            try:
                if changed:
                    await catalog.write_apart(changed)
                    log.info("begins anew with its replicas", extra={"topics": len(changed)})
                return
            except Conflict as conflict:
                log.info("told again in a moment: %s", conflict)
                await asyncio.sleep(AGAIN_S)

    def _after(self, topic: TopicState, image: ClusterImage) -> TopicState | None:
        """None if there is nothing to do about it."""
        value: Mapping[str, Any] = effective_topic_settings(topic.config, self._settings)
        had_to_lose = value["flush"] != "commit" or is_noted(topic.topic_id, self._unsynced)
        all_of_it = self._folder_is_new or (self._power_lost and had_to_lose)
        partitions, suspect = list(topic.partitions), False
        for index, state in enumerate(partitions):
            if self._node_id not in state.replicas or len(state.replicas) == 1:
                continue
            if all_of_it or (topic.name, index) in self._damaged:
                suspect = True
                nothing_left = self._folder_is_new or (topic.name, index) in self._lost
                after = self._without(state, value["min.insync.replicas"], nothing_left)
                partitions[index] = put_last(after, self._node_id, image.brokers) if nothing_left else after
            elif state.leader == self._node_id:
                suspect = True
                partitions[index] = vacate(state, self._node_id)
        return replace(topic, partitions=tuple(partitions)) if suspect else None

    def _without(self, state: PartitionState, min_insync: int, nothing_left: bool) -> PartitionState:
        after = vacate(withdraw(state, self._node_id, min_insync), self._node_id)
        if not nothing_left or self._node_id not in (*after.isr, *after.eligible):
            return after
        # The only one that had it all has nothing any more: who leads now is for a person to say.
        epoch = max(after.leader_epoch, state.leader_epoch + 1)
        return replace(after, leader=NO_LEADER, leader_epoch=epoch, isr=(), eligible=(), last_leader=NO_LEADER)
