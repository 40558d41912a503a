"""What a group has committed, and commits of a job that is no member of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.pipeline.brokers import GROUP, PASSING, Brokers, TopicPartition, by_topic
from penstock.pipeline.problem import PipelineError
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

COMMIT_VERSION = 9  # the last that names topics
FETCH_VERSION = 9
PARTITIONS_MAX = 10_000  # in one request


class Committed(NamedTuple):
    offset: int
    metadata: str | None


def committed(brokers: Brokers, group: str, places: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
    """Partitions of which the group has committed nothing are left out."""
    found: dict[TopicPartition, Committed] = {}
    for some in _portions(places):
        found |= brokers.until_answered(lambda: _ask(brokers, group, some), f"offsets of group {group}")  # noqa: B023
    return found


def _ask(brokers: Brokers, group: str, places: list[TopicPartition]) -> dict[TopicPartition, Committed]:
    topics = [
        OffsetFetchRequestTopics(name=name, partition_indexes=[each.partition for each in each_of])
        for name, each_of in by_topic(places).items()
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
    connection = brokers.coordinator(GROUP, group)
    answer: OffsetFetchResponse = connection.ask(request, connection.newest(OffsetFetchRequest, FETCH_VERSION))
    of_group = answer.groups[0]
    _raise(of_group.error_code, f"group {group}")
    found = {}
    for topic in of_group.topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            _raise(each.error_code, f"group {group} in {place}")
            if each.committed_offset >= 0:
                found[place] = Committed(each.committed_offset, each.metadata)
    return found


def commit(brokers: Brokers, group: str, offsets: Mapping[TopicPartition, int], metadata: str | None = None) -> None:
    """As nobody in particular: refused while the group has members."""
    for some in _portions(offsets):
        request = _commit_request(group, {place: offsets[place] for place in some}, metadata)
        brokers.until_answered(lambda: _send(brokers, group, request), f"a commit of group {group}")  # noqa: B023


def _commit_request(group: str, offsets: Mapping[TopicPartition, int], metadata: str | None) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=each.partition, committed_offset=offsets[each], committed_metadata=metadata
                )
                for each in each_of
            ],
        )
        for name, each_of in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def _send(brokers: Brokers, group: str, request: OffsetCommitRequest) -> None:
    connection = brokers.coordinator(GROUP, group)
    answer: OffsetCommitResponse = connection.ask(request, connection.newest(OffsetCommitRequest, COMMIT_VERSION))
    for topic in answer.topics:
        for each in topic.partitions:
            _raise(each.error_code, f"a commit of group {group} in {topic.name}-{each.partition_index}")


def _raise(error_code: int, what: str) -> None:
    code = ErrorCode(error_code)
    if code in PASSING:
        raise ApiError(code, what)
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        raise PipelineError(f"{what}: consumers are in the group; choose another name for the job's progress")
    if code is not ErrorCode.NONE:
        raise PipelineError(f"{what}: {code.name}")


def _portions(places: Iterable[TopicPartition]) -> Iterable[list[TopicPartition]]:
    each = sorted(places)
    return (each[at : at + PARTITIONS_MAX] for at in range(0, len(each), PARTITIONS_MAX))
