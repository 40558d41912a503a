"""Clients that behave, in a world that does not: they restart, leave, stall, and lose their coordinator.

Whatever happens, in any order:
- a partition is never given to two members in one generation;
- the generation only rises, in the log and between two loads of a machine;
- committed offsets are those of a plain dictionary, before and after a reload;
- a group that is Stable or Empty is the same when it is made again from the log;
- a group's books add up;
and in the end, if the clients only keep calling, the group is stable and every partition has its one reader.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from group_engine import GROUP, GroupEngine, offers, subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.coordinator.machine import Ticket
from penstock.groups.config import GroupConfig
from penstock.groups.group import Group
from penstock.groups.records import GroupStored, read_record
from penstock.groups.states import State
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import MemberIdentity

PARTITIONS = range(6)
SESSION_MS = 6_000
REBALANCE_MS = 8_000
DYNAMIC = ["ann", "ben", "cat", "dan"]
STATIC = ["sam", "tom"]


class Client:
    """A consumer, as far as the protocol goes: it joins, syncs, beats, and believes what it is told."""

    def __init__(self, name: str, engine: GroupEngine) -> None:
        self.name = name
        self.engine = engine
        self.instance = name if name in STATIC else None
        self.is_in = False
        self.topics = ("t",)
        self.restart()

    def restart(self) -> None:
        self.member_id = ""
        self.lose_generation()

    def lose_generation(self) -> None:
        self.generation_id = -1
        self.assigned: list[int] | None = None
        self.waits_for: Ticket | None = None

    @property
    def identity(self) -> str:
        return self.instance or self.member_id

    def act(self) -> None:
        """The next thing that this client would do by itself."""
        if not self.is_in:
            return
        if self.waits_for is not None:
            if self.waits_for in self.engine.replies:
                reply = self.engine.replies[self.waits_for]
                self.waits_for = None
                self._hear(reply)
        elif self.assigned is None:
            self._join()
        else:
            self._believe(self.engine.heartbeat(self.member_id, self.generation_id, instance=self.instance))

    def _join(self) -> None:
        self.waits_for = self.engine.join(
            self.member_id,
            client=self.name,
            instance=self.instance,
            protocols=offers(range=subscription(*self.topics), sticky=subscription(*self.topics)),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )

    def _hear(self, reply: Any) -> None:
        error = ErrorCode(reply.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._join()
        elif error:
            self._believe(error)
        elif hasattr(reply, "assignment"):
            self.assigned = [int(n) for n in reply.assignment.decode().split(",") if n]
        else:
            self.member_id, self.generation_id = reply.member_id, reply.generation_id
            shares = {}
            if reply.leader == reply.member_id and not reply.skip_assignment:
                ids = [member.member_id for member in reply.members]
                shares = {
                    who: ",".join(str(p) for p in PARTITIONS if p % len(ids) == n).encode() for n, who in enumerate(ids)
                }
            self.waits_for = self.engine.sync(self.member_id, self.generation_id, shares, instance=self.instance)

    def _believe(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        self.lose_generation()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""


def durable(group: Group) -> tuple[Any, ...]:
    """What the log should hold of a group that is Stable or Empty."""
    members = [
        (
            (m.member_id, m.group_instance_id, m.client_id, m.client_host),
            (m.session_timeout_ms, m.rebalance_timeout_ms, m.assignment, group.metadata_of(m)),
        )
        for m in group.members.values()
    ]
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.current_state_timestamp_ms,
        group.subscribed_topics,
        group.static_members,
        members,
    )


class GroupsInAnUnkindWorld(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 500]), max_size=st.sampled_from([3, 100]))
    def begin(self, delay_ms: int, max_size: int) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=delay_ms, group_max_size=max_size, new_member_join_timeout_ms=20_000
        )
        self.engine = GroupEngine(config)
        self.clients = {name: Client(name, self.engine) for name in DYNAMIC + STATIC}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.highest_generation = 0
        self.owners: dict[int, dict[int, str]] = {}  # generation -> partition -> who was told that it is its own

    # ---- what happens

    @rule(name=st.sampled_from(DYNAMIC + STATIC))
    def a_client_starts(self, name: str) -> None:
        self.clients[name].is_in = True
        self.clients[name].act()

    @rule(names=st.lists(st.sampled_from(DYNAMIC + STATIC), min_size=1, max_size=8))
    def clients_act(self, names: list[str]) -> None:
        for name in names:
            self._act(self.clients[name])

    @rule(name=st.sampled_from(DYNAMIC + STATIC))
    def a_client_restarts(self, name: str) -> None:
        self.clients[name].restart()

    @rule(name=st.sampled_from(DYNAMIC + STATIC))
    def a_client_leaves(self, name: str) -> None:
        client = self.clients[name]
        if client.member_id:
            who = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
            self.engine.leave(who)
        client.restart()
        client.is_in = False

    @rule(name=st.sampled_from(DYNAMIC + STATIC), topics=st.sampled_from([("t",), ("t", "u")]))
    def a_client_changes_its_mind(self, name: str, topics: tuple[str, ...]) -> None:
        client = self.clients[name]
        if client.topics != topics:
            client.topics = topics
            client.lose_generation()

    @rule(by_ms=st.integers(0, 12_000))
    def time_passes(self, by_ms: int) -> None:
        self.engine.advance(by_ms)

    @rule()
    def the_coordinator_moves(self) -> None:
        self.engine.reload()
        self.highest_generation = 0
        for client in self.clients.values():
            if client.waits_for is not None and client.waits_for not in self.engine.replies:
                client.lose_generation()

    @rule(name=st.sampled_from(DYNAMIC + STATIC), partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 99))
    def a_client_commits(self, name: str, partition: int, offset: int) -> None:
        client = self.clients[name]
        (error,) = self.engine.commit(
            {("t", partition): offset}, client.member_id, client.generation_id, instance=client.instance
        )
        if error is ErrorCode.NONE:
            self.offsets[GROUP, "t", partition] = offset

    @rule(group=st.sampled_from(["simple", GROUP]), partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 99))
    def an_admin_commits(self, group: str, partition: int, offset: int) -> None:
        if self.engine.commit({("u", partition): offset}, group=group) == [ErrorCode.NONE]:
            self.offsets[group, "u", partition] = offset

    @rule(topic=st.sampled_from(["t", "u"]), partition=st.sampled_from(PARTITIONS))
    def an_admin_deletes_an_offset(self, topic: str, partition: int) -> None:
        response = self.engine.delete_offsets((topic, partition))
        if response.topics and response.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self.offsets.pop((GROUP, topic, partition), None)

    @rule(topic=st.sampled_from(["t", "u"]))
    def a_topic_is_deleted(self, topic: str) -> None:
        self.engine.delete_topics(topic)
        self.offsets = {key: offset for key, offset in self.offsets.items() if key[1] != topic}

    @rule(group=st.sampled_from(["simple", GROUP]))
    def an_admin_deletes_a_group(self, group: str) -> None:
        if self.engine.delete(group)[group] is ErrorCode.NONE:
            self.offsets = {key: offset for key, offset in self.offsets.items() if key[0] != group}

    def _act(self, client: Client) -> None:
        client.act()
        if client.assigned is not None:
            owners = self.owners.setdefault(client.generation_id, {})
            for partition in client.assigned:
                assert owners.setdefault(partition, client.identity) == client.identity

    # ---- what holds

    @invariant()
    def the_generation_only_rises(self) -> None:
        group = self.engine.machine.groups.get(GROUP)
        if group is None:  # deleted or expired: all begins anew
            self.highest_generation = 0
            self.owners.clear()
        else:
            assert group.generation_id >= self.highest_generation
            self.highest_generation = group.generation_id

    @invariant()
    def the_log_agrees(self) -> None:
        last = 0
        for record in self.engine.log:
            stored = read_record(record)
            if isinstance(stored, GroupStored) and stored.group_id == GROUP:
                generation = 0 if stored.value is None else stored.value.generation
                assert generation >= last or stored.value is None
                last = generation

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        for machine in (self.engine.machine, self._reloaded().machine):
            assert self.offsets == {
                (group, topic, partition): offset.committed_offset
                for group, topics in machine.offsets.by_group().items()
                for topic, partitions in topics.items()
                for partition, offset in partitions.items()
            }

    @invariant()
    def a_reload_finds_what_is_durable(self) -> None:
        reloaded = self._reloaded().machine.groups
        for group_id, group in self.engine.machine.groups.items():
            assert not group.has_unapplied_record
            if group.state is State.STABLE:
                live, found = durable(group), durable(reloaded[group_id])
                if len(group.members) <= self.engine.config.group_max_size:
                    assert live == found
            elif group.state is State.EMPTY and group_id in reloaded:
                assert durable(group) == durable(reloaded[group_id])

    def _reloaded(self) -> GroupEngine:
        return GroupEngine(self.engine.config, self.engine.log, self.engine.now_ms)

    @invariant()
    def the_books_add_up(self) -> None:
        for group in self.engine.machine.groups.values():
            members = group.members.values()
            assert group.awaiting_join_count == sum(m.parked_join is not None for m in members)
            assert group.support_counts == Counter(name for m in members for name in m.protocols)
            assert group.static_members == {m.group_instance_id: m.member_id for m in members if m.is_static}
            assert (group.leader_id in group.members) if group.members else (group.leader_id is None)
            assert group.pending_sync <= set(group.members)
            assert not group.pending.keys() & group.members.keys()
            if group.state in (State.EMPTY, State.STABLE):
                assert group.awaiting_join_count == 0
                assert all(m.parked_sync is None for m in members)
            assert (group.state is State.EMPTY) <= (not members)

    @invariant()
    def members_are_watched(self) -> None:
        """Who may fall silent has a clock running; who waits for us may not."""
        for group in self.engine.machine.groups.values():
            for member in group.members.values():
                assert member.session.deadline_ms is not None or member.has_satisfied_heartbeat
            assert all(timer.deadline_ms is not None for timer in group.pending.values())
            if group.state is State.PREPARING_REBALANCE:
                assert group.join_timer.deadline_ms is not None
            if group.state is State.COMPLETING_REBALANCE:
                assert group.sync_timer.deadline_ms is not None

    # ---- how it ends

    @precondition(lambda self: any(client.is_in for client in self.clients.values()))
    @rule()
    def if_clients_keep_calling_the_group_is_stable(self) -> None:
        inside = [client for client in self.clients.values() if client.is_in]
        while len(inside) > self.engine.config.group_max_size:
            inside.pop().is_in = False
        for _ in range(150):
            for client in inside:
                self._act(client)
            self.engine.advance(500)
        assert self.engine.state is State.STABLE
        assert {client.generation_id for client in inside} == {self.engine.group.generation_id}
        assert {client.member_id for client in inside} == set(self.engine.group.members)
        assert sorted(p for client in inside for p in client.assigned or []) == list(PARTITIONS)


GroupsInAnUnkindWorld.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestGroupsInAnUnkindWorld = GroupsInAnUnkindWorld.TestCase
