"""What groups have committed, asked of their coordinators: of the machine here, or of another broker with OffsetFetch.

Offsets of transactions that are still open do not count. Nothing is tried twice: who is not answered asks again when it
needs to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.cluster.model import ClusterImage
from penstock.coordinator.runtime import Runtime
from penstock.groups import commands
from penstock.protocol.errors import ApiError
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from penstock.server.group_calls import java_hash
from penstock.transport.peers import ANSWER_S_MAX, Peers

VERSION = 9
NOTHING = -1

Key = tuple[str, int]


class CommittedOffsets:
    def __init__(self, node_id: int, image: ClusterImage, groups: Runtime, peers: Peers) -> None:
        self._node_id = node_id
        self._image = image
        self._groups = groups
        self._peers = peers

    async def of(self, group_id: str, partitions: Sequence[Key]) -> dict[Key, int]:
        """NOTHING where the group has committed none. What is not known now is left out: the coordinator is away, or
        has not read its log yet."""
        topic = self._image.topics.get(self._groups.topic)
        if topic is None:
            return dict.fromkeys(partitions, NOTHING)  # no group has ever committed anything
        index = java_hash(group_id) % len(topic.partitions)
        asked = _question(group_id, partitions)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                answer = await self._ask(index, topic.partitions[index].leader, asked)
        except (ApiError, TimeoutError):
            return {}
        if answer is None or answer.error_code:
            return {}
        found = ((each.name, partition) for each in answer.topics for partition in each.partitions)
        return {(name, each.partition_index): each.committed_offset for name, each in found if not each.error_code}

    async def _ask(
        self, index: int, coordinator: int, asked: OffsetFetchRequestGroup
    ) -> OffsetFetchResponseGroup | None:
        if coordinator == self._node_id:
            here: OffsetFetchResponseGroup = await self._groups.ask(
                index, lambda ticket: commands.FetchOffsets(ticket, asked)
            )
            return here
        if coordinator not in self._image.brokers:
            return None
        answer = await self._peers.ask(coordinator, OffsetFetchRequest(groups=[asked]), VERSION, OffsetFetchResponse)
        return answer.groups[0] if answer is not None and len(answer.groups) == 1 else None


def _question(group_id: str, partitions: Sequence[Key]) -> OffsetFetchRequestGroup:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
    return OffsetFetchRequestGroup(group_id=group_id, topics=topics)
