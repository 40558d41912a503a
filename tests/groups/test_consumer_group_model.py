"""Members of both protocols in one group, in a world that is unkind to them, and to their coordinator.

Members join, leave, crash, stall, miss answers, and take their time to let go of partitions; topics grow; the machine
is loaded anew. Whatever happens, in any order:
- no partition is held by two members, neither in the books nor by what the members themselves believe;
- epochs only rise;
- the group is the same when it is made again from the log, and its books add up;
and in the end, if the members only keep calling, the group is stable and every partition has its one reader.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from group_engine import GROUP, FakeTopics, GroupEngine, offers, subscription, topic_id
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.coordinator.machine import Ticket
from penstock.groups.config import GroupConfig
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.states import ConsumerGroupState, MemberState
from penstock.groups.group import Group
from penstock.groups.states import State
from penstock.protocol.codec import decode_versioned, encode_versioned
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from penstock.protocol.messages.leave_group import MemberIdentity

SESSION_MS = 6_000
REBALANCE_MS = 8_000
MODERN = ["mia", "max"]
STATIC = ["sam", "sue"]
CLASSIC = ["cleo", "carl", "cora"]
NAMES = MODERN + STATIC + CLASSIC

Partition = tuple[str, int]


def by_topic(partitions: set[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


class Reader(ABC):
    """What all clients have: a name, topics, and the partitions that they read at the moment."""

    def __init__(self, name: str, engine: GroupEngine) -> None:
        self.name = name
        self.engine = engine
        self.is_in = False
        self.topics: tuple[str, ...] = ("t",)
        self.lives = 0
        self.member_id = ""
        self.reading: set[Partition] = set()

    @abstractmethod
    def act(self, *, is_heard: bool = True) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...

    def crash(self) -> None:
        self.reading = set()

    @abstractmethod
    def coordinator_lost(self) -> None:
        """What it waited for will never be answered."""


class ModernReader(Reader):
    def coordinator_lost(self) -> None:
        """It never waits: a heartbeat is answered at once."""

    def __init__(self, name: str, engine: GroupEngine) -> None:
        super().__init__(name, engine)
        self.instance = name if name in STATIC else None
        self.crash()

    def crash(self) -> None:
        super().crash()
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self._begin()

    def _begin(self) -> None:
        self.epoch = 0
        self.reading = set()
        self.given: set[Partition] = set()
        self.told: tuple[str, ...] | None = None
        self.has_acknowledged = True

    def act(self, *, is_heard: bool = True, is_slow: bool = False) -> None:
        """A heartbeat. `is_heard`: the answer arrives. `is_slow`: it has not let go yet of what it must."""
        if not self.is_in:
            return
        if not is_slow and self.reading != self.given:
            self.reading = set(self.given)
            self.has_acknowledged = False
        if self.epoch == 0:
            response = self.engine.start(
                self.member_id, *self.topics, instance=self.instance, rebalance_ms=REBALANCE_MS, client=self.name
            )
        else:
            response = self.engine.beat(
                self.member_id,
                self.epoch,
                instance=self.instance,
                client=self.name,
                topics=None if self.told == self.topics else self.topics,
                rebalance_ms=REBALANCE_MS if self.told is None else -1,
                owned=None if self.has_acknowledged else by_topic(self.reading),
            )
        if is_heard:
            self._hear(response)
        else:
            # It says everything with its next heartbeat, and is told everything.
            self.has_acknowledged = False
            self.told = None

    def _hear(self, response: Any) -> None:
        error = ErrorCode(response.error_code)
        if error is ErrorCode.UNRELEASED_INSTANCE_ID:
            return  # until the session of the former self has ended
        if error:
            assert error in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            self._begin()
            return
        if self.epoch == 0:
            assert response.assignment is not None
        self.epoch = response.member_epoch
        self.told = self.topics
        self.has_acknowledged = True
        given = self.engine.given(response)
        if given is not None:
            self.given = {(topic, partition) for topic, partitions in given.items() for partition in partitions}

    def leave(self) -> None:
        self.engine.beat(self.member_id, -1, instance=self.instance)
        self.is_in = False
        self.crash()

    def go_for_a_moment(self) -> None:
        if self.instance is not None:
            self.engine.beat(self.member_id, -2, instance=self.instance)
        self.crash()


class ClassicReader(Reader):
    """Joins, syncs and beats. It leads by sharing out what nobody still holds, if it is told to lead."""

    def __init__(self, name: str, engine: GroupEngine) -> None:
        super().__init__(name, engine)
        self.is_cooperative = False
        self._lose_generation()

    def crash(self) -> None:
        super().crash()
        self.member_id = ""
        self._lose_generation()

    def _lose_generation(self) -> None:
        self.generation_id = -1
        self.leads = False
        self.has_news = False  # since it last joined
        self.waits_for: Ticket | None = None
        self.must_join = True

    def act(self, *, is_heard: bool = True) -> None:
        if not self.is_in:
            return
        if self.waits_for is not None:
            if self.waits_for in self.engine.replies:
                reply = self.engine.replies[self.waits_for]
                self.waits_for = None
                self._hear(reply)
        elif self.must_join:
            self._join()
        else:
            self._believe(self.engine.heartbeat(self.member_id, self.generation_id))

    def learn(self) -> None:
        self.must_join = self.has_news = True

    def _join(self) -> None:
        self.must_join, self.has_news = True, False
        if not self.is_cooperative:
            self.reading = set()
        self.metadata = subscription(*self.topics, holds=by_topic(self.reading))
        self.waits_for = self.engine.join(
            self.member_id,
            client=self.name,
            protocols=offers(some=self.metadata),
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
            self._collect(reply.assignment)
        else:
            self.member_id, self.generation_id = reply.member_id, reply.generation_id
            self.leads = reply.leader == reply.member_id
            shares = self._share_out(reply) if self.leads and not reply.skip_assignment else {}
            self.waits_for = self.engine.sync(self.member_id, self.generation_id, shares)

    def _collect(self, assignment: bytes) -> None:
        named = decode_versioned(ConsumerProtocolAssignment, assignment).assigned_partitions if assignment else []
        given = {(each.topic, partition) for each in named for partition in each.partitions}
        # What was taken away must be said to have been let go of: by joining again.
        self.must_join = bool(self.reading - given) or self.has_news
        self.reading = given

    def _share_out(self, reply: Any) -> dict[str, bytes]:
        wants = {m.member_id: decode_versioned(ConsumerProtocolSubscription, m.metadata) for m in reply.members}
        held = {
            (each.topic, partition): member_id
            for member_id, wanted in wants.items()
            for each in wanted.owned_partitions
            for partition in each.partitions
        }
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in wants}
        for topic in sorted({topic for wanted in wants.values() for topic in wanted.topics}):
            shape = self.engine.topics.shape(topic)
            takers = sorted(member_id for member_id, wanted in wants.items() if topic in wanted.topics)
            for partition in range(shape.partitions if shape else 0):
                taker = takers[partition % len(takers)]
                if held.get((topic, partition), taker) == taker:
                    shares[taker].add((topic, partition))
        return {member_id: _encoded(share) for member_id, share in shares.items()}

    def _believe(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
            return
        self._lose_generation()
        self.reading = set()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def leave(self) -> None:
        if self.member_id:
            self.engine.leave(MemberIdentity(member_id=self.member_id))
        self.is_in = False
        self.crash()

    def coordinator_lost(self) -> None:
        if self.waits_for is not None and self.waits_for not in self.engine.replies:
            self.waits_for = None
            self.must_join = True


def _encoded(share: set[Partition]) -> bytes:
    named = [TopicPartition(topic=topic, partitions=each) for topic, each in by_topic(share).items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), 1)


def durable(group: ConsumerGroup) -> tuple[Any, ...]:
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.metadata_hash,
        group.members,
        {member_id: target for member_id, target in group.targets.items() if target},
        group.resolved,
        group.static_members,
        group.owners,
    )


class BothProtocols(RuleBasedStateMachine):
    @initialize(is_cooperative=st.booleans(), prompt_max=st.sampled_from([0, 300]), append_max=st.sampled_from([2**18]))
    def begin(self, is_cooperative: bool, prompt_max: int, append_max: int) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            new_member_join_timeout_ms=20_000,
            consumer_session_timeout_ms=SESSION_MS,
            consumer_min_session_timeout_ms=SESSION_MS,
            consumer_prompt_assignment_max=prompt_max,
            append_max_bytes=append_max,
        )
        self.engine = GroupEngine(config, topics=FakeTopics(t=4))
        self.readers: dict[str, Reader] = {}
        for name in NAMES:
            self.readers[name] = (
                ClassicReader(name, self.engine) if name in CLASSIC else ModernReader(name, self.engine)
            )
        for reader in self.readers.values():
            if isinstance(reader, ClassicReader):
                reader.is_cooperative = is_cooperative
        self.epochs: tuple[object, int, int] = (None, 0, 0)

    # ---- what happens

    @rule(name=st.sampled_from(NAMES))
    def a_reader_starts(self, name: str) -> None:
        self.readers[name].is_in = True
        self.readers[name].act()

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=12))
    def readers_act(self, names: list[str]) -> None:
        for name in names:
            self.readers[name].act()

    @rule(name=st.sampled_from(MODERN + STATIC))
    def an_answer_is_lost(self, name: str) -> None:
        self.readers[name].act(is_heard=False)

    @rule(name=st.sampled_from(MODERN + STATIC))
    def a_reader_takes_its_time(self, name: str) -> None:
        reader = self.readers[name]
        assert isinstance(reader, ModernReader)
        reader.act(is_slow=True)

    @rule(name=st.sampled_from(NAMES))
    def a_reader_crashes(self, name: str) -> None:
        self.readers[name].crash()

    @rule(name=st.sampled_from(STATIC))
    def a_static_reader_goes_for_a_moment(self, name: str) -> None:
        reader = self.readers[name]
        assert isinstance(reader, ModernReader)
        reader.go_for_a_moment()

    @rule(name=st.sampled_from(NAMES))
    def a_reader_leaves(self, name: str) -> None:
        self.readers[name].leave()

    @rule(name=st.sampled_from(NAMES), topics=st.sampled_from([("t",), ("t", "u"), ("u",)]))
    def a_reader_changes_its_mind(self, name: str, topics: tuple[str, ...]) -> None:
        reader = self.readers[name]
        if reader.topics != topics:
            reader.topics = topics
            if isinstance(reader, ClassicReader):
                reader.learn()

    @rule(by_ms=st.integers(0, 9_000))
    def time_passes(self, by_ms: int) -> None:
        self.engine.advance(by_ms)

    @rule(name=st.sampled_from(["t", "u"]))
    def a_topic_grows(self, name: str) -> None:
        shape = self.engine.topics.shape(name)
        if shape is None or shape.partitions < 8:
            self.engine.topics.set(name, shape.partitions + 2 if shape else 2)
            self.engine.topics_changed()
            for reader in self.readers.values():
                if isinstance(reader, ClassicReader) and reader.leads:
                    reader.learn()  # a leader keeps an eye on the topics

    @rule()
    def the_coordinator_moves(self) -> None:
        self.engine.reload()
        for reader in self.readers.values():
            reader.coordinator_lost()

    # ---- what holds

    @property
    def group(self) -> Group | ConsumerGroup | None:
        return self.engine.machine.groups.get(GROUP)

    @invariant()
    def nothing_is_held_twice(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        held = Counter(
            (topic, partition)
            for member in group.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic, each in partitions.items()
            for partition in each
        )
        assert all(count == 1 for count in held.values())
        assert set(held) == {(topic, partition) for topic, owners in group.owners.items() for partition in owners}

    @invariant()
    def nobody_reads_what_it_does_not_hold(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        for reader in self.readers.values():
            if reader.member_id in group.members and not self._is_fenced(group, reader):
                for topic, partition in reader.reading:
                    assert group.owners.get(topic_id(topic), {}).get(partition) == reader.member_id

    def _is_fenced(self, group: ConsumerGroup, reader: Reader) -> bool:
        """Whether it will be told so by its next heartbeat."""
        member = group.members[reader.member_id]
        if isinstance(reader, ModernReader):
            return reader.epoch not in (member.member_epoch, member.previous_member_epoch)
        assert isinstance(reader, ClassicReader)
        return reader.generation_id not in (member.member_epoch, member.previous_member_epoch)

    @invariant()
    def epochs_only_rise(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        before, group_epoch, assignment_epoch = self.epochs
        if group is before:  # one that was empty may have become a classic one, and begun anew
            assert group.group_epoch >= group_epoch
            assert group.assignment_epoch >= assignment_epoch
        assert group.assignment_epoch <= group.group_epoch
        self.epochs = (group, group.group_epoch, group.assignment_epoch)
        for member in group.members.values():
            assert member.member_epoch <= group.assignment_epoch

    @invariant()
    def a_reload_finds_the_same_group(self) -> None:
        group = self.group
        assert group is None or not group.has_unapplied_record
        if isinstance(group, ConsumerGroup):
            found = self.engine.reloaded().consumer_group
            assert durable(group) == durable(found)

    @invariant()
    def the_books_add_up(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        members = group.members.values()
        assert group.topic_counts == Counter(name for member in members for name in member.topic_names)
        assert group.classic_count == sum(member.classic is not None for member in members)
        assert group.static_members == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert group.watches.keys() == group.members.keys()
        assert group.targets.keys() <= group.members.keys()
        for member in members:
            watch = group.watches[member.member_id]
            assert watch.session.deadline_ms is not None
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None and member.member_epoch > 0:
                assert watch.rebalance.deadline_ms is not None

    # ---- how it ends

    @precondition(lambda self: any(reader.is_in for reader in self.readers.values()))
    @rule()
    def if_readers_keep_calling_all_is_read(self) -> None:
        inside = [reader for reader in self.readers.values() if reader.is_in]
        for _ in range(60):
            for reader in inside:
                reader.act()
            self.engine.advance(1_000)
        group = self.group
        assert group is not None
        assert group.state in (State.STABLE, ConsumerGroupState.STABLE)
        assert set(group.members) == {reader.member_id for reader in inside}
        assert isinstance(group, ConsumerGroup) == any(isinstance(reader, ModernReader) for reader in inside)
        wanted = {
            (topic, partition)
            for topic in {topic for reader in inside for topic in reader.topics}
            if (shape := self.engine.topics.shape(topic)) is not None
            for partition in range(shape.partitions)
        }
        read = Counter(partition for reader in inside for partition in reader.reading)
        assert read == Counter(wanted)


BothProtocols.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestBothProtocols = BothProtocols.TestCase
