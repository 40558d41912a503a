"""One partition on brokers that crash, pause, stop, lag and lose their disks; its settings and replicas change.

Whatever happens, in any order: whoever is in sync or eligible holds all that was ever committed, and so does whoever
begins to lead. In the end, when all are well, the partition has a leader and all its replicas are in sync.

The rules under test decide; the world around them is as unkind as it may be. Brokers know an old state until they learn
of a newer one, writes arrive late or after another's, and their outcome is not told. Taking any one rule out must be
noticed, which the last test shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import elections, reassignments
from penstock.cluster.model import NO_LEADER, BrokerState, PartitionState
from penstock.protocol.errors import ApiError

BROKERS = (1, 2, 3, 4)
ASSIGNMENTS = ((1, 2, 3), (2, 3), (3, 4), (4, 1, 2), (3, 2, 1))
Record = tuple[int, int]  # the epoch of the leader that appended it, and a number of its own
Step = tuple[str, int, int]


class Lost(AssertionError):
    """Something that was committed is not where it must be."""


@dataclass
class Process:
    """A broker that runs: what it knows, and if it leads, what it knows of its followers."""

    known: PartitionState
    version: int
    epoch_start: int = 0
    high_watermark: int = 0
    positions: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Write:
    """A change of the in-sync set that a leader has sent, and of which it does not know yet what became."""

    leader: int
    member: int
    version: int
    state: PartitionState
    arrived: bool = False


def agreed(log: list[Record], theirs: list[Record]) -> int:
    """Up to where a follower's log is that of its leader, as far as epochs can tell (KIP-279)."""
    end = len(log)
    while end:
        epoch = log[end - 1][0]
        known = [each for each, _ in theirs if each <= epoch]
        if known and known[-1] == epoch:
            return min(end, len(known))
        end = sum(each <= known[-1] for each, _ in log[:end]) if known else 0
    return 0


class World:
    def __init__(self, min_insync: int = 2) -> None:
        self.truth = PartitionState(leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3))
        self.version = 0
        self.controllers_min = self.leaders_min = min_insync
        self.registered = {each: BrokerState(each, ()) for each in BROKERS}
        self.logs: dict[int, list[Record]] = {each: [] for each in BROKERS}
        self.running: dict[int, Process] = {each: Process(self.truth, 0) for each in BROKERS}
        self.damaged: set[int] = set()
        self.writes: list[Write] = []
        self.committed: list[Record] = []
        self.appended = 0
        self.waits_to_join = True
        self.counts_writes_in_flight = True
        self.withdraws_for_sure = True  # written even where it changes nothing, so that what is in flight fails
        self.is_checked = True  # whether states that make no sense are noticed, too

    def run(self, steps: Iterable[Step]) -> None:
        for name, one, other in steps:
            getattr(self, name)(one, other)
            self.check()

    def check(self) -> None:
        for member in (*self.truth.isr, *self.truth.eligible):
            if member not in self.damaged and not self.holds_all(member):
                raise Lost(f"{member} of {self.truth} lacks what is committed")

    def holds_all(self, broker: int) -> bool:
        return self.logs[broker][: len(self.committed)] == self.committed

    # ---- what happens to brokers

    def crash(self, broker: int, _: int) -> None:
        self.running.pop(broker, None)

    def expire(self, broker: int, _: int) -> None:
        """Its session ends, and with it what was still to be written. If it runs, it does not know, and goes on."""
        self.registered.pop(broker, None)
        self.writes = [write for write in self.writes if write.leader != broker or write.arrived]

    def lose_power(self, broker: int, kept: int) -> None:
        """What was not synced is gone. Another that holds all must be left, or nothing could help."""
        others = {*self.truth.isr, *self.truth.eligible} - {broker}
        if not self.damaged and others:
            self.crash(broker, 0)
            self.expire(broker, 0)
            del self.logs[broker][kept:]
            self.damaged.add(broker)

    def start(self, broker: int, _: int) -> None:
        if broker not in self.running:
            self.expire(broker, 0)
        if broker in self.damaged:
            self._write(elections.withdraw(self.truth, broker, self.controllers_min))
            self.version += self.withdraws_for_sure
            self.damaged.remove(broker)
        self.registered[broker] = BrokerState(broker, ())
        if broker not in self.running:
            self.running[broker] = Process(replace(self.truth, leader=NO_LEADER), -1)

    def stop(self, broker: int, _: int) -> None:
        if broker in self.registered:
            self.registered[broker] = replace(self.registered[broker], stopping=True)

    def learn(self, broker: int, _: int) -> None:
        if (process := self.running.get(broker)) is None:
            return
        self.writes = [write for write in self.writes if write.leader != broker or not write.arrived]
        if process.version == self.version:
            return
        began = (process.known.leader, process.known.leader_epoch) != (self.truth.leader, self.truth.leader_epoch)
        process.known, process.version = self.truth, self.version
        if broker not in self.truth.replicas:
            self.logs[broker].clear()
        if began:
            process.epoch_start, process.high_watermark = len(self.logs[broker]), 0
            process.positions.clear()
            if self.truth.leader == broker and not self.holds_all(broker):
                raise Lost(f"{broker} leads by {self.truth} and lacks what is committed")

    # ---- what leaders and followers do

    def _leading(self, broker: int) -> Process | None:
        process = self.running.get(broker)
        return process if process is not None and process.known.leader == broker else None

    def append(self, which: int, _: int) -> None:
        """By one of those that believe to lead."""
        if leaders := [broker for broker in BROKERS if self._leading(broker) is not None]:
            broker = leaders[which % len(leaders)]
            leader = self.running[broker]
            self.appended += 1
            self.logs[broker].append((leader.known.leader_epoch, self.appended))
            self._commit(broker, leader)

    def keep_up(self, broker: int, manner: int) -> None:
        """All that a follower in good health does, one after the other."""
        self.learn(broker, 0)
        for _ in range(3):
            self.fetch(broker, manner)
            self.arrive(self.truth.leader, manner)

    def fetch(self, broker: int, manner: int) -> None:
        """From whom it believes to lead, if that one believes it too: cut to what both have, then get some or all."""
        if (follower := self.running.get(broker)) is None or broker not in follower.known.replicas:
            return
        source = follower.known.leader
        leader = self._leading(source)
        if leader is None or source == broker or leader.known.leader_epoch != follower.known.leader_epoch:
            return
        log, theirs = self.logs[broker], self.logs[source]
        common = agreed(log, theirs)
        del log[common:]
        leader.positions[broker] = common
        self._commit(source, leader)
        if manner & 1:
            self._join(source, leader, broker)
        log += theirs[common : common + 1] if manner & 2 else theirs[common:]

    def _commit(self, broker: int, leader: Process) -> None:
        if not elections.commits(leader.known, self.leaders_min):
            return
        counted = set(leader.known.isr)
        if self.counts_writes_in_flight:
            counted |= {write.member for write in self.writes if write.leader == broker}
        offset = min([len(self.logs[broker]), *(leader.positions.get(each, 0) for each in counted - {broker})])
        leader.high_watermark = max(leader.high_watermark, offset)
        common = min(len(self.committed), leader.high_watermark)
        if self.logs[broker][:common] != self.committed[:common]:
            raise Lost(f"{broker} commits other records than were committed")
        self.committed += self.logs[broker][len(self.committed) : leader.high_watermark]

    def _join(self, broker: int, leader: Process, follower: int) -> None:
        caught_up = leader.positions[follower] >= max(leader.high_watermark, leader.epoch_start)
        stays = follower in self.registered and not self.registered[follower].stopping
        if stays and (caught_up or not self.waits_to_join):
            self._send(broker, follower, leader, elections.expand(leader.known, follower, self.leaders_min))

    def shrink(self, broker: int, gone: int) -> None:
        if (leader := self._leading(broker)) is not None and gone != broker:
            self._send(broker, gone, leader, elections.shrink(leader.known, {gone}, self.leaders_min))

    def _send(self, broker: int, member: int, leader: Process, state: PartitionState) -> None:
        if state is not leader.known and all(write.leader != broker for write in self.writes):
            self.writes.append(Write(broker, member, leader.version, state))

    def arrive(self, broker: int, told: int) -> None:
        for index, write in enumerate(self.writes):
            if write.leader == broker and not write.arrived:
                if write.version == self.version:
                    self._write(write.state)
                self.writes[index] = replace(write, arrived=True)
        if told & 1:
            self.learn(broker, 0)

    # ---- what the controller and people do

    def settle(self, *_: int) -> None:
        settled = elections.settle(self.truth, self.registered, self.controllers_min)
        if self.is_checked:
            assert elections.settle(settled, self.registered, self.controllers_min) is settled
        self._write(settled)

    def prefer(self, *_: int) -> None:
        self._write(elections.prefer(self.truth, self.registered))

    def configure(self, controllers: int, leaders: int) -> None:
        self.controllers_min, self.leaders_min = max(controllers - 1, 1), max(leaders - 1, 1)

    def reassign(self, which: int, cancelled: int) -> None:
        self.settle()
        try:
            if cancelled > 2:
                self._write(reassignments.cancel(self.truth))
            else:
                self._write(reassignments.begin(self.truth, ASSIGNMENTS[which]))
        except ApiError:
            pass

    def _write(self, state: PartitionState) -> None:
        if state is not self.truth:
            if self.is_checked:
                self._make_sense(state)
            self.truth = state
            self.version += 1

    def _make_sense(self, state: PartitionState) -> None:
        assert state != self.truth, "a write that changes nothing"
        assert state.leader == NO_LEADER or state.leader in state.isr, state
        assert len({*state.isr, *state.eligible}) == len(state.isr) + len(state.eligible), state
        assert {*state.isr, *state.eligible, *state.adding, *state.removing} <= set(state.replicas), state
        assert state.isr or state.eligible, state
        assert state.leader == self.truth.leader or state.leader_epoch == self.truth.leader_epoch + 1, state

    def heal(self) -> None:
        for _ in range(12):
            for broker in BROKERS:
                self.start(broker, 0)
                self.arrive(broker, 1)
            self.settle()
            for broker in BROKERS:
                self.learn(broker, 0)
            for broker in (*BROKERS, *BROKERS):
                self.fetch(broker, 1)
                self.arrive(broker, 1)
            self.check()
        assert self.truth.leader != NO_LEADER
        assert set(self.truth.isr) == set(self.truth.replicas)
        assert not self.truth.eligible
        assert not reassignments.in_progress(self.truth)


OFTEN = ("append", "append", "fetch", "fetch", "keep_up", "keep_up", "learn", "learn", "arrive", "settle", "start")
SOMETIMES = ("crash", "expire", "shrink")
RARELY = ("lose_power", "stop", "prefer", "configure", "reassign")
STEPS = (*OFTEN * 6, *SOMETIMES * 2, *RARELY)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(BROKERS), st.sampled_from(BROKERS)), max_size=80),
)
def test_whatever_happens_nothing_committed_is_lost_and_all_is_well_in_the_end(
    min_insync: int, steps: list[Step]
) -> None:
    world = World(min_insync)
    world.run(steps)
    world.heal()


def random_steps(seed: int, count: int) -> list[Step]:
    rng = random.Random(seed)
    return [(rng.choice(STEPS), rng.choice(BROKERS), rng.choice(BROKERS)) for _ in range(count)]


def test_a_long_time_is_as_good_as_a_short_one() -> None:
    committed = 0
    for seed in range(30):
        world = World(1 + seed % 3)
        world.run(random_steps(seed, 1_000))
        world.heal()
        committed += len(world.committed)
    assert committed > 500, "a world in which nothing is committed proves nothing"


# ---- each rule is needed


def all_stay_eligible(state: PartitionState, isr: tuple[int, ...], min_insync: int) -> tuple[int, ...]:
    return tuple(each for each in state.replicas if each in (*state.isr, *state.eligible) and each not in isr)


def commits_beside_eligible(state: PartitionState, min_insync: int) -> bool:
    return len(state.isr) >= elections.insync_needed(state, min_insync)


def without_an_epoch(state: PartitionState, leader: int) -> PartitionState:
    return replace(state, leader=leader, last_leader=state.leader if leader == NO_LEADER else NO_LEADER)


def anyone(elect: Callable[..., PartitionState], *arguments: Any) -> PartitionState:
    return elect(*arguments[:-1], True)


def complete_early(state: PartitionState) -> PartitionState:
    if not reassignments.in_progress(state) or not set(reassignments.target(state)) & set(state.isr):
        return state
    target = reassignments.target(state)
    return replace(state, leader=target[0], leader_epoch=state.leader_epoch + 1, replicas=target, isr=target,
                   eligible=(), adding=(), removing=())  # fmt: skip


def untouched(state: PartitionState, *_: int) -> PartitionState:
    return state


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "who left stays eligible though others can commit": lambda patch: (
        patch.setattr(elections, "_eligible", all_stay_eligible),
        patch.setattr(elections, "commits", commits_beside_eligible),
    ),
    "a leader commits though others are eligible": lambda patch: patch.setattr(
        elections, "commits", commits_beside_eligible
    ),
    "too few commit": lambda patch: patch.setattr(elections, "commits", lambda *_: True),
    "anyone may lead": lambda patch: patch.setattr(
        elections, "_led", lambda *arguments, elect=elections._led: anyone(elect, *arguments)
    ),
    "a new leader begins no epoch": lambda patch: patch.setattr(elections, "_led_by", without_an_epoch),
    "a reassignment ends before all are in sync": lambda patch: patch.setattr(elections, "complete", complete_early),
    "a replica that lost data stays in sync": lambda patch: patch.setattr(elections, "withdraw", untouched),
    "a follower joins before it has caught up": lambda patch: None,
    "a change in flight does not count": lambda patch: None,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_any_one_of_the_rules_data_is_lost(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    for seed in range(2_000):
        world = World(1 + seed % 3)
        world.waits_to_join = mutant != "a follower joins before it has caught up"
        world.counts_writes_in_flight = mutant != "a change in flight does not count"
        world.is_checked = False
        try:
            world.run(random_steps(seed, 150))
        except Lost:
            return
    pytest.fail("nobody noticed")


@pytest.mark.parametrize("for_sure", [True, False])
def test_a_replica_that_lost_data_stops_an_expansion_that_is_in_flight(for_sure: bool) -> None:
    world = World()
    world.withdraws_for_sure = for_sure
    world.run([("shrink", 1, 2), ("arrive", 1, 1), ("append", 1, 0), ("keep_up", 3, 0)])
    assert len(world.committed) == 1
    world.run([("fetch", 2, 0), ("fetch", 2, 1)])  # it has all, and the leader asks for it to be in sync again
    world.run([("lose_power", 2, 0), ("start", 2, 0)])
    if for_sure:
        world.run([("arrive", 1, 1)])
        assert world.truth.isr == (1, 3)
    else:
        with pytest.raises(Lost):
            world.run([("arrive", 1, 1)])
