"""What a group's members are told when they are late, unknown or replaced: Kafka's answers, on the wire."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.clients.conftest import Topics
from tests.clients.conversations import find_coordinator, member_of, stable_member_of
from tests.clients.steps import wait_until
from tests.clients.wire import Wire

CONSUMER_RANGE = {"protocol_type": "consumer", "protocol_name": "range"}


@pytest.fixture
def group(unique: Callable[[str], str], wire: Wire) -> str:
    wait_until(lambda: find_coordinator(wire, 3, None).error_code == ErrorCode.NONE)
    return unique("group")


def heartbeat(wire: Wire, group: str, generation: int, member_id: str, instance: str | None = None) -> ErrorCode:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )
    return ErrorCode(wire.ask(request).error_code)


def commit(
    wire: Wire, group: str, topic: str, generation: int, member_id: str, instance: str | None = None
) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return ErrorCode(wire.ask(request, 8).topics[0].partitions[0].error_code)


def test_a_member_without_a_name_is_given_one_first(wire: Wire, group: str) -> None:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    refused = wire.ask(request)
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert refused.member_id.startswith("wire-")
    request.member_id = refused.member_id
    joined = wire.ask(request)
    assert joined.error_code == ErrorCode.NONE
    assert joined.leader == joined.member_id == refused.member_id
    assert joined.generation_id == 1


def test_a_generation_of_the_past_is_refused(wire: Wire, group: str, new_topic: Topics) -> None:
    topic = new_topic()
    generation, member_id, _ = stable_member_of(wire, group)
    assert heartbeat(wire, group, generation, member_id) == ErrorCode.NONE
    assert heartbeat(wire, group, generation - 1, member_id) == ErrorCode.ILLEGAL_GENERATION
    assert commit(wire, group, topic, generation - 1, member_id) == ErrorCode.ILLEGAL_GENERATION
    assert commit(wire, group, topic, generation, member_id) == ErrorCode.NONE


def test_a_stranger_is_refused(wire: Wire, group: str, new_topic: Topics) -> None:
    topic = new_topic()
    generation, _, _ = stable_member_of(wire, group)
    assert heartbeat(wire, group, generation, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(wire, group, topic, generation, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member_of(wire, group, member_id="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = wire.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="stranger")]))
    assert left.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_never_was_knows_nobody(wire: Wire, group: str) -> None:
    assert heartbeat(wire, group, 1, "someone") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member_of(wire, group, member_id="someone").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_are_told_of_a_rebalance_by_their_heartbeats(wire: Wire, group: str, bootstrap: str) -> None:
    generation, member_id, _ = stable_member_of(wire, group)
    with Wire(bootstrap) as other:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        request.member_id = other.ask(request).member_id
        other.send(request)
        wait_until(lambda: heartbeat(wire, group, generation, member_id) == ErrorCode.REBALANCE_IN_PROGRESS)
        rejoined = member_of(wire, group, member_id=member_id)
        joined = other.receive()
    assert rejoined.generation_id == joined.generation_id == generation + 1
    assert rejoined.leader == joined.leader == member_id
    assert {member.member_id for member in rejoined.members} == {member_id, joined.member_id}
    assert joined.members == []


def test_followers_wait_for_the_leader_s_assignment(wire: Wire, group: str, bootstrap: str) -> None:
    first = member_of(wire, group)
    with Wire(bootstrap) as other:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        request.member_id = other.ask(request).member_id
        other.send(request)
        leader = member_of(wire, group, member_id=first.member_id)
        follower = other.receive()
        sync = {"group_id": group, "generation_id": leader.generation_id, **CONSUMER_RANGE}
        other.send(SyncGroupRequest(**sync, member_id=follower.member_id))
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=member.member_id.encode())
            for member in leader.members
        ]
        own = wire.ask(SyncGroupRequest(**sync, member_id=leader.member_id, assignments=assignments))
        assert own.assignment == leader.member_id.encode()
        assert other.receive().assignment == follower.member_id.encode()


@pytest.mark.parametrize("wrong", [{}, {"protocol_type": "consumer", "protocol_name": "sticky"}])
def test_a_member_that_syncs_with_another_protocol_is_refused(wire: Wire, group: str, wrong: dict[str, str]) -> None:
    """From version 5 on, a member says which protocol it believes was chosen (KIP-559)."""
    joined = member_of(wire, group)
    sync = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    assert wire.ask(SyncGroupRequest(**sync, **wrong)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert wire.ask(SyncGroupRequest(**sync, **CONSUMER_RANGE)).error_code == ErrorCode.NONE


def test_an_instance_that_was_replaced_is_fenced_whatever_it_asks(wire: Wire, group: str, new_topic: Topics) -> None:
    topic = new_topic()
    old = member_of(wire, group, instance="twin")
    new = member_of(wire, group, instance="twin")
    assert new.error_code == ErrorCode.NONE
    assert new.member_id != old.member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert heartbeat(wire, group, old.generation_id, old.member_id, "twin") == fenced
    assert commit(wire, group, topic, old.generation_id, old.member_id, "twin") == fenced
    assert member_of(wire, group, instance="twin", member_id=old.member_id).error_code == fenced
    sync = {"group_id": group, "generation_id": old.generation_id, "member_id": old.member_id}
    assert wire.ask(SyncGroupRequest(**sync, group_instance_id="twin", **CONSUMER_RANGE)).error_code == fenced
    leave = LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=old.member_id, group_instance_id="twin")]
    )
    assert wire.ask(leave).members[0].error_code == fenced
    assert heartbeat(wire, group, new.generation_id, new.member_id, "twin") in (
        ErrorCode.NONE,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )


@pytest.mark.parametrize(
    ("session_timeout_ms", "code"),
    [(1, ErrorCode.INVALID_SESSION_TIMEOUT), (2**31 - 1, ErrorCode.INVALID_SESSION_TIMEOUT)],
)
def test_a_session_too_short_or_too_long_is_refused(
    session_timeout_ms: int, code: ErrorCode, wire: Wire, group: str
) -> None:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert wire.ask(request).error_code == code


def test_a_group_without_a_name_or_protocol_is_refused(wire: Wire, group: str) -> None:
    request = JoinGroupRequest(
        group_id="", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer"
    )
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    assert wire.ask(request).error_code == ErrorCode.INVALID_GROUP_ID
    request.group_id, request.protocols = group, []
    assert wire.ask(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
