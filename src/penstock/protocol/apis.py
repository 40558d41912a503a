"""Every API that this tree can read and write: each request with its response, by api key.

This says what can be put into bytes; which of these a broker answers, and from which version, is the broker's to say.
"""

from __future__ import annotations

from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from penstock.protocol.schema import Message

RESPONSE_OF: dict[type[Message], type[Message]] = {
    ProduceRequest: ProduceResponse,
    FetchRequest: FetchResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    MetadataRequest: MetadataResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
    JoinGroupRequest: JoinGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    ListGroupsRequest: ListGroupsResponse,
    SaslHandshakeRequest: SaslHandshakeResponse,
    ApiVersionsRequest: ApiVersionsResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    DeleteRecordsRequest: DeleteRecordsResponse,
    InitProducerIdRequest: InitProducerIdResponse,
    OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    DescribeConfigsRequest: DescribeConfigsResponse,
    AlterConfigsRequest: AlterConfigsResponse,
    DescribeLogDirsRequest: DescribeLogDirsResponse,
    SaslAuthenticateRequest: SaslAuthenticateResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
    ElectLeadersRequest: ElectLeadersResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    UpdateFeaturesRequest: UpdateFeaturesResponse,
    DescribeClusterRequest: DescribeClusterResponse,
    DescribeProducersRequest: DescribeProducersResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    ConsumerGroupDescribeRequest: ConsumerGroupDescribeResponse,
    ListConfigResourcesRequest: ListConfigResourcesResponse,
    DescribeTopicPartitionsRequest: DescribeTopicPartitionsResponse,
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
    EndTxnRequest: EndTxnResponse,
    WriteTxnMarkersRequest: WriteTxnMarkersResponse,
    TxnOffsetCommitRequest: TxnOffsetCommitResponse,
    DescribeTransactionsRequest: DescribeTransactionsResponse,
    ListTransactionsRequest: ListTransactionsResponse,
}

REQUESTS: dict[int, type[Message]] = {request.api_key: request for request in RESPONSE_OF}

assert len(REQUESTS) == len(RESPONSE_OF), "two requests share an api key"
