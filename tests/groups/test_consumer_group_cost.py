"""What a large consumer group costs, in the machine alone. Bounds are generous: they catch a wrong order of growth."""

from __future__ import annotations

import time

from group_engine import FakeTopics, GroupEngine
from tests.machine import slowness

from penstock.groups.config import GroupConfig
from penstock.groups.consumer.states import ConsumerGroupState
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

MEMBERS = 1_000
PARTITIONS = 2_000
SETTLE_S_MAX = 5.0
IDLE_BEAT_S_MAX = 0.000_25  # a thousand members that beat every 5 s: 5 % of a core


class Crowd:
    """Members that do what they are told, at once."""

    def __init__(self, engine: GroupEngine, count: int) -> None:
        self.engine = engine
        self.ids = [f"member-{n:05}-{'x' * 24}" for n in range(count)]
        self.epochs: dict[str, int] = {}
        self.shares: dict[str, set[int]] = {}

    def join(self, every_ms: int) -> None:
        for member_id in self.ids:
            self._hear(member_id, self.engine.start(member_id))
            self.engine.advance(every_ms)

    def beat(self) -> None:
        for member_id in self.ids:
            if self._hear(member_id, self.engine.beat(member_id, self.epochs[member_id])):
                owned = {"t": self.shares[member_id]}
                self._hear(member_id, self.engine.beat(member_id, self.epochs[member_id], owned=owned))

    def settle(self) -> None:
        for _ in range(10):
            self.engine.advance(5_000)
            self.beat()
            if self.engine.consumer_group.state is ConsumerGroupState.STABLE:
                return
        raise AssertionError("the group does not settle")

    def _hear(self, member_id: str, response: ConsumerGroupHeartbeatResponse) -> bool:
        assert response.error_code == ErrorCode.NONE
        self.epochs[member_id] = response.member_epoch
        given = self.engine.given(response)
        if given is not None:
            self.shares[member_id] = given.get("t", set())
        return given is not None


def test_a_thousand_members_over_two_thousand_partitions_settle() -> None:
    engine = GroupEngine(topics=FakeTopics(t=PARTITIONS))
    crowd = Crowd(engine, MEMBERS)
    begun = time.process_time()
    crowd.join(every_ms=2)
    crowd.settle()
    assert time.process_time() - begun < SETTLE_S_MAX * slowness()
    assert sorted(p for share in crowd.shares.values() for p in share) == list(range(PARTITIONS))
    assert {len(share) for share in crowd.shares.values()} == {2}


def test_heartbeats_that_change_nothing_are_cheap_in_a_large_group() -> None:
    engine = GroupEngine(topics=FakeTopics(t=PARTITIONS))
    crowd = Crowd(engine, MEMBERS)
    crowd.join(every_ms=2)
    crowd.settle()
    written = len(engine.log)
    begun = time.process_time()
    for _ in range(3):
        crowd.beat()
    assert (time.process_time() - begun) / (3 * MEMBERS) < IDLE_BEAT_S_MAX * slowness()
    assert len(engine.log) == written


def test_a_large_group_is_assigned_anew_at_most_once_in_an_interval() -> None:
    engine = GroupEngine(topics=FakeTopics(t=PARTITIONS))
    crowd = Crowd(engine, 50)
    crowd.join(every_ms=10)
    group = engine.consumer_group
    assert (group.group_epoch, group.assignment_epoch) == (50, 1)
    engine.advance(1_000)
    assert group.assignment_epoch == 50
    crowd.settle()


def test_a_target_that_is_too_large_for_one_append_takes_several() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18), topics=FakeTopics(t=6_000))
    crowd = Crowd(engine, 3_000)
    crowd.join(every_ms=1)
    crowd.settle()
    assert sorted(p for share in crowd.shares.values() for p in share) == list(range(6_000))
    assert engine.reloaded().consumer_group.targets == engine.consumer_group.targets


def test_members_may_leave_while_a_large_target_is_written() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18), topics=FakeTopics(t=6_000))
    crowd = Crowd(engine, 3_000)
    crowd.join(every_ms=0)
    engine.now_ms += 1_000
    engine._carry_out(engine.machine.tick(engine.now_ms))
    assert engine.consumer_group.target_in_writing is not None
    for member_id in crowd.ids[1_000:2_000]:
        engine.beat(member_id, -1)
    crowd.ids = crowd.ids[:1_000] + crowd.ids[2_000:]
    crowd.shares = {member_id: crowd.shares[member_id] for member_id in crowd.ids}
    engine.advance(1_000)
    crowd.settle()
    assert set(engine.consumer_group.targets) <= set(crowd.ids)
    assert sorted(p for share in crowd.shares.values() for p in share) == list(range(6_000))


def test_when_all_fall_silent_they_are_out_in_few_appends() -> None:
    engine = GroupEngine(topics=FakeTopics(t=PARTITIONS))
    crowd = Crowd(engine, MEMBERS)
    crowd.join(every_ms=0)
    crowd.settle()
    epoch = engine.consumer_group.group_epoch
    engine.advance(60_000)
    assert engine.consumer_group.is_empty
    assert engine.consumer_group.group_epoch - epoch < 5
