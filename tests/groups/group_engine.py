"""A fake of the coordinator engine: a log in memory, a clock that a test turns, and clients that ask by name.

It does what the engine promises a machine (append, apply, then reply), and holds the machine to its side: a ticket is
answered once, and what a tick leaves due is due again at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, ProducerStamp, Ticket
from penstock.groups import commands
from penstock.groups.assignors import TopicShape
from penstock.groups.config import GroupConfig, GroupSettings
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group
from penstock.groups.machine import GroupMachine
from penstock.groups.states import State
from penstock.protocol.codec import encode_versioned
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
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


Partitions = Mapping[str, Iterable[int]]


def subscription(
    *topics: str, owned: bytes = b"", holds: Partitions | None = None, rack: str | None = None, version: int = 1
) -> bytes:
    """A consumer's metadata; `owned` stands for what changes in it without a change of topics."""
    held = [TopicPartition(topic=topic, partitions=sorted(each)) for topic, each in (holds or {}).items()]
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=owned, owned_partitions=held, rack_id=rack)
    return encode_versioned(message, version)


def offers(**metadata: bytes) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=body) for name, body in metadata.items()]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class FakeTopics:
    """The topics of a cluster that a test makes up; an id is the name, and a topic made anew has another."""

    def __init__(self, **partitions: int) -> None:
        self.shapes = {name: TopicShape(topic_id(name), name, count, ()) for name, count in partitions.items()}
        self.generation = 1
        self.awaited: set[str] = set()

    def set(self, name: str, partitions: int, *, racks: tuple[frozenset[str], ...] = (), life: str = "") -> None:
        self.shapes[name] = TopicShape(topic_id(name + life), name, partitions, racks)
        self.generation += 1

    def remove(self, name: str) -> None:
        del self.shapes[name]
        self.generation += 1

    def shape(self, name: str) -> TopicShape | None:
        return self.shapes.get(name)

    def by_id(self, topic_id: bytes) -> TopicShape | None:
        return next((shape for shape in self.shapes.values() if shape.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return (name for name in self.shapes if not name.startswith("__"))

    def awaited_groups(self) -> Iterable[str]:
        return self.awaited

    def hold_for(self, *groups: str) -> None:
        """Topics name these groups as those that retention waits for."""
        self.awaited = set(groups)
        self.generation += 1

    def name_of(self, topic_id: bytes) -> str:
        return topic_id.rstrip(b"\0").decode()


@dataclass(frozen=True, slots=True)
class InTransaction(LogRecord):
    producer: ProducerStamp


@dataclass(frozen=True, slots=True)
class Marker(LogRecord):
    """The end of a transaction, as it stands in the log."""

    producer_id: int
    committed: bool


class GroupEngine:
    def __init__(
        self,
        config: GroupConfig | None = None,
        log: Sequence[LogRecord] = (),
        now_ms: int = 0,
        topics: FakeTopics | None = None,
    ) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.topics = topics or FakeTopics(t=6, u=3)
        self.settings = GroupSettings()
        self.log = list(log)
        self.batch_ends: list[int] = []  # the log is written batch by batch, each whole or not at all
        self.now_ms = now_ms
        self.replies: dict[Ticket, Any] = {}
        self.written: list[LogRecord] = []  # by the last command or tick
        self._tickets = 0
        self._member_ids = 0
        self.reload()

    # ---- what the engine does

    def reload(self) -> None:
        """The machine is lost with all that waits, and made again from the log."""
        self.machine = GroupMachine(self.config, self._new_member_id, self.topics, lambda group_id: self.settings)
        for record in self.log:
            self._apply(record)
        self.machine.loaded(self.now_ms)

    def reloaded(self) -> GroupEngine:
        """Another engine, whose machine knows what the log does."""
        engine = GroupEngine(self.config, self.log, self.now_ms, self.topics)
        engine.settings = self.settings
        return engine

    def _apply(self, record: LogRecord) -> None:
        if isinstance(record, InTransaction):
            self.machine.apply_in_transaction(LogRecord(record.key, record.value), record.producer, self.now_ms)
        elif isinstance(record, Marker):
            self.machine.end_transaction(record.producer_id, record.committed, self.now_ms)
        else:
            self.machine.apply(record, self.now_ms)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        marker = Marker(b"\x7f\xff", None, producer_id, committed)
        self.log.append(marker)
        self._apply(marker)

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
        stamp = outcome.producer
        self.written = outcome.records
        if stamp is not None:
            self.written = [InTransaction(record.key, record.value, stamp) for record in outcome.records]
        self.log += self.written
        self.batch_ends.append(len(self.log))
        for record in self.written:
            self._apply(record)
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

    def commit_in_transaction(
        self,
        producer_id: int,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation_id: int = -1,
        *,
        instance: str | None = None,
        group: str = GROUP,
        metadata: str | None = "",
    ) -> list[ErrorCode]:
        """The error of each partition."""
        topics = [
            (topic, [commands.TransactionalOffset(partition, offset, -1, metadata)])
            for (topic, partition), offset in offsets.items()
        ]
        command = commands.CommitTransactionalOffsets(
            self.ticket(), group, member_id, instance, generation_id, producer_id, 0, topics
        )
        return [error for _, errors in self.now(command) for _, error in errors]

    def fetch_group(
        self,
        *wanted: tuple[str, int],
        group: str = GROUP,
        member_id: str | None = None,
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> Any:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition]) for topic, partition in wanted]
        request = OffsetFetchRequestGroup(
            group_id=group, member_id=member_id, member_epoch=member_epoch, topics=topics or None
        )
        return self.now(commands.FetchOffsets(self.ticket(), request, require_stable))

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

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        owned: Partitions | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        client: str = "client",
        group: str = GROUP,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        """A ConsumerGroupHeartbeat; `owned` by name of topic."""
        held = None
        if owned is not None:
            held = [
                TopicPartitions(topic_id=self.id_of(topic), partitions=sorted(each)) for topic, each in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else [*topics],
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=held,
        )
        command = commands.ConsumerHeartbeat(self.ticket(), request, version, client, f"/{client}.host")
        response: ConsumerGroupHeartbeatResponse = self.now(command)
        return response

    def id_of(self, topic: str) -> bytes:
        shape = self.topics.shape(topic)
        return topic_id(topic) if shape is None else shape.topic_id

    def start(
        self, member_id: str, *topics: str, rebalance_ms: int = REBALANCE_MS, **options: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Joins with the consumer protocol."""
        names = None if "regex" in options and not topics else topics or ("t",)
        return self.beat(member_id, 0, topics=names, owned={}, rebalance_ms=rebalance_ms, **options)

    def given(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, set[int]] | None:
        """The assignment in an answer, by name of topic."""
        if response.assignment is None:
            return None
        return {
            self.topics.name_of(topic.topic_id): set(topic.partitions) for topic in response.assignment.topic_partitions
        }

    def describe_consumer(self, group: str = GROUP) -> Any:
        return self.now(commands.DescribeConsumerGroups(self.ticket(), (group,)))[0]

    def topics_changed(self) -> None:
        assert self.now(commands.TopicsChanged(self.ticket())) is None

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
        group = self.machine.groups[GROUP]
        assert isinstance(group, Group)
        return group

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

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
