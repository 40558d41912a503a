"""Members that nobody wants in a group: enormous, nonsensical, or never heard of again."""

from __future__ import annotations

import pytest

from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.hostile.conftest import Hostile
from tests.hostile.members import SESSION_MS, VERSION, join

INVALID_SESSION_TIMEOUT, INVALID_GROUP_ID, OFFSET_METADATA_TOO_LARGE, MEMBER_ID_REQUIRED = 26, 24, 12, 79


def test_a_request_without_records_may_not_be_as_large_as_one_with_them(hostile: Hostile, group: str) -> None:
    assert join(hostile(), group, b"m" * 9_000_000) is None


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1, 1, 5_999])
def test_session_timeouts_out_of_bounds_are_refused(hostile: Hostile, group: str, timeout_ms: int) -> None:
    joined = join(hostile(), group, session_timeout_ms=timeout_ms)
    assert joined is not None
    assert joined.error_code == INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1])
def test_any_rebalance_timeout_is_answered(hostile: Hostile, group: str, timeout_ms: int) -> None:
    assert join(hostile(), group, rebalance_timeout_ms=timeout_ms) is not None


def test_a_group_without_a_name_is_refused(hostile: Hostile, group: str) -> None:
    joined = join(hostile(), "")
    assert joined is not None
    assert joined.error_code == INVALID_GROUP_ID


def test_thousands_who_ask_for_a_member_id_and_never_come_back_are_bounded(hostile: Hostile, group: str) -> None:
    client = hostile()
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    errors = [client.ask(request, 9).error_code for _ in range(1_500)]
    assert errors[0] == MEMBER_ID_REQUIRED
    assert errors[-1] != 0


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_offsets_that_make_no_sense_are_answered(hostile: Hostile, group: str, topic: str, offset: int) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=offset) for i in (0, -1, 2**31 - 1)]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in (topic, "../x", "\0", "")]
    assert hostile().ask(OffsetCommitRequest(group_id=group, topics=topics), 8) is not None


def test_a_commit_with_a_very_long_note_is_refused(hostile: Hostile, group: str, topic: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 30_000)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    response = hostile().ask(request, 8)
    assert response.topics[0].partitions[0].error_code == OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("name", ["x" * 32_767, "\0", "../../etc", "naïve \U0001f6b0", "a\nb"], ids=range(5))
def test_groups_and_members_may_be_called_anything(hostile: Hostile, group: str, name: str) -> None:
    client = hostile()
    assert join(client, name) is not None
    assert client.ask(HeartbeatRequest(group_id=name, generation_id=-5, member_id=name), VERSION) is not None
    members = [MemberIdentity(member_id=name, group_instance_id=name)]
    assert client.ask(LeaveGroupRequest(group_id=name, members=members), 5) is not None
    assert client.ask(DescribeGroupsRequest(groups=[name]), 5) is not None
