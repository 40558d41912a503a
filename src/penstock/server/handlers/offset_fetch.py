"""OffsetFetch: what groups have committed. Up to version 7 for one group, then for many; topic ids from version 10."""

from __future__ import annotations

import asyncio

from penstock.groups import commands
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.server.context import Call, Context
from penstock.server.group_calls import partition_of

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(context: Context, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    request = call.request
    if call.version < FIRST_VERSION_WITH_GROUPS:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics
            ]
        asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        return _single(await _fetch(context, call, asked), call.version)
    each_once = {group.group_id: group for group in request.groups}
    groups = await asyncio.gather(*(_fetch(context, call, group) for group in each_once.values()))
    return OffsetFetchResponse(groups=list(groups))


async def _fetch(
    context: Context, call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    unknown: list[OffsetFetchResponseTopics] = []
    with_ids = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
    if with_ids and group.topics is not None:
        group, unknown = _named(context, group)
    try:
        answer: OffsetFetchResponseGroup = await context.groups.ask(
            partition_of(context, group.group_id),
            lambda ticket: commands.FetchOffsets(ticket, group, call.request.require_stable),
        )
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if with_ids:
        known = [topic for topic in answer.topics if topic.name in context.image.topics]
        for topic in known:
            topic.topic_id = context.image.topics[topic.name].topic_id
        answer.topics = known + unknown
    return answer


def _named(
    context: Context, group: OffsetFetchRequestGroup
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """The request with names for ids, and the answer for ids that nobody has."""
    named = OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=[]
    )
    unknown = []
    for topic in group.topics or []:
        state = context.image.topics_by_id.get(topic.topic_id)
        if state is not None and named.topics is not None:
            named.topics.append(OffsetFetchRequestTopics(name=state.name, partition_indexes=topic.partition_indexes))
            continue
        missing = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in topic.partition_indexes
        ]
        unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=missing))
    return named, unknown


def _single(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in group.topics:
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=p.partition_index,
                committed_offset=p.committed_offset,
                committed_leader_epoch=p.committed_leader_epoch,
                metadata=p.metadata,
                error_code=p.error_code,
            )
            for p in topic.partitions
        ]
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response
