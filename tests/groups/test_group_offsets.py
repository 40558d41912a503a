import pytest
from group_engine import SESSION_MS, GroupEngine, offers, subscription

from penstock.groups import commands
from penstock.groups.config import GroupConfig
from penstock.groups.states import State
from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import MemberIdentity
from penstock.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics

OK = [ErrorCode.NONE]
DAY_MS = 24 * 60 * 60_000


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


# ---- commit


def test_a_simple_consumer_commits_without_joining(engine: GroupEngine) -> None:
    assert engine.commit({("t", 0): 10, ("t", 1): 20}) == OK * 2
    assert engine.fetch(("t", 0), ("t", 1)) == {("t", 0): 10, ("t", 1): 20}
    described = engine.describe()
    assert (described.group_state, described.protocol_type) == ("Empty", "")


def test_a_group_without_an_id_may_hold_offsets(engine: GroupEngine) -> None:
    assert engine.commit({("t", 0): 10}, group="") == OK
    assert engine.fetch(group="") == {("t", 0): 10}


def test_a_member_of_the_current_generation_commits(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    assert engine.commit({("t", 0): 10}, member, 1) == OK
    assert engine.fetch() == {("t", 0): 10}


def test_the_last_commit_counts_even_if_it_goes_back(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 10})
    engine.commit({("t", 0): 3})
    assert engine.fetch() == {("t", 0): 3}


def test_nothing_is_known_of_a_commit_before_it_is_applied(engine: GroupEngine) -> None:
    engine.machine.apply = lambda record, now_ms: None
    assert engine.commit({("t", 0): 10}) == OK
    assert engine.fetch() == {}


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_does_not_exist_is_refused(
    engine: GroupEngine, version: int, error: ErrorCode
) -> None:
    assert engine.commit({("t", 0): 10}, "m", 1, version=version) == [error]


def test_an_empty_group_knows_no_member(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 10})
    assert engine.commit({("t", 0): 11}, "m", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_with_members_takes_offsets_from_them_alone(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    assert engine.commit({("t", 0): 10}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.commit({("t", 0): 10}, "stranger", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.commit({("t", 0): 10}, member, 1, instance="i") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.fetch() == {}


@pytest.mark.parametrize("generation_id", [0, 2, -1])
def test_the_generation_must_be_the_current_one(engine: GroupEngine, generation_id: int) -> None:
    (member,) = engine.stable_group("a")
    assert engine.commit({("t", 0): 10}, member, generation_id) == [ErrorCode.ILLEGAL_GENERATION]


def test_while_a_rebalance_is_prepared_the_old_generation_may_commit(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    engine.join(leader)
    assert engine.state is State.PREPARING_REBALANCE
    assert engine.commit({("t", 0): 10}, follower, 1) == OK


def test_before_the_assignment_nobody_may_commit(engine: GroupEngine) -> None:
    member, _ = engine.enter("a")
    engine.advance()
    assert engine.commit({("t", 0): 10}, member, 1) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_commit_is_as_good_as_a_heartbeat(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    for _ in range(5):
        engine.advance(SESSION_MS - 1)
        engine.commit({("t", 0): 10}, member, 1)
    assert engine.state is State.STABLE


def test_metadata_too_large_fails_its_partition_alone() -> None:
    engine = GroupEngine(GroupConfig(offset_metadata_max_bytes=3))
    assert engine.commit({("t", 0): 10}, metadata="abc") == OK
    assert engine.commit({("t", 1): 10}, metadata="abcd") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert engine.fetch() == {("t", 0): 10}


def test_a_commit_too_large_for_the_log_is_refused() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18))
    offsets = {("t", partition): 1 for partition in range(100)}
    assert engine.commit(offsets, metadata="m" * 4096) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 100
    assert engine.written == []


@pytest.mark.parametrize("version", range(2, 11))
def test_every_answer_can_be_sent_in_every_version(engine: GroupEngine, version: int) -> None:
    engine.commit({("t", 0): 10}, version=version)
    (answer,) = engine.replies.values()
    assert encode_bytes(answer, version)


# ---- fetch


def fetched(engine: GroupEngine) -> object:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequestGroup(group_id="g", topics=topics)
    return engine.now(commands.FetchOffsets(engine.ticket(), request, require_stable=True)).topics[0].partitions[0]


def test_what_was_committed_with_an_offset_is_fetched_with_it(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 10}, metadata="note", leader_epoch=4)
    partition = fetched(engine)
    assert (partition.committed_offset, partition.metadata, partition.committed_leader_epoch) == (10, "note", 4)


def test_metadata_of_null_is_fetched_as_none(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 10}, metadata=None)
    assert fetched(engine).metadata == ""


def test_a_partition_without_an_offset_is_at_minus_one(engine: GroupEngine) -> None:
    engine.commit({("t", 1): 10})
    partition = fetched(engine)
    assert (partition.committed_offset, partition.metadata, partition.committed_leader_epoch) == (-1, "", -1)
    assert partition.error_code == ErrorCode.NONE


def test_a_group_that_does_not_exist_has_no_offsets(engine: GroupEngine) -> None:
    assert engine.fetch(("t", 0)) == {("t", 0): -1}
    assert engine.fetch() == {}
    assert not engine.machine.groups


def test_all_offsets_are_fetched_if_no_topic_is_named(engine: GroupEngine) -> None:
    engine.commit({("t", 1): 1, ("u", 0): 2, ("t", 0): 3})
    assert engine.fetch() == {("t", 0): 3, ("t", 1): 1, ("u", 0): 2}


def test_an_offset_of_a_topic_that_was_made_anew_is_not_fetched(engine: GroupEngine) -> None:
    old, new = bytes([1] * 16), bytes([2] * 16)
    engine.commit({("t", 0): 10}, topic_id=old)
    assert engine.fetch(("t", 0), topic_id=new) == {("t", 0): -1}
    assert engine.fetch(("t", 0), topic_id=old) == {("t", 0): 10}
    assert engine.fetch(("t", 0)) == {("t", 0): 10}


# ---- delete


def deleted(response: object) -> list[ErrorCode]:
    assert response.error_code == ErrorCode.NONE
    return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]


def test_offsets_of_an_empty_group_are_deleted(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 10, ("t", 1): 20})
    assert deleted(engine.delete_offsets(("t", 0), ("t", 7))) == OK * 2
    assert len(engine.written) == 1
    assert engine.fetch() == {("t", 1): 20}


def test_offsets_of_a_topic_that_consumers_read_are_not_deleted(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a", protocols=offers(range=subscription("t")))
    engine.commit({("t", 0): 10, ("u", 0): 20}, member, 1)
    answer = deleted(engine.delete_offsets(("t", 0), ("u", 0)))
    assert answer == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert engine.fetch() == {("t", 0): 10}


def test_consumers_whose_subscription_cannot_be_read_may_read_anything(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a", protocols=offers(range=b"?"))
    engine.commit({("t", 0): 10}, member, 1)
    assert deleted(engine.delete_offsets(("t", 0))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_other_groups_at_work_are_not_deleted(engine: GroupEngine) -> None:
    engine.stable_group("a", protocol_type="connect", protocols=offers(default=b""))
    assert engine.delete_offsets(("t", 0)).error_code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_are_deleted_of_groups_that_exist(engine: GroupEngine) -> None:
    assert engine.delete_offsets(("t", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert engine.delete_offsets(("t", 0), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_delete_too_large_for_the_log_is_refused() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18))
    long = "t" * 200
    for first in range(0, 1_500, 500):
        engine.commit({(long, partition): 1 for partition in range(first, first + 500)})
    wanted = [(long, partition) for partition in range(1_500)]
    assert engine.delete_offsets(*wanted).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert engine.delete() == {"g": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(engine.fetch()) == 1_500


def test_the_offsets_of_deleted_topics_go_with_them(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 10, ("u", 0): 20})
    engine.commit({("t", 5): 30}, group="other")
    engine.delete_topics("t", "never-committed")
    assert engine.fetch() == {("u", 0): 20}
    assert engine.fetch(group="other") == {}


def test_the_offsets_of_a_large_deleted_topic_go_in_steps() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18))
    long = "t" * 200
    for first in range(0, 3_000, 500):
        engine.commit({(long, partition): 1 for partition in range(first, first + 500)})
    engine.delete_topics(long)
    assert 0 < len(engine.fetch()) < 3_000
    engine.advance(10)
    assert engine.fetch() == {}
    engine.commit({(long, 0): 7})
    engine.advance(10)
    assert engine.fetch() == {(long, 0): 7}


def test_an_offset_of_a_topic_made_anew_outlives_the_deletion_of_the_old() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18))
    long = "t" * 200
    for first in range(0, 3_000, 500):
        engine.commit({(long, partition): 1 for partition in range(first, first + 500)})
    engine.delete_topics(long)
    engine.now_ms += 1
    engine.commit({(long, 0): 7})
    engine.advance(10)
    assert engine.fetch() == {(long, 0): 7}


def test_what_members_subscribe_to_counts_from_the_generation_they_join(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a", protocols=offers(range=subscription("t")))
    engine.commit({("t", 0): 10, ("u", 0): 20}, member, 1)
    engine.join(member, protocols=offers(range=subscription("u")))
    assert engine.state is State.COMPLETING_REBALANCE
    answer = deleted(engine.delete_offsets(("t", 0), ("u", 0)))
    assert answer == [ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


# ---- expiry


def retaining(**options: int) -> GroupEngine:
    settings = {"initial_rebalance_delay_ms": 0, "offsets_retention_ms": DAY_MS, **options}
    return GroupEngine(GroupConfig(**settings))


def test_offsets_of_a_simple_group_expire_a_retention_after_their_commit() -> None:
    engine = retaining()
    engine.commit({("t", 0): 10})
    engine.advance(DAY_MS // 2)
    engine.commit({("t", 1): 20})
    engine.advance(DAY_MS // 2)
    assert engine.fetch() == {("t", 1): 20}
    engine.advance(DAY_MS // 2)
    assert engine.fetch() == {}
    assert engine.describe().group_state == "Dead"


def test_offsets_of_an_empty_group_expire_a_retention_after_it_became_empty() -> None:
    engine = retaining()
    (member,) = engine.stable_group("a", session_ms=1_800_000)
    engine.commit({("t", 0): 10}, member, 1)
    for _ in range(3 * 24 * 2):
        engine.advance(1_799_000)
        assert engine.heartbeat(member, 1) == ErrorCode.NONE
    engine.leave(MemberIdentity(member_id=member))
    engine.advance(DAY_MS - 600_000)
    assert engine.fetch() == {("t", 0): 10}
    engine.advance(1_200_000)
    assert engine.fetch() == {}
    assert engine.machine.groups == {}


def test_offsets_of_topics_that_consumers_at_work_no_longer_read_expire() -> None:
    engine = retaining()
    (member,) = engine.stable_group("a", session_ms=1_800_000, protocols=offers(range=subscription("t")))
    engine.commit({("t", 0): 10, ("u", 0): 20}, member, 1)
    for _ in range(24 * 2 + 2):
        engine.advance(1_799_000)
        engine.heartbeat(member, 1)
    assert engine.fetch() == {("t", 0): 10}
    assert engine.state is State.STABLE


def test_offsets_of_other_groups_at_work_never_expire() -> None:
    engine = retaining()
    (member,) = engine.stable_group("a", session_ms=1_800_000, protocol_type="connect", protocols=offers(default=b""))
    engine.commit({("t", 0): 10}, member, 1)
    for _ in range(24 * 2 + 2):
        engine.advance(1_799_000)
        engine.heartbeat(member, 1)
    assert engine.fetch() == {("t", 0): 10}


def test_an_offset_with_a_retention_of_its_own_expires_then() -> None:
    engine = retaining()
    engine.commit({("t", 0): 10}, retention_ms=DAY_MS // 4, version=4)
    engine.commit({("t", 1): 20}, retention_ms=DAY_MS * 2, version=4)
    engine.advance(DAY_MS // 2)
    assert engine.fetch() == {("t", 1): 20}
    engine.advance(DAY_MS)
    assert engine.fetch() == {("t", 1): 20}
    engine.advance(DAY_MS)
    assert engine.fetch() == {}


def test_offsets_of_a_group_that_retention_waits_for_never_expire() -> None:
    engine = retaining()
    engine.topics.hold_for("archive")
    engine.commit({("t", 0): 10}, group="archive")
    engine.commit({("t", 1): 20}, group="archive", retention_ms=1000, version=4)
    engine.commit({("t", 0): 10}, group="other")
    engine.advance(DAY_MS * 14)
    engine.reload()
    engine.advance(DAY_MS * 14)
    assert engine.fetch(group="archive") == {("t", 0): 10, ("t", 1): 20}
    assert engine.fetch(group="other") == {}
    engine.topics.hold_for()
    engine.advance(DAY_MS)
    assert engine.fetch(group="archive") == {}
    assert engine.machine.groups == {}


def test_an_empty_group_that_retention_waits_for_keeps_its_offsets_and_one_without_any_goes() -> None:
    engine = retaining()
    engine.topics.hold_for("g", "idle")
    (member,) = engine.stable_group("a")
    engine.commit({("t", 0): 10}, member, 1)
    engine.leave(MemberIdentity(member_id=member))
    engine.join(group="idle")
    assert set(engine.machine.groups) == {"g", "idle"}
    engine.advance(DAY_MS * 14)
    assert engine.fetch() == {("t", 0): 10}
    assert list(engine.machine.groups) == ["g"]


def test_a_group_that_retention_waits_for_may_be_deleted() -> None:
    engine = retaining()
    engine.topics.hold_for("g")
    engine.commit({("t", 0): 10})
    assert engine.delete("g") == {"g": ErrorCode.NONE}
    assert engine.fetch() == {}


def test_a_group_with_nothing_to_keep_is_forgotten_at_the_next_check() -> None:
    engine = retaining()
    (member,) = engine.stable_group("a")
    engine.leave(MemberIdentity(member_id=member))
    assert engine.describe().group_state == "Empty"
    engine.advance(engine.config.offsets_retention_check_interval_ms)
    assert engine.describe().group_state == "Dead"
    engine.reload()
    assert engine.machine.groups == {}


def test_a_group_with_pending_members_is_not_forgotten() -> None:
    engine = retaining()
    engine.join(session_ms=1_800_000)
    engine.advance(engine.config.offsets_retention_check_interval_ms)
    assert engine.group.pending


def test_expiry_goes_in_steps_that_fit_the_log() -> None:
    engine = retaining(append_max_bytes=2**18, expiry_groups_per_turn=7)
    long = "t" * 200
    for n in range(20):
        engine.commit({(long, partition): 1 for partition in range(300)}, group=f"g{n}")
    engine.advance(DAY_MS + 2 * engine.config.offsets_retention_check_interval_ms)
    assert engine.machine.groups == {}
    assert not engine.machine.offsets.by_group()


def test_expired_offsets_stay_expired_after_a_reload() -> None:
    engine = retaining()
    engine.commit({("t", 0): 10})
    engine.advance(DAY_MS * 2)
    engine.reload()
    assert engine.fetch() == {}
