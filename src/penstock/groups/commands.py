"""What may be asked of a group machine: one value per command, each with the ticket under which it is answered.

A command holds the decoded request, or the part of it that belongs to the groups of one machine where an API spans
several: the server splits such a request by partition of `__consumer_offsets`, and joins the answers. Topics are named;
the server has translated topic ids. `version` is there where the answer depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.coordinator.machine import Ticket
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.protocol.messages.sync_group import SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Join:
    """Answered with a JoinGroupResponse, when the group's members have joined."""

    ticket: Ticket
    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Answered with a SyncGroupResponse, when the leader's assignment is stored."""

    ticket: Ticket
    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Answered with a HeartbeatResponse."""

    ticket: Ticket
    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class Leave:
    """Answered with a LeaveGroupResponse."""

    ticket: Ticket
    request: LeaveGroupRequest
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """Answered with a ConsumerGroupHeartbeatResponse (KIP-848)."""

    ticket: Ticket
    request: ConsumerGroupHeartbeatRequest
    version: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Answered with an OffsetCommitResponse."""

    ticket: Ticket
    request: OffsetCommitRequest
    version: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """One group's part of an OffsetFetch, in the shape of version 8. Answered with an OffsetFetchResponseGroup.

    `require_stable` is for readers that must not begin behind a transaction that is still open (KIP-447).
    """

    ticket: Ticket
    request: OffsetFetchRequestGroup
    require_stable: bool = False


class TransactionalOffset(NamedTuple):
    """What one partition of a TxnOffsetCommit holds."""

    partition: int
    offset: int
    leader_epoch: int  # -1 where the consumer did not know it
    metadata: str | None


@dataclass(frozen=True, slots=True)
class CommitTransactionalOffsets:
    """Offsets that count when the producer's transaction is committed (KIP-98, KIP-447).

    Answered with a list of (topic, [(partition, ErrorCode)]), in the order of `topics`. Who is no member says so with
    an empty member id and a generation of -1.
    """

    ticket: Ticket
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int
    producer_id: int
    producer_epoch: int
    topics: list[tuple[str, list[TransactionalOffset]]]


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Answered with an OffsetDeleteResponse."""

    ticket: Ticket
    request: OffsetDeleteRequest


@dataclass(frozen=True, slots=True)
class DescribeGroups:
    """Answered with a list of DescribedGroup, in the order of `group_ids`."""

    ticket: Ticket
    group_ids: tuple[str, ...]
    version: int


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroups:
    """Answered with a list of DescribedGroup of ConsumerGroupDescribe, in the order of `group_ids`."""

    ticket: Ticket
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Answered with a list of ListedGroup."""

    ticket: Ticket
    request: ListGroupsRequest


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    """Answered with a list of DeletableGroupResult, in the order of `group_ids`."""

    ticket: Ticket
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics are gone, and the offsets committed for them go too. Answered with None."""

    ticket: Ticket
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """A topic came, went or got more partitions: subscriptions may mean something else now. Answered with None."""

    ticket: Ticket


Command = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | ConsumerHeartbeat
    | CommitOffsets
    | FetchOffsets
    | CommitTransactionalOffsets
    | DeleteOffsets
    | DescribeGroups
    | DescribeConsumerGroups
    | ListGroups
    | DeleteGroups
    | TopicsDeleted
    | TopicsChanged
)

# Heartbeats are none of them: members go on while nothing can be written.
APPENDING = (Join, Sync, Leave, CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, DeleteGroups)
