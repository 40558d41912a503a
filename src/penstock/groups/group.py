"""One group: its members, its generation, its protocol, and where it stands in a rebalance.

A group answers nobody and writes nothing; it keeps its own books. Invariants:
- `awaiting_join_count` counts the members with a parked join, `support_counts` the members that can do each protocol;
- `leader_id` is a member, and None only if there are none;
- a group in the log is Stable or Empty, and `settle` alone makes a live one so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.groups.member import Member, ParkedJoin
from penstock.groups.states import Event, State, after
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE, all_subscribed_topics
from penstock.groups.timers import Kind, Timer
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.group_records import GroupMetadataValue, MemberMetadata


class InitialDelay(NamedTuple):
    """The first rebalance of an empty group waits for more members (KIP-134), until nothing remains."""

    delay_ms: int
    remaining_ms: int


class Group:
    __slots__ = (
        "awaiting_join_count",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "has_unapplied_record",
        "initial_delay",
        "is_downgraded",
        "join_timer",
        "leader_id",
        "members",
        "new_member_added",
        "pending",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
        "support_counts",
        "sync_timer",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.current_state_timestamp_ms: int | None = None
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.subscribed_topics: frozenset[str] | None = None  # None: not known

        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.pending: dict[str, Timer] = {}  # ids given out, with which nobody has joined yet (KIP-394)
        self.pending_sync: set[str] = set()
        self.awaiting_join_count = 0
        self.support_counts: dict[str, int] = {}

        self.is_downgraded = False  # it was a consumer group, and its members must share their partitions out anew
        self.initial_delay: InitialDelay | None = None
        self.new_member_added = False
        self.join_timer = Timer(Kind.JOIN, group_id)
        self.sync_timer = Timer(Kind.SYNC, group_id)
        # A record about this group is on its way to the log, and nothing may be decided until it is applied.
        self.has_unapplied_record = False

    # ---- what the group is

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_abandoned(self) -> bool:
        """Nobody is a member, or is about to be."""
        return self.state is State.EMPTY and not self.pending

    @property
    def can_rebalance(self) -> bool:
        return self.state is not State.PREPARING_REBALANCE and self.state is not State.DEAD

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        """A consumer group whose subscription can't be read may be subscribed to anything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE for a member, and for a static one (KIP-345) only if no newer instance has replaced it."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether somebody who offers these has a protocol in common with all the members."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(self.support_counts.get(p, 0) == size for p in protocols)

    def select_protocol(self) -> str:
        """Of those that all can do, the one that most like best; a tie goes to the one voted for first."""
        candidates = {name for name, count in self.support_counts.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def metadata_of(self, member: Member) -> bytes:
        assert self.protocol_name is not None
        return member.protocols[self.protocol_name]

    # ---- members come, go and change

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        self._enter(member)
        self._count_support(member, +1)
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """The member must wait for nothing any more. Another member takes the lead if this one had it."""
        assert member.parked_join is None
        assert member.parked_sync is None
        self._leave(member)
        self._count_support(member, -1)
        self.pending_sync.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def replace(self, old: Member, new: Member) -> None:
        """A static member came back under a new id, and takes its own place: lead, assignment and debts."""
        assert old.group_instance_id is not None
        assert old.group_instance_id == new.group_instance_id
        assert old.parked_join is None
        assert old.parked_sync is None
        self._leave(old)
        self._enter(new)
        self._count_support(old, -1)
        self._count_support(new, +1)
        new.assignment = old.assignment
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new.member_id)

    def change_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, +1)

    def park_join(self, member: Member, parked: ParkedJoin | None) -> ParkedJoin | None:
        """Parks a join, or with None takes it up again; returns the one that was parked before."""
        before = member.parked_join
        member.parked_join = parked
        self.awaiting_join_count += (parked is not None) - (before is not None)
        return before

    def _enter(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id

    def _leave(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]

    def _count_support(self, member: Member, by: int) -> None:
        for name in member.protocols:
            count = self.support_counts.get(name, 0) + by
            if count:
                self.support_counts[name] = count
            else:
                del self.support_counts[name]

    # ---- the group goes from state to state

    def happens(self, event: Event) -> None:
        self.state = after(self.state, event)

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined, else takes a member that has; False if none has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.parked_join is not None:
            return True
        for member in self.members.values():
            if member.parked_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def begin_generation(self) -> None:
        assert self.members
        self.happens(Event.MEMBERS_JOINED)
        self.generation_id += 1
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._read_subscriptions()
        self.pending_sync = set(self.members)

    def _read_subscriptions(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        return all_subscribed_topics(self.metadata_of(member) for member in self.members.values())

    # ---- the group in the log

    def stable_record(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupMetadataValue:
        """This generation with its assignment; a member that the leader forgot gets an empty one."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=self.metadata_of(member),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    def empty_record(self, now_ms: int) -> GroupMetadataValue:
        """The next generation, with nobody in it."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )

    def settle(self, value: GroupMetadataValue) -> None:
        """The record that was made of this group is in the log: what it says now holds."""
        assert self.has_unapplied_record
        assert [stored.member_id for stored in value.members] == list(self.members)
        self.has_unapplied_record = False
        for stored in value.members:
            self.members[stored.member_id].assignment = stored.assignment
        if not self.members:
            self.happens(Event.MEMBERS_GONE)
        elif self.state is not State.STABLE:
            self.happens(Event.ASSIGNMENT_STORED)
        self._adopt(value)

    @classmethod
    def loaded(cls, group_id: str, value: GroupMetadataValue) -> Group:
        """The group as the log has it. Its members are known by the protocol that was selected alone."""
        group = cls(group_id)
        for stored in value.members:
            member = Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=(
                    stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
                ),
                session_timeout_ms=stored.session_timeout,
                protocols={value.protocol or "": stored.subscription},
                session=Timer(Kind.SESSION, group_id, stored.member_id),
                assignment=stored.assignment,
            )
            group.add(member, value.protocol_type)
        group.state = State.STABLE if group.members else State.EMPTY
        group.is_downgraded = bool(group.members) and value.leader is None
        group._adopt(value)
        return group

    def _adopt(self, value: GroupMetadataValue) -> None:
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = (value.protocol or "") if self.members else None
        self.leader_id = value.leader if value.leader in self.members else next(iter(self.members), None)
        self.current_state_timestamp_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self.subscribed_topics = self._read_subscriptions()
