"""Consumer groups seen from outside: described, listed, deleted; and offsets with member epochs (KIP-848)."""

from typing import Any

import pytest
from group_engine import GROUP, GroupEngine

from penstock.protocol.errors import ErrorCode

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def shares(assignment: Any) -> dict[str, list[int]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


# ---- describing


def test_a_consumer_group_is_described_with_what_members_have_and_should_have(engine: GroupEngine) -> None:
    engine.start("a", rack="r", client="app")
    engine.start("b", instance="one")
    group = engine.describe_consumer()
    assert (group.error_code, group.group_id, group.group_state) == (ErrorCode.NONE, GROUP, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    a, b = group.members
    assert (a.member_id, a.rack_id, a.client_id, a.client_host, a.member_epoch) == ("a", "r", "app", "/app.host", 1)
    assert (a.subscribed_topic_names, a.subscribed_topic_regex, a.member_type) == (["t"], None, 1)
    assert (shares(a.assignment), shares(a.target_assignment)) == ({"t": [0, 1, 2, 3, 4, 5]}, {"t": [0, 1, 2]})
    assert (b.instance_id, b.member_epoch) == ("one", 2)
    assert (shares(b.assignment), shares(b.target_assignment)) == ({}, {"t": [3, 4, 5]})


def test_what_is_no_consumer_group_can_not_be_described_as_one(engine: GroupEngine) -> None:
    assert engine.describe_consumer("").error_code == ErrorCode.INVALID_GROUP_ID
    unknown = engine.describe_consumer()
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")
    engine.stable_group("a")
    classic = engine.describe_consumer()
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == f"Group {GROUP} is not a consumer group."


def test_the_old_request_does_not_see_consumer_groups(engine: GroupEngine) -> None:
    engine.start("a")
    described = engine.describe(version=6)
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == f"Group {GROUP} is not a classic group."
    assert engine.describe(version=5).error_code == ErrorCode.NONE
    assert engine.describe(version=5).group_state == "Dead"


def test_topics_that_were_deleted_are_left_out_of_the_description(engine: GroupEngine) -> None:
    engine.start("a", "t", "u")
    engine.topics.remove("u")
    (member,) = engine.describe_consumer().members
    assert set(shares(member.assignment)) == {"t"}


def test_groups_are_listed_by_type_and_state(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("a", group="empty")
    engine.beat("a", -1, group="empty")
    engine.commit({("t", 0): 1}, group="simple")

    def ids(*, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
        return {group.group_id for group in engine.list(states, types)}

    assert ids() == {GROUP, "empty", "simple"}
    assert ids(types=("consumer",)) == ids(types=("Consumer",)) == {GROUP, "empty"}
    assert ids(types=("classic",)) == {"simple"}
    assert ids(states=("Stable",)) == {GROUP}
    assert ids(states=("empty",)) == {"empty", "simple"}
    assert ids(states=("empty",), types=("consumer",)) == {"empty"}
    assert ids(types=("share",)) == set()
    (listed,) = engine.list(("stable",))
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("consumer", "Stable", "consumer")


# ---- deleting


def test_only_an_empty_group_can_be_deleted_and_nothing_is_left_of_it(engine: GroupEngine) -> None:
    engine.start("a", regex="t.*")
    engine.commit({("t", 0): 1}, "a", 1)
    assert engine.delete() == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    engine.beat("a", -1)
    assert engine.delete(GROUP, GROUP) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}  # named twice: the second is too late
    for _ in range(2):
        assert GROUP not in engine.machine.groups
        assert engine.fetch() == {}
        engine.reload()
    last: dict[bytes, bytes | None] = {record.key: record.value for record in engine.log}
    assert all(value is None for value in last.values())


def test_a_deleted_group_begins_again_at_the_first_epoch(engine: GroupEngine) -> None:
    engine.start("a")
    engine.beat("a", -1)
    engine.delete()
    assert engine.start("b").member_epoch == 1


def test_offsets_of_topics_that_are_read_are_not_deleted(engine: GroupEngine) -> None:
    engine.start("a", "t")
    engine.commit({("t", 0): 1, ("u", 0): 2}, "a", 1)
    response = engine.delete_offsets(("t", 0), ("u", 0))
    errors = [ErrorCode(topic.partitions[0].error_code) for topic in response.topics]
    assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert engine.fetch() == {("t", 0): 1}


# ---- offsets with member epochs


def test_members_commit_with_their_epoch(engine: GroupEngine) -> None:
    engine.start("a")
    assert engine.commit({("t", 0): 1}, "a", 1) == [ErrorCode.NONE]
    assert engine.commit({("t", 0): 2}, "a", 0) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert engine.commit({("t", 0): 2}, "a", 2) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert engine.commit({("t", 0): 2}, "b", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.commit({("t", 0): 2}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.commit({("t", 0): 2}, "a", 1, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert engine.fetch() == {("t", 0): 1}


def test_an_empty_consumer_group_takes_offsets_from_anyone(engine: GroupEngine) -> None:
    engine.start("a")
    engine.beat("a", -1)
    assert engine.commit({("t", 0): 7}) == [ErrorCode.NONE]
    assert engine.commit({("t", 0): 8}, "a", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.fetch() == {("t", 0): 7}


def test_a_commit_is_no_heartbeat(engine: GroupEngine) -> None:
    engine.start("a")
    for _ in range(9):
        engine.advance(5_000)
        engine.commit({("t", 0): 1}, "a", 1)
    assert engine.consumer_group.is_empty


def test_members_fetch_with_their_epoch(engine: GroupEngine) -> None:
    engine.start("a")
    engine.commit({("t", 0): 1}, "a", 1)

    def error(member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode(engine.fetch_group(("t", 0), member_id=member_id, member_epoch=epoch).error_code)

    assert error("a", 1) == error(None, -1) == ErrorCode.NONE
    assert error("a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert error("b", 1) == error("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.fetch_group(("t", 0), member_id="a", member_epoch=2).topics == []


def test_classic_groups_do_not_look_at_the_epoch_of_a_fetch(engine: GroupEngine) -> None:
    engine.stable_group("a")
    assert engine.fetch_group(("t", 0), member_id="x", member_epoch=9).error_code == ErrorCode.NONE
    assert engine.fetch_group(("t", 0), group="none", member_id="x", member_epoch=9).error_code == ErrorCode.NONE


# ---- expiry


def test_offsets_of_topics_that_nobody_reads_any_more_expire(engine: GroupEngine) -> None:
    engine.start("a", "t")
    engine.commit({("t", 0): 1, ("u", 0): 2}, "a", 1)
    for _ in range(8 * DAY_MS // 40_000):
        engine.beat("a", 1)
        engine.advance(40_000)
    assert engine.fetch() == {("t", 0): 1}


def test_an_empty_group_goes_with_its_last_offset(engine: GroupEngine) -> None:
    engine.start("a", "t")
    engine.commit({("t", 0): 1}, "a", 1)
    engine.beat("a", -1)
    engine.advance(7 * DAY_MS - 1)
    assert engine.fetch() == {("t", 0): 1}
    engine.advance(DAY_MS)
    assert GROUP not in engine.machine.groups
    assert GROUP not in engine.reloaded().machine.groups
