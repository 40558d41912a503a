"""What may be asked of a group machine: one value per command, each with the ticket under which it is answered.

A command holds the decoded request, or the part of it that belongs to the groups of one machine where an API spans
several: the server splits such a request by partition of `__consumer_offsets`, and joins the answers. Topics are named;
the server has translated topic ids. `version` is there where the answer depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.coordinator.machine import Ticket
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
class CommitOffsets:
    """Answered with an OffsetCommitResponse."""

    ticket: Ticket
    request: OffsetCommitRequest
    version: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """One group's part of an OffsetFetch, in the shape of version 8. Answered with an OffsetFetchResponseGroup.

    Every answer of a machine waits for what was appended before it, which is all that `require_stable` asks while no
    offsets are committed in transactions (KIP-447).
    """

    ticket: Ticket
    request: OffsetFetchRequestGroup
    require_stable: bool = False


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


Command = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DescribeGroups
    | ListGroups
    | DeleteGroups
    | TopicsDeleted
)
