"""From the classic protocol to the consumer protocol and back, with the members in it (KIP-848)."""

from typing import Any

import pytest
from group_engine import GROUP, REBALANCE_MS, SESSION_MS, GroupEngine, Partitions, offers, subscription

from penstock.coordinator.machine import Ticket
from penstock.groups.config import GroupConfig, MigrationPolicy
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.states import ConsumerGroupState, MemberState
from penstock.groups.group import Group
from penstock.groups.states import State
from penstock.protocol.codec import decode_versioned, encode_versioned
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from penstock.protocol.messages.leave_group import MemberIdentity

ALL = {"t": {0, 1, 2, 3, 4, 5}}
LOWER, UPPER = {"t": {0, 1, 2}}, {"t": {3, 4, 5}}


def assignment(partitions: Partitions) -> bytes:
    named = [TopicPartition(topic=topic, partitions=sorted(each)) for topic, each in partitions.items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=named), 1)


def assigned(reply: Any) -> dict[str, set[int]]:
    assert reply.error_code == ErrorCode.NONE
    message = decode_versioned(ConsumerProtocolAssignment, reply.assignment)
    return {each.topic: set(each.partitions) for each in message.assigned_partitions}


def metadata(*topics: str, holds: Partitions | None = None) -> Any:
    return offers(range=subscription(*topics or ("t",), holds=holds or {}))


def classic_group(engine: GroupEngine, **shares: Partitions) -> dict[str, str]:
    """A stable classic group of consumers with these shares; returns their ids by name."""
    entered = {name: engine.enter(name, protocols=metadata()) for name in shares}
    engine.advance()
    ids = {name: member_id for name, (member_id, _) in entered.items()}
    leader = engine.replies[next(iter(entered.values()))[1]].leader
    generation = engine.group.generation_id
    engine.sync(leader, generation, {ids[name]: assignment(share) for name, share in shares.items()})
    for member_id in ids.values():
        if member_id != leader:
            engine.sync(member_id, generation)
    assert engine.state is State.STABLE
    return ids


def rejoin(engine: GroupEngine, member_id: str, holds: Partitions, **options: Any) -> Any:
    return engine.replies[engine.join(member_id, protocols=metadata(holds=holds), **options)]


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


# ---- up


def test_a_classic_group_becomes_a_consumer_group_when_a_consumer_member_joins(engine: GroupEngine) -> None:
    ids = classic_group(engine, ann=LOWER, ben=UPPER)
    generation = engine.group.generation_id
    joined = engine.start("new")
    assert (joined.error_code, joined.member_epoch, engine.given(joined)) == (ErrorCode.NONE, generation + 1, {})
    group = engine.consumer_group
    assert set(group.members) == {*ids.values(), "new"}
    assert {m.member_type for m in engine.describe_consumer().members} == {0, 1}
    assert engine.reloaded().consumer_group.members == group.members


def test_classic_members_are_told_to_join_and_let_go_step_by_step(engine: GroupEngine) -> None:
    ids = classic_group(engine, ann=ALL)
    ann = ids["ann"]
    engine.start("new")
    assert engine.heartbeat(ann, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    joined = rejoin(engine, ann, ALL)
    assert (joined.error_code, joined.generation_id, joined.member_id, joined.leader) == (ErrorCode.NONE, 1, ann, "")
    assert (joined.protocol_type, joined.protocol_name, joined.members) == ("consumer", "range", [])
    kept = assigned(engine.replies[engine.sync(ann, 1)])
    assert len(kept["t"]) == 3
    assert engine.beat("new", 2).assignment is None  # not before the other has said that it let go

    assert engine.heartbeat(ann, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(engine, ann, kept).generation_id == 2
    assert assigned(engine.replies[engine.sync(ann, 2)]) == kept
    assert engine.given(engine.beat("new", 2)) == {"t": ALL["t"] - kept["t"]}
    assert engine.heartbeat(ann, 2) == ErrorCode.NONE
    assert engine.consumer_group.state is ConsumerGroupState.STABLE


def test_an_eager_member_has_let_go_of_everything_when_it_joins(engine: GroupEngine) -> None:
    ann = classic_group(engine, ann=ALL)["ann"]
    engine.start("new")
    assert rejoin(engine, ann, {}).generation_id == 2
    assert len(assigned(engine.replies[engine.sync(ann, 2)])["t"]) == 3


def test_a_classic_member_that_waits_for_others_is_told_when_they_have_let_go(engine: GroupEngine) -> None:
    engine.start("new")
    ann = engine.replies[engine.join(protocols=metadata())].member_id
    joined = rejoin(engine, ann, {})
    assert joined.generation_id == 2
    assert assigned(engine.replies[engine.sync(ann, 2)]) == {}
    assert engine.consumer_group.members[ann].state is MemberState.UNRELEASED_PARTITIONS
    assert engine.heartbeat(ann, 2) == ErrorCode.NONE
    kept = engine.given(engine.beat("new", 1))
    engine.beat("new", 1, owned=kept)
    assert engine.heartbeat(ann, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(engine, ann, {}).generation_id == 2
    assert len(assigned(engine.replies[engine.sync(ann, 2)])["t"]) == 3
    assert engine.heartbeat(ann, 2) == ErrorCode.NONE


def test_who_waits_for_a_classic_rebalance_is_told_that_there_is_another(engine: GroupEngine) -> None:
    ids = classic_group(engine, ann=LOWER, ben=UPPER)
    parked = engine.join(ids["ann"], protocols=metadata())
    assert parked not in engine.replies
    engine.start("new")
    assert engine.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS
    engine.advance(SESSION_MS - 1)
    assert set(ids.values()) <= set(engine.consumer_group.members)
    engine.advance(1)
    assert set(engine.consumer_group.members) == {"new"}


def test_who_waits_for_its_assignment_is_told_that_there_is_another_rebalance(engine: GroupEngine) -> None:
    ids = classic_group(engine, ann=LOWER, ben=UPPER)
    engine.join(ids["ann"], protocols=metadata())
    ben = engine.join(ids["ben"], protocols=metadata())
    generation = engine.replies[ben].generation_id
    follower = next(member_id for member_id in ids.values() if member_id != engine.group.leader_id)
    parked: Ticket = engine.sync(follower, generation)
    engine.start("new")
    assert engine.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS


def test_what_a_member_had_when_it_last_joined_is_its_own_until_it_says_otherwise(engine: GroupEngine) -> None:
    """The leader has taken a partition from it, which it may still be reading when the group is upgraded."""
    ids = classic_group(engine, ann=ALL)
    ann = ids["ann"]
    engine.join(ann, protocols=metadata(holds=ALL))
    engine.advance()
    engine.sync(ann, 2, {ann: assignment(LOWER)})
    engine.start("new")
    assert not engine.consumer_group.members["new"].assigned
    assert rejoin(engine, ann, LOWER).generation_id == 3
    assert engine.given(engine.beat("new", 3)) == UPPER


def test_a_partition_that_a_leader_gave_to_two_is_one_members(engine: GroupEngine) -> None:
    classic_group(engine, ann=ALL, ben=ALL)
    engine.start("new")
    owners = engine.consumer_group.owners
    assert sum(len(each) for each in owners.values()) == 6


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_group_is_not_upgraded_where_that_is_not_allowed(policy: MigrationPolicy) -> None:
    engine = GroupEngine(GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy))
    classic_group(engine, ann=ALL)
    response = engine.start("new")
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in (response.error_message or "")
    assert engine.state is State.STABLE


def test_only_groups_of_consumers_are_upgraded_and_only_if_they_are_not_too_large(engine: GroupEngine) -> None:
    engine.enter(protocol_type="connect", protocols=offers(some=b""))
    assert engine.start("new").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    small = GroupEngine(GroupConfig(initial_rebalance_delay_ms=0, consumer_max_size=1))
    classic_group(small, ann=LOWER, ben=UPPER)
    assert small.start("new").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_whose_metadata_can_not_be_read_is_not_upgraded(engine: GroupEngine) -> None:
    engine.enter(protocols=offers(range=b"\0"))
    engine.advance()
    response = engine.start("new")
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in (response.error_message or "")


def test_an_empty_group_becomes_what_the_first_to_join_speaks(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 5})
    assert engine.start("a").member_epoch == 1
    assert isinstance(engine.machine.groups[GROUP], ConsumerGroup)
    engine.beat("a", -1)
    member_id, ticket = engine.enter("b", protocols=metadata())
    engine.advance()
    assert isinstance(engine.machine.groups[GROUP], Group)
    engine.sync(member_id, engine.replies[ticket].generation_id, {member_id: b""})
    assert engine.fetch() == {("t", 0): 5}
    engine.reload()
    assert (engine.state, engine.fetch()) == (State.STABLE, {("t", 0): 5})


def test_a_group_that_is_left_between_two_kinds_is_still_a_group(engine: GroupEngine) -> None:
    engine.start("a")
    engine.commit({("t", 0): 5}, "a", 1)
    engine.beat("a", -1)
    engine.join(protocols=metadata())  # is given an id, and never comes back
    engine.reload()
    assert [group.group_id for group in engine.list()] == [GROUP]
    assert engine.fetch() == {("t", 0): 5}


def test_an_id_from_before_does_not_join_an_empty_consumer_group(engine: GroupEngine) -> None:
    engine.start("a")
    engine.beat("a", -1)
    assert engine.error(engine.join("old", protocols=metadata())) == ErrorCode.UNKNOWN_MEMBER_ID
    assert isinstance(engine.machine.groups[GROUP], ConsumerGroup)


# ---- classic members in a consumer group


def test_a_new_classic_member_must_ask_for_an_id_first(engine: GroupEngine) -> None:
    engine.start("new")
    required = engine.replies[engine.join(protocols=metadata())]
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rejoin(engine, required.member_id, {}).error_code == ErrorCode.NONE
    old = engine.replies[engine.join(protocols=metadata(), version=3, client="old")]
    assert (old.error_code, old.member_id) == (ErrorCode.NONE, "old-2")


def test_classic_members_must_have_a_protocol_in_common(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    assert engine.error(engine.join("ben", protocols=offers(other=subscription("t")))) == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    connect = engine.join("ben", protocol_type="connect", protocols=offers(range=b""))
    assert engine.error(connect) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert engine.error(engine.join("ben", protocols=offers(range=b""))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_limit_of_the_consumer_group_holds_for_classic_members() -> None:
    engine = GroupEngine(GroupConfig(consumer_max_size=1))
    engine.start("new")
    assert engine.error(engine.join("ann", protocols=metadata())) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_classic_requests_are_checked_against_the_member_epoch(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    assert engine.heartbeat("ann", 1) == ErrorCode.ILLEGAL_GENERATION
    assert engine.heartbeat("nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.heartbeat("new", 1) == ErrorCode.UNKNOWN_MEMBER_ID  # it does not speak this protocol
    assert engine.error(engine.sync("ann", 1)) == ErrorCode.ILLEGAL_GENERATION
    assert engine.error(engine.sync("new", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.error(engine.sync("nobody", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.error(engine.sync("ann", 2, protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert engine.error(engine.sync("ann", 2, protocol_name="other")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert engine.error(engine.sync("ann", 2, protocol_type="consumer", protocol_name="range")) == ErrorCode.NONE


def test_a_sync_after_another_epoch_began_must_join_again(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    engine.start("newer")
    assert engine.error(engine.sync("ann", 2)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_has_its_own_session(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    engine.sync("ann", 2)
    engine.advance(SESSION_MS - 1)
    assert engine.heartbeat("ann", 2) == ErrorCode.NONE
    engine.advance(SESSION_MS)
    assert engine.heartbeat("ann", 2) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("asks", ["to join", "to sync"])
def test_a_classic_member_that_beats_but_does_nothing_else_is_out(engine: GroupEngine, asks: str) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    if asks == "to join":
        engine.sync("ann", 2)
        engine.start("newer")
    for _ in range(REBALANCE_MS // 5_000):
        assert "ann" in engine.consumer_group.members
        engine.heartbeat("ann", 2)
        engine.beat("new", engine.consumer_group.members["new"].member_epoch)
        engine.advance(5_000)
    assert "ann" not in engine.consumer_group.members


def test_classic_members_commit_with_their_generation(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    assert engine.commit({("t", 0): 1}, "ann", 2, version=8) == [ErrorCode.NONE]
    assert engine.commit({("t", 0): 1}, "ann", 1) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_member_may_change_its_protocol(engine: GroupEngine) -> None:
    engine.start("new")
    engine.start("ann")
    rejoin(engine, "ann", {})
    assert engine.consumer_group.classic_count == 1
    engine.start("ann")
    assert engine.consumer_group.classic_count == 0


def test_a_static_member_may_come_back_with_the_other_protocol(engine: GroupEngine) -> None:
    engine.start("new")
    joined = engine.replies[engine.join(instance="one", protocols=metadata())]
    assert joined.error_code == ErrorCode.NONE
    back = engine.start("two", instance="one")
    assert back.error_code == ErrorCode.NONE
    assert set(engine.consumer_group.members) == {"new", "two"}
    assert engine.heartbeat(joined.member_id, joined.generation_id, instance="one") == ErrorCode.FENCED_INSTANCE_ID
    fenced = engine.join(joined.member_id, instance="one", protocols=metadata())
    assert engine.error(fenced) == ErrorCode.FENCED_INSTANCE_ID
    unknown = engine.join("any", instance="nobody", protocols=metadata())
    assert engine.error(unknown) == ErrorCode.UNKNOWN_MEMBER_ID


# ---- down


def downgraded(engine: GroupEngine) -> Group:
    group = engine.machine.groups[GROUP]
    assert isinstance(group, Group)
    return group


def test_when_the_last_consumer_member_leaves_the_group_is_classic_again(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    engine.beat("new", -1)
    group = downgraded(engine)
    assert (group.generation_id, list(group.members)) == (2, ["ann"])
    assert engine.reloaded().group.state is State.PREPARING_REBALANCE  # though the rebalance is not on record
    engine.advance()
    assert group.state is State.PREPARING_REBALANCE
    ticket = engine.join("ann", protocols=metadata())
    assert engine.replies[ticket].generation_id == 3
    engine.sync("ann", 3, {"ann": assignment(ALL)})
    assert engine.state is State.STABLE


def test_a_group_is_downgraded_when_the_session_of_the_last_consumer_member_ends(engine: GroupEngine) -> None:
    engine.start("new")
    for _ in range(9):
        rejoin(engine, "ann", {}, session_ms=SESSION_MS)
        engine.sync("ann", 2)
        engine.advance(5_000)
    assert list(downgraded(engine).members) == ["ann"]


def test_an_administrator_may_remove_the_last_consumer_member(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    response = engine.leave(MemberIdentity(member_id="new"), MemberIdentity(member_id="nobody"))
    assert [member.error_code for member in response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(downgraded(engine).members) == ["ann"]


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_a_group_is_not_downgraded_where_that_is_not_allowed(policy: MigrationPolicy) -> None:
    engine = GroupEngine(GroupConfig(consumer_migration_policy=policy))
    engine.start("new")
    rejoin(engine, "ann", {})
    engine.beat("new", -1)
    assert list(engine.consumer_group.members) == ["ann"]
    assert engine.heartbeat("ann", 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(engine, "ann", {}).generation_id == 3
    assert assigned(engine.replies[engine.sync("ann", 3)]) == ALL


def test_a_group_that_is_too_large_for_a_classic_one_is_not_downgraded() -> None:
    engine = GroupEngine(GroupConfig(group_max_size=1))
    engine.start("new")
    rejoin(engine, "ann", {})
    rejoin(engine, "ben", {})
    engine.beat("new", -1)
    assert set(engine.consumer_group.members) == {"ann", "ben"}


def test_when_classic_members_leave_the_group_stays_what_it_is(engine: GroupEngine) -> None:
    engine.start("new")
    rejoin(engine, "ann", {})
    engine.leave(MemberIdentity(member_id="ann"))
    assert list(engine.consumer_group.members) == ["new"]
    engine.beat("new", -1)
    assert engine.consumer_group.state is ConsumerGroupState.EMPTY


def test_a_static_member_that_comes_back_classic_takes_the_group_along(engine: GroupEngine) -> None:
    engine.start("new", instance="one")
    engine.start("other")
    rejoin(engine, "ann", {})
    engine.beat("other", -1)
    for _ in range(3):
        member = engine.consumer_group.members["new"]
        engine.beat("new", member.member_epoch, owned=engine.given(engine.start("new", instance="one")))
        joined = rejoin(engine, "ann", {})
    engine.sync("ann", joined.generation_id)
    assert engine.consumer_group.state is ConsumerGroupState.STABLE
    epoch = engine.consumer_group.group_epoch

    ticket = engine.join(instance="one", protocols=metadata())
    back = engine.replies[ticket]
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, epoch)
    group = downgraded(engine)
    assert set(group.members) == {"ann", back.member_id}
    engine.advance()
    assert group.state is State.STABLE  # nobody need notice
    share = assigned(engine.replies[engine.sync(back.member_id, epoch, instance="one")])
    assert share["t"] | assigned(engine.replies[engine.sync("ann", epoch)])["t"] == ALL["t"]


def test_offsets_survive_all_of_it(engine: GroupEngine) -> None:
    ids = classic_group(engine, ann=ALL)
    engine.commit({("t", 0): 1}, ids["ann"], 1)
    engine.start("new")
    engine.commit({("t", 1): 2}, "new", 2)
    rejoin(engine, ids["ann"], {})
    engine.beat("new", -1)
    for _ in range(2):
        assert engine.fetch() == {("t", 0): 1, ("t", 1): 2}
        engine.reload()
