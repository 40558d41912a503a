"""Members that nobody wants in a group: enormous, nonsensical, or never heard of again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.brokers import BrokerProcess
from tests.hostile.clients import RawClient
from tests.hostile.conftest import Connect

INVALID_SESSION_TIMEOUT, INVALID_GROUP_ID, OFFSET_METADATA_TOO_LARGE, MEMBER_ID_REQUIRED = 26, 24, 12, 79
VERSION = 3  # the last in which a member need not come twice
SESSION_MS = 30_000


@pytest.fixture
def group(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    name = unique("group")
    client = RawClient(broker.port)
    while client.ask(FindCoordinatorRequest(coordinator_keys=[name], key_type=0), 4).coordinators[0].error_code:
        time.sleep(0.02)
    return name


def join(client: RawClient, group: str, metadata: bytes = b"", **options: Any) -> JoinGroupResponse | None:
    options = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, **options}
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = JoinGroupRequest(group_id=group, protocol_type="consumer", protocols=protocols, **options)
    response: JoinGroupResponse | None = client.ask(request, VERSION)
    return response


def sync(client: RawClient, group: str, joined: JoinGroupResponse, assignment: bytes) -> Any:
    given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
    member = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    return client.ask(SyncGroupRequest(group_id=group, assignments=given, **member), VERSION)


@pytest.mark.parametrize("size", [900_000, 5_000_000, 15_000_000, 16_700_000])
def test_members_with_enormous_metadata_do_not_fill_the_memory(hostile: Connect, group: str, size: int) -> None:
    """Whether they are let in or not: six groups with one such member each."""
    client = hostile()
    for number in range(6):
        join(client, f"{group}-{number}", b"m" * size)
        if size > 16 * 1024 * 1024:
            client = hostile()  # a frame beyond what a request without records may have closes the connection


@pytest.mark.parametrize("size", [1_500_000, 15_000_000])
def test_an_assignment_too_large_to_be_stored_harms_no_other_group(hostile: Connect, group: str, size: int) -> None:
    honest, client = hostile(), hostile()
    member = join(honest, f"{group}-honest")
    assert member is not None
    assert sync(honest, f"{group}-honest", member, b"mine").error_code == 0
    for number in range(8):  # one of them is likely to live where the honest group does
        joined = join(client, f"{group}-{number}")
        assert joined is not None
        sync(client, f"{group}-{number}", joined, b"a" * size)
    beat = HeartbeatRequest(group_id=f"{group}-honest", generation_id=member.generation_id, member_id=member.member_id)
    assert honest.ask(beat, VERSION).error_code == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1, 1, 5_999])
def test_session_timeouts_out_of_bounds_are_refused(hostile: Connect, group: str, timeout_ms: int) -> None:
    joined = join(hostile(), group, session_timeout_ms=timeout_ms)
    assert joined is not None
    assert joined.error_code == INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1])
def test_any_rebalance_timeout_is_answered(hostile: Connect, group: str, timeout_ms: int) -> None:
    assert join(hostile(), group, rebalance_timeout_ms=timeout_ms) is not None


def test_a_group_without_a_name_is_refused(hostile: Connect, group: str) -> None:
    joined = join(hostile(), "")
    assert joined is not None
    assert joined.error_code == INVALID_GROUP_ID


def test_describing_one_group_thousands_of_times_does_not_repeat_it(hostile: Connect, group: str) -> None:
    client = hostile()
    joined = join(client, group, b"m" * 500_000)
    assert joined is not None
    sync(client, group, joined, b"")
    assert client.ask(DescribeGroupsRequest(groups=[group] * 5_000), 5) is not None


def test_thousands_who_ask_for_a_member_id_and_never_come_back_are_bounded(hostile: Connect, group: str) -> None:
    client = hostile()
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    errors = [client.ask(request, 9).error_code for _ in range(1_500)]
    assert errors[0] == MEMBER_ID_REQUIRED
    assert errors[-1] != 0


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_offsets_that_make_no_sense_are_answered(hostile: Connect, group: str, topic: str, offset: int) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=offset) for i in (0, -1, 2**31 - 1)]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in (topic, "../x", "\0", "")]
    assert hostile().ask(OffsetCommitRequest(group_id=group, topics=topics), 8) is not None


def test_a_commit_with_a_very_long_note_is_refused(hostile: Connect, group: str, topic: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 30_000)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    response = hostile().ask(request, 8)
    assert response.topics[0].partitions[0].error_code == OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("name", ["x" * 32_767, "\0", "../../etc", "naïve \U0001f6b0", "a\nb"], ids=range(5))
def test_groups_and_members_may_be_called_anything(hostile: Connect, group: str, name: str) -> None:
    client = hostile()
    assert join(client, name) is not None
    assert client.ask(HeartbeatRequest(group_id=name, generation_id=-5, member_id=name), VERSION) is not None
    members = [MemberIdentity(member_id=name, group_instance_id=name)]
    assert client.ask(LeaveGroupRequest(group_id=name, members=members), 5) is not None
    assert client.ask(DescribeGroupsRequest(groups=[name]), 5) is not None
