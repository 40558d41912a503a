"""OffsetCommit, OffsetFetch, FindCoordinator, ListGroups and DescribeGroups, from the wire to the log and back.

The rules of groups are tested with their machine; here it is versions, names and ids, and who is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.server.group_calls import java_hash
from tests.fakes import turns
from tests.server.rooms import OFFSETS_TOPIC, Client, Rooms
from tests.storage.disks import FailingDisk

ZERO = bytes(16)


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    rooms = Rooms(tmp_path, disk=FailingDisk())
    rooms.create_topic(OFFSETS_TOPIC, 5, internal=True)
    rooms.create_topic("t", 3)
    rooms.create_topic("u", 1)
    yield rooms
    await rooms.close()


def commit(
    group: str, offsets: dict[int, int], topic: str | bytes = "t", metadata: str | None = "note"
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset in offsets.items()
    ]
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    return OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(**named, partitions=partitions)]
    )


def codes(response: Any) -> dict[tuple[str | bytes, int], int]:
    return {
        (topic.name or topic.topic_id, p.partition_index): p.error_code
        for topic in response.topics
        for p in topic.partitions
    }


def fetched(topics: Any) -> dict[tuple[str | bytes, int], tuple[int, int]]:
    return {
        (topic.name or topic.topic_id, p.partition_index): (p.error_code, p.committed_offset)
        for topic in topics
        for p in topic.partitions
    }


async def read(
    client: Client, rooms: Rooms, group: str, asked: dict[str, list[int]] | None, version: int
) -> dict[Any, tuple[int, int]]:
    """Of one group, in any version; topics by their names."""
    if version < 8:
        topics = None
        if asked is not None:
            topics = [OffsetFetchRequestTopic(name=t, partition_indexes=i) for t, i in asked.items()]
        response = await client.ask(OffsetFetchRequest(group_id=group, topics=topics), version)
        return fetched(response.topics)
    many = None
    if asked is not None:
        many = [OffsetFetchRequestTopics(name=t, topic_id=_id(rooms, t), partition_indexes=i) for t, i in asked.items()]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=many)])
    (answer,) = (await client.ask(request, version)).groups
    assert answer.group_id == group
    names = {_id(rooms, name): name for name in rooms.image.topics}
    return {(names.get(place, place), index): found for (place, index), found in fetched(answer.topics).items()}


def _id(rooms: Rooms, topic: str) -> bytes:
    state = rooms.image.topics.get(topic)
    return state.topic_id if state is not None else topic.encode().ljust(16, b"\0")


# ---- OffsetCommit and OffsetFetch


@pytest.mark.parametrize("version", range(2, 11))
async def test_what_is_committed_is_fetched_in_every_version(rooms: Rooms, version: int) -> None:
    client = rooms.connect()
    topic: str | bytes = _id(rooms, "t") if version >= 10 else "t"
    response = await client.ask(commit("g", {0: 5, 2: 7}, topic), version)
    assert codes(response) == {(topic, 0): 0, (topic, 2): 0}
    for reading in range(1, 11):
        found = await read(client, rooms, "g", {"t": [0, 1, 2]}, reading)
        assert found == {("t", 0): (0, 5), ("t", 1): (0, -1), ("t", 2): (0, 7)}


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_that_a_group_has_committed(rooms: Rooms, version: int) -> None:
    client = rooms.connect()
    await client.ask(commit("g", {0: 5}), 8)
    await client.ask(commit("g", {0: 9}, "u"), 8)
    await client.ask(commit("other", {0: 1}), 8)
    assert await read(client, rooms, "g", None, version) == {("t", 0): (0, 5), ("u", 0): (0, 9)}


async def test_many_groups_at_once(rooms: Rooms) -> None:
    client = rooms.connect()
    names = [f"group-{n}" for n in range(12)]
    for number, name in enumerate(names):
        await client.ask(commit(name, {0: number}), 8)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (*names, names[0], "unknown")]
    response = await client.ask(OffsetFetchRequest(groups=groups), 8)
    assert [group.group_id for group in response.groups] == [*names, "unknown"]
    found = [fetched(group.topics) for group in response.groups]
    assert found == [{("t", 0): (0, number)} for number in range(12)] + [{}]


async def test_partitions_that_do_not_exist_are_refused_and_the_others_stored(rooms: Rooms) -> None:
    client = rooms.connect()
    request = commit("g", {0: 5, 3: 1, -1: 1})
    request.topics += commit("g", {0: 1}, "nowhere").topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(await client.ask(request, 8)) == {
        ("t", 0): 0, ("t", 3): unknown, ("t", -1): unknown, ("nowhere", 0): unknown,
    }  # fmt: skip
    assert await read(client, rooms, "g", None, 7) == {("t", 0): (0, 5)}
    assert codes(await client.ask(commit("g", {0: 1}, "nowhere"), 8)) == {("nowhere", 0): unknown}


async def test_topic_ids_that_nobody_has(rooms: Rooms) -> None:
    client = rooms.connect()
    stranger, own = b"\7" * 16, _id(rooms, "t")
    request = commit("g", {0: 5, 9: 1}, own)
    request.topics += commit("g", {0: 1}, stranger).topics
    assert codes(await client.ask(request, 10)) == {
        (own, 0): 0, (own, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (stranger, 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }  # fmt: skip
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (own, stranger)]
    response = await client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)]), 10)
    assert fetched(response.groups[0].topics) == {(own, 0): (0, 5), (stranger, 0): (ErrorCode.UNKNOWN_TOPIC_ID, -1)}


async def test_a_commit_is_answered_when_it_is_on_the_device(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path / "held", held_syncs=True)
    rooms.create_topic(OFFSETS_TOPIC, 1, internal=True)
    rooms.create_topic("t")
    client, other = rooms.connect(), rooms.connect()
    await client.send(commit("g", {0: 5}), 8)
    await turns()
    await other.send(OffsetFetchRequest(group_id="g", topics=None), 7)
    await turns()
    assert not client.has_answer()
    assert not other.has_answer(), "it would see what may be lost"
    rooms.committer.end_all()
    assert codes(await client.receive()) == {("t", 0): 0}
    assert fetched((await other.receive()).topics) == {("t", 0): (0, 5)}
    await rooms.close()


async def test_a_commit_that_could_not_be_stored_is_an_error_for_each_partition(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.ask(commit("g", {0: 5}), 8)
    disk = rooms.partitions.disk
    assert isinstance(disk, FailingDisk)
    disk.fail_write = 0
    for version in (2, 8, 10):
        topic: str | bytes = _id(rooms, "t") if version >= 10 else "t"
        answer = codes(await client.ask(commit("g", {0: 6, 1: 7}, topic), version))
        assert answer == dict.fromkeys([(topic, 0), (topic, 1)], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    disk.heal()
    assert await read(client, rooms, "g", None, 7) == {("t", 0): (0, 5)}


async def test_without_the_offsets_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path / "bare")
    rooms.create_topic("t")
    client = rooms.connect()
    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(await client.ask(commit("g", {0: 1}), 8)) == {("t", 0): expected}
    assert (await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)).error_code == expected
    response = await client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
    assert response.groups[0].error_code == expected
    described = await client.ask(DescribeGroupsRequest(groups=["g"]))
    assert (described.groups[0].group_id, described.groups[0].error_code) == ("g", expected)
    listed = await client.ask(ListGroupsRequest())
    assert (listed.error_code, listed.groups) == (0, [])
    await rooms.close()


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_this_broker_at_its_listener(rooms: Rooms, version: int) -> None:
    client = rooms.connect()
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    response = await client.ask(request, version)
    found = response.coordinators if version >= 4 else [response]
    assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (0, 1, "here", 9092)
    ] * (2 if version >= 4 else 1)  # fmt: skip
    if version >= 4:
        assert [each.key for each in found] == ["g", "h"]


async def test_finding_a_coordinator_makes_the_topic_that_it_needs(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path / "bare")
    client = rooms.connect()
    assert (await client.ask(FindCoordinatorRequest(key="g"), 2)).error_code == 0
    assert OFFSETS_TOPIC in rooms.image.topics
    await rooms.close()


@pytest.mark.parametrize("kind", [2, 7, -1])
async def test_nothing_but_groups_and_transactions_is_coordinated(rooms: Rooms, kind: int) -> None:
    client, code = rooms.connect(), ErrorCode.INVALID_REQUEST
    response = await client.ask(FindCoordinatorRequest(key="x", key_type=kind), 3)
    assert (response.error_code, response.node_id, response.port) == (code, -1, -1)
    response = await client.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=kind), 4)
    assert [(each.key, each.error_code) for each in response.coordinators] == [("x", code)]


# ---- ListGroups and DescribeGroups


def join(group: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"what I read")
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="", protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip


async def test_groups_of_all_partitions_are_listed(rooms: Rooms) -> None:
    client = rooms.connect()
    names = {f"group-{n}" for n in range(12)}
    assert len({java_hash(name) % 5 for name in names}) > 2
    for name in names:
        await client.ask(commit(name, {0: 1}), 8)
    for version in range(6):
        response = await client.ask(ListGroupsRequest(), version)
        assert {group.group_id for group in response.groups} == names
    assert {group.group_state for group in response.groups} == {"Empty"}
    response = await client.ask(ListGroupsRequest(states_filter=["Stable"]), 4)
    assert response.groups == []


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_each_once_and_in_the_order_of_asking(rooms: Rooms, version: int) -> None:
    client, member = rooms.connect(), rooms.connect()
    await client.ask(commit("empty", {0: 1}), 8)
    await member.send(join("joining"), 3)
    await turns()
    response = await client.ask(DescribeGroupsRequest(groups=["joining", "unknown", "empty", "joining"]), version)
    assert [group.group_id for group in response.groups] == ["joining", "unknown", "empty"]
    joining, unknown, empty = response.groups
    assert joining.group_state == "PreparingRebalance"
    assert empty.group_state == "Empty"
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


# ---- who is asked


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0), ("\U0001f600", 1772899)],
)
def test_groups_are_placed_as_every_kafka_broker_places_them(text: str, value: int) -> None:
    """String.hashCode with its sign taken off; the fourth has the hash -2^31."""
    assert java_hash(text) == value


async def test_what_a_group_committed_survives_a_restart(rooms: Rooms, tmp_path: Path) -> None:
    client = rooms.connect()
    for number in range(6):
        await client.ask(commit(f"group-{number}", {0: number}), 8)
    await rooms.idle()
    rooms.partitions.close()
    again = Rooms(tmp_path)
    for topic in rooms.image.topics.values():
        again.image.put_topic(topic)
    client = again.connect()
    for number in range(6):
        assert await read(client, again, f"group-{number}", {"t": [0]}, 8) == {("t", 0): (0, number)}
    await again.close()
