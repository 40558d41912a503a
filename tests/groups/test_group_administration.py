import pytest
from group_engine import SESSION_MS, GroupEngine, offers

from penstock.protocol.errors import ErrorCode


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


# ---- describe


def test_a_stable_group_shows_what_its_members_want_and_have(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b", protocols=offers(range=b"wants"))
    described = engine.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.client_id, m.client_host) for m in described.members] == [
        (leader, "a", "/a.host"),
        (follower, "b", "/b.host"),
    ]
    assert [m.member_metadata for m in described.members] == [b"wants", b"wants"]
    assert [m.member_assignment for m in described.members] == [leader.encode(), follower.encode()]
    assert (described.error_code, described.error_message) == (ErrorCode.NONE, None)


def test_a_group_in_a_rebalance_shows_its_members_alone(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    engine.join(leader)
    described = engine.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_id for m in described.members] == [leader, follower]
    assert {(m.member_metadata, m.member_assignment) for m in described.members} == {(b"", b"")}
    engine.join(follower)
    assert engine.describe().group_state == "CompletingRebalance"


def test_a_group_that_does_not_exist_is_dead(engine: GroupEngine) -> None:
    described = engine.describe("nowhere", version=5)
    assert (described.group_id, described.group_state, described.error_code) == ("nowhere", "Dead", ErrorCode.NONE)
    assert described.error_message is None


def test_since_version_6_a_group_that_does_not_exist_is_not_found(engine: GroupEngine) -> None:
    """KIP-1043."""
    described = engine.describe("nowhere", version=6)
    assert (described.group_state, described.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert described.error_message == "Group nowhere not found."


# ---- list


def test_all_groups_are_listed_with_their_state_and_type(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.commit({("t", 0): 1}, group="simple")
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in engine.list()] == [
        ("g", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
    ]


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        (["Stable"], [], ["g"]),
        ([" eMPTY "], [], ["simple"]),
        (["Stable", "Empty"], [], ["g", "simple"]),
        (["Unheard-of"], [], []),
        ([], ["Classic"], ["g", "simple"]),
        ([], ["consumer"], []),
        ([], ["unheard-of"], []),
        (["Stable"], ["classic", "consumer"], ["g"]),
        (["Stable"], ["share"], []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    engine: GroupEngine, states: list[str], types: list[str], listed: list[str]
) -> None:
    engine.stable_group("a")
    engine.commit({("t", 0): 1}, group="simple")
    assert [g.group_id for g in engine.list(states, types)] == listed


# ---- delete


def test_an_empty_group_is_deleted_with_its_offsets(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.advance(SESSION_MS)
    engine.commit({("t", 0): 1, ("u", 1): 2})
    assert engine.delete() == {"g": ErrorCode.NONE}
    assert [record.value for record in engine.written] == [None, None, None]
    assert engine.describe().group_state == "Dead"
    assert engine.fetch() == {}
    engine.reload()
    assert engine.machine.groups == {}
    assert engine.fetch() == {}


def test_a_group_with_members_is_not_deleted(engine: GroupEngine) -> None:
    engine.stable_group("a")
    assert engine.delete() == {"g": ErrorCode.NON_EMPTY_GROUP}
    assert engine.describe().group_state == "Stable"


def test_each_group_has_its_own_answer(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.commit({("t", 0): 1}, group="simple")
    assert engine.delete("g", "simple", "nowhere") == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "nowhere": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_a_group_is_deleted_once_however_often_it_is_named(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 1})
    assert engine.delete("g", "g") == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
    assert len(engine.written) == 2
    assert engine.machine.groups == {}


def test_pending_members_of_a_deleted_group_are_forgotten(engine: GroupEngine) -> None:
    pending = engine.replies[engine.join()].member_id
    assert engine.delete() == {"g": ErrorCode.NONE}
    engine.advance(SESSION_MS)
    assert engine.error(engine.join(pending)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deleted_group_may_begin_again(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.advance(SESSION_MS)
    engine.delete()
    engine.stable_group("b")
    assert engine.group.generation_id == 1
