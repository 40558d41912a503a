"""The one place where an error that ends a request becomes a response.

Where a response has an error of its own, that is set. Where it has parts for what the request asked for, each of them
gets the error, because a client looks for its answer there: `Echo` says which parts those are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages import (
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from penstock.protocol.schema import Message, Struct

ITSELF = ""  # in `Echo.keys`: what the request lists is no struct but a name or an index
UNKNOWN = -1  # as an offset, an epoch, a node or a port


@dataclass(frozen=True, slots=True)
class Echo:
    """For each element that the request lists, one in the response: who it was, and the error."""

    listed: str  # where the request has them
    answered: str  # where the response has them
    struct: type[Struct]
    keys: Mapping[str, str]  # what is repeated: the name in the response, and that in the request
    fixed: Mapping[str, Any] = field(default_factory=dict)
    inner: Echo | None = None


def _same(*names: str) -> dict[str, str]:
    return dict(zip(names, names))


_RESOURCE = _same("resource_type", "resource_name")

ECHOES: dict[type[Message], tuple[Echo, ...]] = {
    produce.ProduceRequest: (
        Echo("topic_data", "responses", produce.TopicProduceResponse, _same("name", "topic_id"), inner=Echo(
            "partition_data", "partition_responses", produce.PartitionProduceResponse, _same("index"),
            {"base_offset": UNKNOWN})),
    ),
    fetch.FetchRequest: (
        Echo("topics", "responses", fetch.FetchableTopicResponse, _same("topic", "topic_id"), inner=Echo(
            "partitions", "partitions", fetch.PartitionData, {"partition_index": "partition"},
            {"high_watermark": UNKNOWN, "records": memoryview(b"")})),
    ),
    list_offsets.ListOffsetsRequest: (
        Echo("topics", "topics", list_offsets.ListOffsetsTopicResponse, _same("name"), inner=Echo(
            "partitions", "partitions", list_offsets.ListOffsetsPartitionResponse, _same("partition_index"))),
    ),
    metadata.MetadataRequest: (
        Echo("topics", "topics", metadata.MetadataResponseTopic, _same("name", "topic_id")),
    ),
    offset_commit.OffsetCommitRequest: (
        Echo("topics", "topics", offset_commit.OffsetCommitResponseTopic, _same("name", "topic_id"), inner=Echo(
            "partitions", "partitions", offset_commit.OffsetCommitResponsePartition, _same("partition_index"))),
    ),
    offset_fetch.OffsetFetchRequest: (
        Echo("groups", "groups", offset_fetch.OffsetFetchResponseGroup, _same("group_id")),
        Echo("topics", "topics", offset_fetch.OffsetFetchResponseTopic, _same("name"), inner=Echo(
            "partition_indexes", "partitions", offset_fetch.OffsetFetchResponsePartition,
            {"partition_index": ITSELF}, {"committed_offset": UNKNOWN, "metadata": ""})),
    ),
    find_coordinator.FindCoordinatorRequest: (
        Echo("coordinator_keys", "coordinators", find_coordinator.Coordinator, {"key": ITSELF},
             {"node_id": UNKNOWN, "port": UNKNOWN}),
    ),
    describe_groups.DescribeGroupsRequest: (
        Echo("groups", "groups", describe_groups.DescribedGroup, {"group_id": ITSELF}),
    ),
    consumer_group_describe.ConsumerGroupDescribeRequest: (
        Echo("group_ids", "groups", consumer_group_describe.DescribedGroup, {"group_id": ITSELF}),
    ),
    create_topics.CreateTopicsRequest: (
        Echo("topics", "topics", create_topics.CreatableTopicResult, _same("name")),
    ),
    delete_topics.DeleteTopicsRequest: (
        Echo("topic_names", "responses", delete_topics.DeletableTopicResult, {"name": ITSELF}),
        Echo("topics", "responses", delete_topics.DeletableTopicResult, _same("name", "topic_id")),
    ),
    delete_records.DeleteRecordsRequest: (
        Echo("topics", "topics", delete_records.DeleteRecordsTopicResult, _same("name"), inner=Echo(
            "partitions", "partitions", delete_records.DeleteRecordsPartitionResult, _same("partition_index"),
            {"low_watermark": UNKNOWN})),
    ),
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: (
        Echo("topics", "topics", offset_for_leader_epoch.OffsetForLeaderTopicResult, _same("topic"), inner=Echo(
            "partitions", "partitions", offset_for_leader_epoch.EpochEndOffset, _same("partition"))),
    ),
    describe_configs.DescribeConfigsRequest: (
        Echo("resources", "results", describe_configs.DescribeConfigsResult, _RESOURCE),
    ),
    alter_configs.AlterConfigsRequest: (
        Echo("resources", "responses", alter_configs.AlterConfigsResourceResponse, _RESOURCE),
    ),
    incremental_alter_configs.IncrementalAlterConfigsRequest: (
        Echo("resources", "responses", incremental_alter_configs.AlterConfigsResourceResponse, _RESOURCE),
    ),
    create_partitions.CreatePartitionsRequest: (
        Echo("topics", "results", create_partitions.CreatePartitionsTopicResult, _same("name")),
    ),
    delete_groups.DeleteGroupsRequest: (
        Echo("groups_names", "results", delete_groups.DeletableGroupResult, {"group_id": ITSELF}),
    ),
    describe_producers.DescribeProducersRequest: (
        Echo("topics", "topics", describe_producers.TopicResponse, _same("name"), inner=Echo(
            "partition_indexes", "partitions", describe_producers.PartitionResponse, {"partition_index": ITSELF})),
    ),
    elect_leaders.ElectLeadersRequest: (
        Echo("topic_partitions", "replica_election_results", elect_leaders.ReplicaElectionResult, _same("topic"),
             inner=Echo("partitions", "partition_result", elect_leaders.PartitionResult, {"partition_id": ITSELF})),
    ),
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: (
        Echo("topics", "responses", alter_partition_reassignments.ReassignableTopicResponse, _same("name"), inner=Echo(
            "partitions", "partitions", alter_partition_reassignments.ReassignablePartitionResponse,
            _same("partition_index"))),
    ),
    add_partitions_to_txn.AddPartitionsToTxnRequest: (
        Echo("v3_and_below_topics", "results_by_topic_v3_and_below",
             add_partitions_to_txn.AddPartitionsToTxnTopicResult, _same("name"), inner=Echo(
            "partitions", "results_by_partition", add_partitions_to_txn.AddPartitionsToTxnPartitionResult,
            {"partition_index": ITSELF})),
    ),
    txn_offset_commit.TxnOffsetCommitRequest: (
        Echo("topics", "topics", txn_offset_commit.TxnOffsetCommitResponseTopic, _same("name"), inner=Echo(
            "partitions", "partitions", txn_offset_commit.TxnOffsetCommitResponsePartition, _same("partition_index"))),
    ),
    write_txn_markers.WriteTxnMarkersRequest: (
        Echo("markers", "markers", write_txn_markers.WritableTxnMarkerResult, _same("producer_id"), inner=Echo(
            "topics", "topics", write_txn_markers.WritableTxnMarkerTopicResult, _same("name"), inner=Echo(
                "partition_indexes", "partitions", write_txn_markers.WritableTxnMarkerPartitionResult,
                {"partition_index": ITSELF}))),
    ),
    describe_transactions.DescribeTransactionsRequest: (
        Echo("transactional_ids", "transaction_states", describe_transactions.TransactionState,
             {"transactional_id": ITSELF}),
    ),
    describe_topic_partitions.DescribeTopicPartitionsRequest: (
        Echo("topics", "topics", describe_topic_partitions.DescribeTopicPartitionsResponseTopic, _same("name")),
    ),
}  # fmt: skip

# What has neither an error of its own nor parts that could carry one would leave the client without an answer.
assert all("error_code" in RESPONSE_OF[request].fields for request in RESPONSE_OF.keys() - ECHOES.keys())


def error_response(request: Message, version: int, error: ApiError) -> Message | None:
    """None where the client waits for no answer."""
    if isinstance(request, produce.ProduceRequest) and request.acks == 0:
        return None
    response = RESPONSE_OF[type(request)]()
    _set_error(response, error)
    for echo in ECHOES.get(type(request), ()):
        answers = getattr(response, echo.answered)
        answers.extend(_echoes(request, echo, error))
    _adjust(request, response, version, error)
    return response


def _echoes(listing: Struct, echo: Echo, error: ApiError) -> list[Struct]:
    answers = []
    for element in getattr(listing, echo.listed) or ():
        answer = echo.struct(**echo.fixed)
        for name, source in echo.keys.items():
            setattr(answer, name, element if source == ITSELF else getattr(element, source))
        _set_error(answer, error)
        if echo.inner is not None:
            setattr(answer, echo.inner.answered, _echoes(element, echo.inner, error))
        answers.append(answer)
    return answers


def _set_error(answer: Any, error: ApiError) -> None:
    if "error_code" in answer.fields:
        answer.error_code = error.code
    if "partition_error_code" in answer.fields:
        answer.partition_error_code = error.code
    if "error_message" in answer.fields:
        answer.error_message = error.message


def _adjust(request: Message, response: Message, version: int, error: ApiError) -> None:
    """The fields that no rule gives."""
    if isinstance(response, fetch.FetchResponse):
        assert isinstance(request, fetch.FetchRequest)
        response.session_id = request.session_id
        if version >= 13:  # since then every client reads the error of the whole
            response.responses = []
    elif isinstance(response, metadata.MetadataResponse):
        for topic in response.topics:
            topic.name = topic.name or ""  # only version 12 may leave it out
    elif isinstance(response, offset_fetch.OffsetFetchResponse) and version >= 2:
        response.topics = []
    elif isinstance(response, find_coordinator.FindCoordinatorResponse):
        response.node_id = response.port = UNKNOWN
    elif isinstance(response, join_group.JoinGroupResponse):
        response.protocol_name = None if version >= 7 else ""
    elif isinstance(response, describe_log_dirs.DescribeLogDirsResponse) and version < 3:
        response.results = [describe_log_dirs.DescribeLogDirsResult(error_code=error.code)]
    elif isinstance(response, init_producer_id.InitProducerIdResponse):
        response.producer_epoch = UNKNOWN
    elif isinstance(response, api_versions.ApiVersionsResponse) and error.code is ErrorCode.UNSUPPORTED_VERSION:
        first, last = request.versions  # so that the client can ask again (KIP-511)
        response.api_keys = [api_versions.ApiVersion(key=request.api_key, min_version=first, max_version=last)]
