"""How long writers wait when a broker goes: killed, stopped, or killed while it was the controller.

The figure of an outage is the longest that a producer of a partition that the broker led was without an
acknowledgement. Kafka finds a dead broker by its session, so it can't be faster than that: 9 s with KRaft, 18 s with
ZooKeeper, as they come.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.fleet import LOOK_S, Fleet, Member, kafka_cluster, penstock_cluster
from bench.peers import BrokerFailed
from bench.results import Measure
from bench.watchers import RawProducer, UserConsumer, UserProducer, Watcher

KILLED_LIMIT_S, STOPPED_LIMIT_S, CONTROLLER_LIMIT_S = 3.0, 0.5, 3.0
NO_EFFECT_S = 0.3  # what a busy machine does to a producer by itself
CALM_S = 1.0  # before an outage, and behind it
OUTAGE_S_MAX = 120.0
WRITES_AGAIN = 20  # acknowledgements of each partition, before an outage is called over
STAY = {"auto.leader.rebalance.enable": "false"}  # leaders move when a broker goes, and else not
KAFKA_FLOORS = "Kafka's sessions: 9 s with KRaft, 18 s with ZooKeeper"

# Three brokers lead a partition each; and three partitions that each do without one of them.
SPREAD = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
APART = ((2, 3), (3, 1), (1, 2))


@dataclass
class Stage:
    """A cluster with clients that go on all the time."""

    fleet: Fleet
    raw: list[RawProducer] = field(default_factory=list)
    users: list[UserProducer] = field(default_factory=list)
    readers: list[UserConsumer] = field(default_factory=list)

    @property
    def watchers(self) -> Sequence[Watcher]:
        return [*self.raw, *self.users, *self.readers]

    @property
    def topics(self) -> list[str]:
        return sorted({watcher.topic for watcher in self.watchers})

    def watch(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Each producer has a topic of its own: they are not to wait for each other."""
        addresses = [member.address for member in self.fleet.members.values()]
        for name in (f"{topic}-raw", f"{topic}-user"):
            self.fleet.create_topic(name, replicas)
        self.raw.append(RawProducer(addresses, f"{topic}-raw", len(replicas)))
        self.users.append(UserProducer(self.fleet.bootstrap, f"{topic}-user", len(replicas)))
        self.readers.append(UserConsumer(self.fleet.bootstrap, f"{topic}-user", len(replicas)))

    def calm(self) -> None:
        """One outage is not to be part of the next."""
        self.fleet.until_in_sync(self.topics)
        for user in self.users:
            user.begin_anew()
        time.sleep(CALM_S)
        self.until_all_write(time.monotonic())

    def led_by(self, topic: str, node_id: int) -> list[int]:
        return [each.partition_index for each in self.fleet.partitions(topic) if each.leader_id == node_id]

    def until_all_write(self, since: float) -> None:
        """The rest of the cluster is back at work, and nothing else comes behind it."""

        def write() -> bool:
            return all(
                watcher.times.count_since(partition, since) >= WRITES_AGAIN
                for watcher in (*self.raw, *self.users)
                for partition in range(len(SPREAD))
            )

        self.fleet.until(write, "to acknowledge again", OUTAGE_S_MAX)
        time.sleep(CALM_S)


@contextlib.contextmanager
def staged(cluster: AbstractContextManager[Fleet]) -> Iterator[Stage]:
    with cluster as fleet:
        stage = Stage(fleet)
        stage.watch("spread", SPREAD)
        stage.watch("apart", APART)
        for watcher in stage.watchers:
            watcher.start()
        try:
            yield stage
        finally:
            for watcher in stage.watchers:
                watcher.close()


# ---- a leader goes


@dataclass(frozen=True, slots=True)
class Loss:
    """A way for a leader to go."""

    name: str
    title: str
    end: Callable[[Member], None]
    limit_s: float | None
    note: str


def leaders_lost(stage: Stage, times: int, loss: Loss) -> Iterator[Measure]:
    gaps: dict[str, list[float]] = {RawProducer.name: [], UserProducer.name: []}
    raw, user = stage.raw[0], stage.users[0]
    controllers = 0
    for number in range(times):
        stage.calm()
        victim = stage.fleet.members[stage.fleet.partitions(raw.topic)[number % len(SPREAD)].leader_id]
        affected = {watcher: stage.led_by(watcher.topic, victim.node_id) for watcher in (raw, user)}
        controllers += controller_of(stage.fleet) == victim.node_id
        began = time.monotonic()
        loss.end(victim)
        stage.until_all_write(began)
        until = time.monotonic()
        for watcher, partitions in affected.items():
            gaps[watcher.name].append(watcher.times.longest_gap_s(partitions, began, until))
        victim.start()
        _tell(f"{loss.title}, {number + 1} of {times}", {who: found[-1] for who, found in gaps.items()})
    for who, found in gaps.items():
        note = f"{min(found):.2f} to {max(found):.2f} s in {times}; {loss.note}"
        if stage.fleet.zookeeper is not None:  # Kafka's brokers do not say which of them it is
            note += f"; {controllers} of them the controller"
        if user.failed:
            note += f"; {user.failed} records were given up"
        name, title = f"{loss.name}-{who.split()[0]}", f"{loss.title}, {who}"
        yield Measure(f"{name}-p50", f"{title}, p50", statistics.median(found), "s")
        yield Measure(f"{name}-p99", f"{title}, p99", percentile(found, 0.99), "s", loss.limit_s, note)


def _tell(what: str, found_s: Mapping[str, float]) -> None:
    print(f"    {what}: {', '.join(f'{name} {seconds:.2f} s' for name, seconds in found_s.items())}", flush=True)


def percentile(found: Sequence[float], share: float) -> float:
    """By nearest rank: of fewer than a hundred, p99 is the worst."""
    return sorted(found)[math.ceil(share * len(found)) - 1]


# ---- the controller goes


def controller_of(fleet: Fleet) -> int:
    """As one of those that live knows it; -1 while there is none."""
    for member in fleet.living():
        if answer := fleet.described_by(member):
            return answer.controller_id
    return -1


def controllers_lost(stage: Stage, times: int) -> Iterator[Measure]:
    """It holds nothing of the partitions of `apart` that are looked at. Of those of `spread` it was a follower."""
    fleet, successions = stage.fleet, []
    apart: dict[str, list[float]] = {"produce, raw": [], "produce": [], "consume": []}
    followed: list[float] = []
    calm: list[float] = []
    for number in range(times):
        stage.calm()
        fleet.until(lambda: controller_of(fleet) in fleet.members, "to have a controller")
        victim = fleet.members[controller_of(fleet)]
        led = stage.led_by(stage.raw[0].topic, victim.node_id)
        others = [partition for partition in range(len(SPREAD)) if partition not in led]
        unconcerned = [partition for partition, replicas in enumerate(APART) if victim.node_id not in replicas]
        began = time.monotonic()
        calm.append(stage.users[1].times.longest_gap_s(unconcerned, began - CALM_S, began))
        victim.kill()
        successions.append(_until_succeeded(fleet, victim) - began)
        stage.until_all_write(began)
        until = time.monotonic()
        for what, watcher in zip(apart, (stage.raw[1], stage.users[1], stage.readers[1])):
            apart[what].append(watcher.times.longest_gap_s(unconcerned, began, until))
        followed.append(stage.raw[0].times.longest_gap_s(others, began, until))
        victim.start()
        found_s = {"the next": successions[-1], **{what: found[-1] for what, found in apart.items()}}
        _tell(f"controller killed, {number + 1} of {times}", found_s)
    note = f"{min(successions):.2f} to {max(successions):.2f} s in {times}; until every broker knows it"
    title = "controller killed, the next is there"
    yield Measure("controller-next-p50", f"{title}, p50", statistics.median(successions), "s")
    yield Measure("controller-next-p99", f"{title}, p99", percentile(successions, 0.99), "s", CONTROLLER_LIMIT_S, note)
    for what, found in apart.items():
        name = f"controller-{what.replace(', ', '-')}"
        note = f"at most {max(calm):.2f} s in a calm second before"
        yield Measure(
            name, f"controller killed, longest without {what}, p99", percentile(found, 0.99), "s", NO_EFFECT_S, note
        )
    title = "controller killed, longest without produce where it was a follower, p99"
    yield Measure("controller-followed", title, percentile(followed, 0.99), "s", KILLED_LIMIT_S)


def _until_succeeded(fleet: Fleet, victim: Member) -> float:
    """When each broker that is left named one of them."""
    left = {member.node_id for member in fleet.living()} - {victim.node_id}
    deadline = time.monotonic() + OUTAGE_S_MAX
    while time.monotonic() < deadline:
        answers = [fleet.described_by(fleet.members[node_id]) for node_id in left]
        if all(answer is not None and answer.controller_id in left for answer in answers):
            return time.monotonic()
        time.sleep(LOOK_S / 4)
    raise BrokerFailed(f"no controller within {OUTAGE_S_MAX:.0f} s")


# ---- all of it

KILLED = Loss("killed", "leader killed, longest without an acknowledgement", Member.kill, KILLED_LIMIT_S, KAFKA_FLOORS)
STOPPED = Loss("stopped", "leader stopped, longest without one", Member.stop, STOPPED_LIMIT_S, "SIGTERM")


def ours(work: Path, times: int) -> Iterator[Measure]:
    with staged(penstock_cluster(work / "failover", STAY)) as stage:
        yield from leaders_lost(stage, times, KILLED)
        yield from leaders_lost(stage, times, STOPPED)
        yield from controllers_lost(stage, times)


def kafkas(work: Path, times: int) -> Iterator[Measure]:
    """Its brokers do not say which of them is the controller, so the loss of that is not measured."""
    with staged(kafka_cluster(work / "failover-kafka", STAY)) as stage:
        for loss in (KILLED, STOPPED):
            theirs = replace(loss, name=f"kafka-{loss.name}", title=f"Kafka: {loss.title}", limit_s=None)
            yield from leaders_lost(stage, times, replace(theirs, note="KRaft, three of broker and controller"))
