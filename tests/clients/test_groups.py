"""Groups: who owns which partition when members come, go, die and return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.protocol.errors import ErrorCode
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Client, Commit, Outgoing, Refused, send_all
from tests.clients.members import Member, MemberProcess, all_owned_once, close_all
from tests.clients.steps import wait_until

CONFLUENT = CLIENTS["confluent"]
FENCED = (ErrorCode.FENCED_INSTANCE_ID, -150)  # librdkafka calls it fatal

Join = Callable[..., Member]


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def join(quick_bootstrap: str, group: str) -> Iterator[Join]:
    """Members of one group, which leave at the end of the test."""
    members: list[Member] = []

    def member(client: Client, *topics: str, into: str = group, **options: Any) -> Member:
        options.setdefault("session_timeout_ms", 10_000)
        members.append(Member(client, quick_bootstrap, into, *topics, **options))
        return members[-1]

    yield member
    close_all(members)


@pytest.fixture
def topic_of(quick_bootstrap: str, new_topic: Topics) -> Callable[[int], str]:
    return lambda partitions: new_topic(partitions, at=quick_bootstrap)


@pytest.mark.parametrize(
    ("name", "assignor"), [(name, assignor) for name, client in CLIENTS.items() for assignor in client.assignors]
)
def test_twelve_partitions_among_five_members_have_one_owner_each(
    name: str, assignor: str, join: Join, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(12)
    members = [join(CLIENTS[name], topic, assignor=assignor, session_timeout_ms=3000) for _ in range(5)]

    def shares() -> list[int]:
        """Nothing while a partition has no owner or two. Cooperative groups get to a fair share in several steps."""
        fair = all_owned_once(members, topic, 12)
        return sorted(len(member.owned) for member in members) if fair else []

    wait_until(lambda: shares() == [2, 2, 2, 3, 3])
    members.pop().close()
    wait_until(lambda: shares() == [3, 3, 3, 3])


def test_members_of_different_clients_share_one_group(
    join: Join, topic_of: Callable[[int], str], quick_bootstrap: str
) -> None:
    topic = topic_of(6)
    members = [join(client, topic, assignor="range", session_timeout_ms=3000) for client in CLIENTS.values()]
    wait_until(lambda: all_owned_once(members, topic, 6) and all(len(member.owned) == 2 for member in members))
    send_all(CONFLUENT, quick_bootstrap, topic, [Outgoing(b"%d" % n, partition=n % 6) for n in range(60)])
    wait_until(lambda: sum(len(member.received) for member in members) == 60)
    assert [len(member.received) for member in members] == [20, 20, 20]


def test_one_group_shares_the_messages_and_two_groups_each_get_all(
    client: Client, join: Join, topic_of: Callable[[int], str], quick_bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = topic_of(4)
    workers = [join(client, topic, session_timeout_ms=3000) for _ in range(2)]
    other = join(client, topic, into=unique("other-group"))
    wait_until(lambda: all_owned_once(workers, topic, 4) and len(workers[0].owned) == 2 and len(other.owned) == 4)
    send_all(CONFLUENT, quick_bootstrap, topic, [Outgoing(b"%d" % n, partition=n % 4) for n in range(200)])
    everything = [b"%d" % n for n in range(200)]
    wait_until(lambda: len(other.received) >= 200 and sum(len(worker.received) for worker in workers) >= 200)
    assert sorted(other.values) == sorted(everything)
    assert sorted(workers[0].values + workers[1].values) == sorted(everything)
    assert len(workers[0].received) == len(workers[1].received) == 100


def test_a_member_that_leaves_gives_its_partitions_to_the_others_at_once(
    client: Client, join: Join, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(4)
    # The session is so long that only a LeaveGroup can end it in time; heartbeats tell the others.
    first, second = (join(client, topic, session_timeout_ms=15_000, **heartbeat(client)) for _ in range(2))
    wait_until(lambda: all_owned_once([first, second], topic, 4) and len(first.owned) == 2)
    second.close()
    wait_until(lambda: len(first.owned) == 4, timeout_s=8)


def heartbeat(client: Client) -> dict[str, int]:
    return {"heartbeat.interval.ms": 300} if client.name == "confluent" else {"heartbeat_interval_ms": 300}


def test_a_member_that_dies_loses_its_partitions_when_its_session_ends(
    client: Client, join: Join, topic_of: Callable[[int], str], quick_bootstrap: str, group: str
) -> None:
    topic = topic_of(4)
    survivor = join(client, topic, session_timeout_ms=1500)
    doomed = MemberProcess(client, quick_bootstrap, group, topic, session_timeout_ms=1500)
    try:
        wait_until(lambda: doomed.owned == 2 and len(survivor.owned) == 2)
    finally:
        doomed.kill()
    wait_until(lambda: len(survivor.owned) == 4, timeout_s=10)


def test_partitions_added_to_a_topic_are_assigned(
    client: Client, join: Join, topic_of: Callable[[int], str], quick_bootstrap: str
) -> None:
    topic = topic_of(2)
    member = join(client, topic, metadata_max_age_ms=300, session_timeout_ms=3000)
    wait_until(lambda: len(member.owned) == 2)
    admin = AdminClient({"bootstrap.servers": quick_bootstrap})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(20)
    wait_until(lambda: len(member.owned) == 5)
    send_all(CONFLUENT, quick_bootstrap, topic, [Outgoing(b"new", partition=4)])
    wait_until(lambda: member.values == [b"new"])


# ---- static members (KIP-345)


def test_a_static_member_that_restarts_finds_its_partitions_and_disturbs_nobody(
    client: Client, join: Join, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(4)
    first, second = (
        join(client, topic, instance=name, session_timeout_ms=15_000, **heartbeat(client)) for name in ("one", "two")
    )
    wait_until(lambda: all_owned_once([first, second], topic, 4) and len(first.owned) == 2)
    before, disturbances = set(second.owned), len(first.consumer.revoked)
    second.close()  # a static member does not say that it leaves
    again = join(client, topic, instance="two", session_timeout_ms=15_000, **heartbeat(client))
    wait_until(lambda: again.owned == before)
    assert all_owned_once([first, again], topic, 4)
    assert len(first.consumer.revoked) == disturbances


def test_a_static_member_that_stays_away_loses_its_partitions(
    client: Client, join: Join, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(4)
    first, second = (join(client, topic, instance=name, session_timeout_ms=1500) for name in ("one", "two"))
    wait_until(lambda: all_owned_once([first, second], topic, 4) and len(first.owned) == 2)
    second.close()
    wait_until(lambda: len(first.owned) == 4, timeout_s=10)


# aiokafka's heartbeats and commits are of versions that do not carry the name, so it is never fenced.
@pytest.mark.parametrize("name", ["confluent", "kafka-python"])
def test_of_two_static_members_with_one_name_the_older_is_fenced(
    name: str, join: Join, topic_of: Callable[[int], str]
) -> None:
    topic = topic_of(2)
    client = CLIENTS[name]
    older = join(client, topic, instance="twin", session_timeout_ms=15_000, **heartbeat(client))
    wait_until(lambda: len(older.owned) == 2)
    newer = join(client, topic, instance="twin", session_timeout_ms=15_000, **heartbeat(client))
    wait_until(lambda: len(newer.owned) == 2)
    if name == "confluent":  # hears of it by itself, and takes it for fatal
        wait_until(lambda: older.error is not None)
        assert older.error is not None
        assert older.error.code in FENCED
    else:
        older.stop()
        with pytest.raises(Refused) as refusal:
            older.consumer.commit({(topic, 0): Commit(5)})
        assert refusal.value.code in FENCED
    assert newer.error is None


# ---- cooperative rebalancing (KIP-429)


@pytest.mark.parametrize("name", ["confluent", "kafka-python"])
def test_a_cooperative_member_keeps_what_need_not_move(
    name: str, join: Join, topic_of: Callable[[int], str], quick_bootstrap: str
) -> None:
    topic = topic_of(6)
    client = CLIENTS[name]
    first = join(client, topic, assignor="cooperative-sticky", session_timeout_ms=3000)
    wait_until(lambda: len(first.owned) == 6)
    second = join(client, topic, assignor="cooperative-sticky", session_timeout_ms=3000)
    wait_until(lambda: all_owned_once([first, second], topic, 6) and len(second.owned) == 3)
    assert len(first.consumer.revoked) == 3
    assert set(first.consumer.revoked) == second.owned
    assert second.consumer.revoked == []
    send_all(CONFLUENT, quick_bootstrap, topic, [Outgoing(b"x", partition=n) for n in range(6)])
    wait_until(lambda: len(first.received) == len(second.received) == 3)


def test_members_that_agree_on_no_assignor_are_not_in_one_group(join: Join, topic_of: Callable[[int], str]) -> None:
    topic = topic_of(2)
    first = join(CONFLUENT, topic, assignor="range")
    wait_until(lambda: len(first.owned) == 2)
    second = join(CONFLUENT, topic, assignor="cooperative-sticky")
    wait_until(lambda: second.error is not None)
    assert second.error is not None
    assert second.error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(first.owned) == 2
