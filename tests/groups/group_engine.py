"""A fake of the coordinator engine: a log in memory, a clock that a test turns, and clients that ask by name.

It does what the engine promises a machine (append, apply, then reply), and holds the machine to its side: a ticket is
answered once, and what a tick leaves due is due again at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, Ticket
from penstock.groups import commands
from penstock.groups.config import GroupConfig
from penstock.groups.group import Group
from penstock.groups.machine import GroupMachine
from penstock.groups.states import State
from penstock.protocol.codec import encode_versioned
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.protocol.schema import ZERO_UUID

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's metadata; `owned` stands for what changes in it without a change of topics."""
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics), user_data=owned), 1)


def offers(**metadata: bytes) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=body) for name, body in metadata.items()]


class GroupEngine:
    def __init__(self, config: GroupConfig | None = None, log: Sequence[LogRecord] = (), now_ms: int = 0) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.log = list(log)
        self.now_ms = now_ms
        self.replies: dict[Ticket, Any] = {}
        self.written: list[LogRecord] = []  # by the last command or tick
        self._tickets = 0
        self._member_ids = 0
        self.reload()

    # ---- what the engine does

    def reload(self) -> None:
        """The machine is lost with all that waits, and made again from the log."""
        self.machine = GroupMachine(self.config, self._new_member_id)
        for record in self.log:
            self.machine.apply(record, self.now_ms)
        self.machine.loaded(self.now_ms)

    def ask(self, command: commands.Command) -> Ticket:
        self._carry_out(self.machine.decide(command, self.now_ms))
        return command.ticket

    def now(self, command: commands.Command) -> Any:
        """Asks, and expects the answer at once."""
        return self.replies[self.ask(command)]

    def advance(self, by_ms: int = 0) -> None:
        """Lets time pass, deadline by deadline."""
        end_ms = self.now_ms + by_ms
        for _ in range(100_000):
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._carry_out(self.machine.tick(self.now_ms))
        else:
            raise AssertionError("the machine never stops ticking")
        self.now_ms = end_ms

    def _carry_out(self, outcome: Outcome) -> None:
        size = sum(len(record.key) + len(record.value or b"") for record in outcome.records)
        assert size <= self.config.append_max_bytes
        self.written = outcome.records
        self.log += outcome.records
        for record in outcome.records:
            self.machine.apply(record, self.now_ms)
        for ticket, reply in outcome.replies:
            assert ticket not in self.replies, "a ticket is answered once"
            self.replies[ticket] = reply

    def _new_member_id(self, prefix: str) -> str:
        self._member_ids += 1
        return f"{prefix}-{self._member_ids}"

    def ticket(self) -> Ticket:
        self._tickets += 1
        return Ticket(self._tickets)

    # ---- what a client asks

    def join(
        self,
        member_id: str = "",
        *,
        client: str = "client",
        instance: str | None = None,
        group: str = GROUP,
        protocol_type: str = "consumer",
        protocols: list[JoinGroupRequestProtocol] | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> Ticket:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=offers(range=subscription("t")) if protocols is None else protocols,
        )
        return self.ask(commands.Join(self.ticket(), request, version, client, f"/{client}.host"))

    def enter(self, client: str = "client", **options: Any) -> tuple[str, Ticket]:
        """Joins as a new dynamic member does: asks for an id, and joins with it."""
        required = self.replies[self.join(client=client, **options)]
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return required.member_id, self.join(required.member_id, client=client, **options)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        group: str = GROUP,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Ticket:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=who, assignment=what) for who, what in (assignments or {}).items()
            ],
        )
        return self.ask(commands.Sync(self.ticket(), request))

    def heartbeat(
        self, member_id: str, generation_id: int, *, instance: str | None = None, group: str = GROUP
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation_id, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(self.now(commands.Heartbeat(self.ticket(), request)).error_code)

    def leave(self, *members: MemberIdentity, group: str = GROUP, version: int = 5) -> Any:
        request = LeaveGroupRequest(group_id=group, members=list(members))
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=members[0].member_id)
        return self.now(commands.Leave(self.ticket(), request, version))

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation_id: int = -1,
        *,
        instance: str | None = None,
        group: str = GROUP,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        topic_id: bytes = ZERO_UUID,
        version: int = 9,
    ) -> list[ErrorCode]:
        """The error of each partition."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        response = self.now(commands.CommitOffsets(self.ticket(), request, version))
        return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]

    def fetch(self, *wanted: tuple[str, int], group: str = GROUP, topic_id: bytes = ZERO_UUID) -> dict[Any, int]:
        """The offset of each partition; of all that there are, if none is named."""
        topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])
            for topic, partition in wanted
        ]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics or None)
        response = self.now(commands.FetchOffsets(self.ticket(), request))
        assert response.group_id == group
        assert response.error_code == ErrorCode.NONE
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in response.topics
            for partition in topic.partitions
        }

    def delete_offsets(self, *unwanted: tuple[str, int], group: str = GROUP) -> Any:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition in unwanted
            ],
        )
        return self.now(commands.DeleteOffsets(self.ticket(), request))

    def describe(self, group: str = GROUP, version: int = 6) -> Any:
        return self.now(commands.DescribeGroups(self.ticket(), (group,), version))[0]

    def list(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Any:
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
        return self.now(commands.ListGroups(self.ticket(), request))

    def delete(self, *groups: str) -> dict[str, ErrorCode]:
        results = self.now(commands.DeleteGroups(self.ticket(), groups or (GROUP,)))
        return {result.group_id: ErrorCode(result.error_code) for result in results}

    def delete_topics(self, *topics: str) -> None:
        assert self.now(commands.TopicsDeleted(self.ticket(), frozenset(topics))) is None

    # ---- what a test asks

    @property
    def group(self) -> Group:
        return self.machine.groups[GROUP]

    @property
    def state(self) -> State:
        return self.group.state

    def error(self, ticket: Ticket) -> ErrorCode:
        return ErrorCode(self.replies[ticket].error_code)

    def stable_group(self, *clients: str, **options: Any) -> list[str]:
        """A group of new members that have all joined and been assigned their own name; the leader comes first."""
        entered = [self.enter(client, **options) for client in clients]
        self.advance()
        joined: list[JoinGroupResponse] = [self.replies[ticket] for _, ticket in entered]
        leader = joined[0].leader
        ids = sorted((member_id for member_id, _ in entered), key=lambda member_id: member_id != leader)
        for member_id in ids:
            self.sync(member_id, joined[0].generation_id, {who: who.encode() for who in ids})
        assert self.state is State.STABLE
        return ids
