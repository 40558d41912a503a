"""What the administration changes about single partitions, and what it does about brokers that were faster."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.cluster import administration as administration_module
from penstock.cluster.administration import Administration, NewTopic
from penstock.cluster.catalog import Catalog
from penstock.cluster.coordination import DATA_BYTES_MAX, Coordination, Operation, Result, Set, Told, Versioned
from penstock.cluster.leader_plans import Election
from penstock.cluster.model import NO_LEADER, BrokerState, ClusterImage, PartitionState
from penstock.cluster.nodes import BrokerNode
from penstock.cluster.topic_names import OFFSETS_TOPIC
from penstock.protocol.errors import ApiError, ErrorCode
from tests.cluster.controlled_cluster import ControlledCluster


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[ControlledCluster]:
    cluster = await ControlledCluster(tmp_path, brokers=3).start()
    yield cluster
    await cluster.stop()


class UntoldStore:
    """The store of a cluster, for a broker to which watches are slow: it learns only what it asks for."""

    def __init__(self, store: Coordination) -> None:
        self._store = store
        self.before_next_write: Any = None
        self.writes: list[Sequence[Operation]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def follow(self, path: str, told: Told) -> dict[str, Versioned]:
        return await self._store.children_with_data(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.before_next_write is not None:
            meanwhile, self.before_next_write = self.before_next_write, None
            await meanwhile()
        self.writes.append(operations)
        return await self._store.multi(operations)


class Other:
    """Another broker of the same cluster."""

    def __init__(self, cluster: ControlledCluster) -> None:
        self.store = UntoldStore(cluster.store)
        self.image = ClusterImage("", NO_LEADER)
        self.image.brokers.update(cluster.image.brokers)
        self.catalog = Catalog(cast(Coordination, self.store), self.image, cluster.settings, 2)
        randbytes = random.Random(8).randbytes
        self.administration = Administration(self.catalog, self.image, cluster.settings, 2, randbytes)

    async def start(self) -> Other:
        await self.catalog.load(random.Random(9).randbytes)
        return self


@pytest.fixture
async def other(three: ControlledCluster) -> Other:
    return await Other(three).start()


async def made(cluster: ControlledCluster, *replicas: Sequence[int], name: str = "t") -> None:
    await cluster.administration.create_topic(name, assignments=list(enumerate(replicas)))


def state(cluster: ControlledCluster | Other, index: int = 0, name: str = "t") -> PartitionState:
    return cluster.image.topics[name].partitions[index]


async def put(cluster: ControlledCluster, changed: PartitionState, index: int = 0, name: str = "t") -> None:
    topic = cluster.image.topics[name]
    partitions = [*topic.partitions[:index], changed, *topic.partitions[index + 1 :]]
    await cluster.catalog.write_topics([replace(topic, partitions=tuple(partitions))])


def codes(outcomes: Sequence[ApiError | None]) -> list[ErrorCode | None]:
    return [outcome.code if outcome else None for outcome in outcomes]


# ---- leaders


async def test_preferred_leaders_are_elected_and_what_can_not_be_is_told(three: ControlledCluster) -> None:
    await made(three, [2, 1], [1, 2], [3, 1])
    await put(three, replace(state(three), leader=1, leader_epoch=1))
    await put(three, replace(state(three, 2), leader=1, leader_epoch=1), 2)
    del three.image.brokers[3]
    asked = [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("t", -1), ("nowhere", 0), ("bad name", 0)]
    outcomes = await three.administration.elect_leaders(Election.PREFERRED, asked)
    assert codes(outcomes) == [
        None,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4,
    ]
    assert (state(three).leader, state(three).leader_epoch) == (2, 2)
    assert (state(three, 2).leader, state(three, 2).leader_epoch) == (1, 1), "left to the controller"


async def test_an_election_counts_only_if_nobody_has_changed_the_partition(
    three: ControlledCluster, other: Other
) -> None:
    await made(three, [1, 2])
    await other.administration.learn(["t"])
    await put(three, replace(state(three), leader=2, leader_epoch=1, isr=(2,)))
    outcomes = await other.administration.elect_leaders(Election.PREFERRED, [("t", 0)])
    assert codes(outcomes) == [ErrorCode.ELECTION_NOT_NEEDED], "that is what this broker has heard of so far"
    await other.catalog.refresh(["/topics/t"])

    async def meanwhile() -> None:
        await put(three, replace(state(three), isr=(2,)))

    await put(three, replace(state(three), isr=(2, 1)))
    await other.catalog.refresh(["/topics/t"])
    other.store.before_next_write = meanwhile
    outcomes = await other.administration.elect_leaders(Election.PREFERRED, [("t", 0)])
    assert codes(outcomes) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], "it has left the in-sync set meanwhile"
    assert state(three).leader == 2


async def test_before_an_unclean_election_it_is_asked_who_lives(three: ControlledCluster, other: Other) -> None:
    await made(three, [1, 2, 3])
    await put(three, replace(state(three), leader=NO_LEADER, isr=(), eligible=(1,), last_leader=1))
    await other.administration.learn(["t"])
    del other.image.brokers[1]
    await three.store.multi([BrokerNode(BrokerState(1, ())).announce()])  # it is back, of which nobody was told
    outcomes = await other.administration.elect_leaders(Election.UNCLEAN, [("t", 0)])
    assert codes(outcomes) == [None]
    assert (state(three).leader, state(three).isr) == (1, (1,)), "who lacks nothing, and not the first that was known"


async def test_an_unclean_election_is_done_when_a_person_asks(
    three: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await made(three, [1, 2, 3], [1, 2, 3])
    await put(three, replace(state(three), leader=NO_LEADER, isr=(), eligible=(1,), last_leader=1))
    del three.image.brokers[1]
    outcomes = await three.administration.elect_leaders(Election.UNCLEAN, [("t", 0)])
    assert codes(outcomes) == [None]
    assert (state(three).leader, state(three).isr, state(three).eligible) == (2, (2,), ())
    assert "may lack committed records" in caplog.text


async def test_many_partitions_are_changed_in_writes_of_bounded_size(
    three: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration_module, "TOPICS_PER_WRITE", 3)
    monkeypatch.setattr(administration_module, "PARTITIONS_PER_WRITE", 8)
    names = [f"t{number}" for number in range(7)]
    for name in names:
        await made(three, [2, 1], [2, 1], [1, 2], name=name)
        await put(three, replace(state(three, 0, name), leader=1), 0, name)
    other = await Other(three).start()
    await other.catalog._identify(list(other.image.topics.values()))  # else the first writes fail and come twice
    other.store.writes.clear()
    asked = [(name, index) for name in names for index in range(3)]
    outcomes = await other.administration.elect_leaders(Election.PREFERRED, asked)
    assert codes(outcomes) == [None, *[ErrorCode.ELECTION_NOT_NEEDED] * 2] * 7
    written = [[each for each in operations if isinstance(each, Set)] for operations in other.store.writes]
    assert [len(topics) for topics in written] == [2, 2, 2, 1]
    assert all(state(three, 0, name).leader == 2 for name in names)


# ---- replicas


async def test_a_partition_is_sent_on_its_way_and_called_back(three: ControlledCluster) -> None:
    await made(three, [1, 2], [1, 2])
    reassign = three.administration.reassign_partitions
    assert codes(await reassign([(("t", 0), [3, 2]), (("t", 1), [2, 1])])) == [None, None]
    assert state(three) == replace(
        PartitionState(1, 0, (3, 2, 1), (1, 2)), adding=(3,), removing=(1,)
    )  # leader 1 goes on meanwhile
    assert (state(three, 1).replicas, state(three, 1).leader) == ((2, 1), 1), "another order is there at once"
    outcomes = await reassign([(("t", 0), None), (("t", 1), None), (("t", 0), None)])
    none = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert codes(outcomes) == [None, none, none], "one after another"
    assert (state(three).replicas, state(three).adding, state(three).removing) == ((2, 1), (), ())


async def test_what_a_reassignment_asks_for_is_checked(three: ControlledCluster) -> None:
    await made(three, [1, 2])
    before = state(three)
    outcomes = await three.administration.reassign_partitions(
        [
            (("t", 0), []),
            (("t", 0), [1, 1]),
            (("t", 0), [1, 9]),
            (("t", 0), [1, 2, 3]),
            (("t", 5), [1]),
            (("u", 0), None),
        ],
        factor_may_change=False,
    )
    assert codes(outcomes) == [
        *[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
    ]
    assert state(three) is before


async def test_a_reassignment_is_planned_again_on_what_others_wrote(three: ControlledCluster, other: Other) -> None:
    await made(three, [1, 2])
    await other.administration.learn(["t"])

    async def meanwhile() -> None:
        await put(three, replace(state(three), leader=2, leader_epoch=1, isr=(2,)))

    other.store.before_next_write = meanwhile
    assert codes(await other.administration.reassign_partitions([(("t", 0), [2, 3])])) == [None]
    assert (state(three).replicas, state(three).leader, state(three).isr) == ((2, 3, 1), 2, (2,))


async def test_a_topic_that_would_outgrow_its_node_stays_where_it_is(three: ControlledCluster) -> None:
    listed = ",".join(["0:1"] * 50_000)
    config = {"leader.replication.throttled.replicas": listed}
    await three.administration.create_topic("wide", assignments=[(n, [1]) for n in range(10_000)], config=config)
    await made(three, [1])
    before = three.image.topics["wide"]
    asked = [(("wide", index), [2, 3]) for index in range(10_000)]
    outcomes = await three.administration.reassign_partitions([*asked, (("t", 0), [2]), (("wide", 10_000), [2])])
    policy = ErrorCode.POLICY_VIOLATION
    assert codes(outcomes) == [*[policy] * 10_000, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert three.image.topics["wide"] is before, "of one topic, all or nothing"
    assert state(three).adding == (2,), "other topics go their way"
    assert codes(await three.administration.reassign_partitions(asked[:100])) == [None] * 100


async def test_a_topic_that_is_too_large_already_can_be_called_back(three: ControlledCluster) -> None:
    await made(three, [1])
    await three.administration.reassign_partitions([(("t", 0), [2])])
    topic = three.image.topics["t"]
    listed = "0:1".ljust(DATA_BYTES_MAX - 300)
    await three.catalog.write_topics([replace(topic, config={"leader.replication.throttled.replicas": listed})])
    assert codes(await three.administration.reassign_partitions([(("t", 0), [2, 3])])) == [ErrorCode.POLICY_VIOLATION]
    assert codes(await three.administration.reassign_partitions([(("t", 0), None)])) == [None]
    assert state(three).replicas == (1,)


async def test_when_the_store_is_gone_every_partition_is_told(three: ControlledCluster) -> None:
    await made(three, [1, 2])
    three.store.fail_before = True
    outcomes = await three.administration.reassign_partitions([(("t", 0), [2, 3]), (("u", 0), None)])
    assert codes(outcomes) == [ErrorCode.REQUEST_TIMED_OUT] * 2
    three.store.fail_before = False
    assert codes(await three.administration.reassign_partitions([(("t", 0), [2, 3])])) == [None]


# ---- topics that others make


async def test_what_another_broker_made_just_now_is_found_when_it_is_to_be_changed(
    three: ControlledCluster, other: Other
) -> None:
    for name in ("grown", "altered", "deleted", "by-id", "moved"):
        await made(three, [1, 2], name=name)
    by_id = three.image.topics["by-id"].topic_id
    assert not other.image.topics
    assert len((await other.administration.create_partitions("grown", 3)).partitions) == 3
    assert (await other.administration.alter_topic_config("altered", {"flush": "os"})).config == {"flush": "os"}
    await other.administration.delete_topic("deleted")
    assert await other.administration.delete_topics([by_id]) == [None]
    assert codes(await other.administration.reassign_partitions([(("moved", 0), [3])])) == [None]
    assert set(three.image.topics) == {"grown", "altered", "moved"}


async def test_what_another_broker_deleted_just_now_does_not_exist(three: ControlledCluster, other: Other) -> None:
    await made(three, [1, 2])
    await other.administration.learn(["t"])
    await three.administration.delete_topic("t")
    with pytest.raises(ApiError) as caught:
        await other.administration.create_partitions("t", 3)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_names_that_no_topic_can_have_are_not_looked_for(other: Other) -> None:
    failures = await other.administration.delete_topics(["../cluster", "a/b", "", "."])
    assert codes(failures) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    for name in ("../cluster", "a/b", "", "."):
        assert codes(await other.administration.delete_topics([name])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_two_brokers_do_not_make_names_that_collide(three: ControlledCluster, other: Other) -> None:
    await other.administration.create_topic("first")
    await made(three, [1], name="a.b")
    with pytest.raises(ApiError) as caught:
        await other.administration.create_topic("a_b")
    assert caught.value.message == "Topic 'a_b' collides with existing topic: a.b"


async def test_of_two_brokers_that_make_a_topic_at_once_one_does(three: ControlledCluster, other: Other) -> None:
    async def meanwhile() -> None:
        await made(three, [1])

    other.store.before_next_write = meanwhile
    (outcome,) = await other.administration.create_topics([NewTopic("t")])
    assert isinstance(outcome, ApiError)
    assert outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS
    other.store.before_next_write = lambda: made(three, [2], name="u")
    (created,) = await other.administration.auto_create_topics(["u"])
    assert created == three.image.topics["u"], "whoever wants it to be there is content"


# ---- brokers that stop


async def test_no_new_replica_goes_to_a_broker_that_stops(three: ControlledCluster) -> None:
    await made(three, [1, 2])
    three.image.brokers[3] = replace(three.image.brokers[3], stopping=True)
    topic = await three.administration.create_topic("u", 10, 2)
    grown = await three.administration.create_partitions("t", 10)
    assert {replica for each in (topic, grown) for p in each.partitions for replica in p.replicas} == {1, 2}
    with pytest.raises(ApiError) as caught:
        await three.administration.create_topic("v", 1, 3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    named = await three.administration.create_topic("w", assignments=[(0, [1, 3])])
    assert named.partitions[0].replicas == (1, 3), "unless a person says so"


async def test_a_coordinators_topic_gets_as_many_replicas_as_there_are_brokers(three: ControlledCluster) -> None:
    three.image.brokers[3] = replace(three.image.brokers[3], stopping=True)
    topic = await three.administration.ensure_topic(OFFSETS_TOPIC)
    assert {len(partition.replicas) for partition in topic.partitions} == {2}


async def test_topics_that_got_fewer_replicas_because_brokers_were_away_are_told_of(
    three: ControlledCluster, other: Other, caplog: pytest.LogCaptureFixture
) -> None:
    await other.administration.create_topic("whole")
    del other.image.brokers[3]
    await other.administration.create_topic("meant", 1, 2)
    assert not caplog.records
    await other.administration.create_topic("few")
    (record,) = caplog.records
    assert "default.replication.factor=3" in record.message
    assert (record.levelname, vars(record)["topics"]) == ("WARNING", ["few"])
    await other.administration.ensure_topic(OFFSETS_TOPIC)
    assert "offsets.topic.replication.factor=3" in caplog.records[-1].message
