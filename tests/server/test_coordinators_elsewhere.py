"""Groups and transactions whose coordinators, partitions and clients are on different brokers, some of which fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.model import BrokerState, Endpoint
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from penstock.protocol.schema import Message
from penstock.server import transaction_calls
from penstock.server.group_calls import java_hash
from penstock.transactions import marker_writer
from tests.fakes import eventually, turns, until
from tests.server.linked_rooms import LinkedRooms
from tests.server.rooms import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Client, fetch
from tests.storage.logs import NOW_MS
from tests.transactions.engine import BUMPING, CLASSIC
from tests.transactions.raw import RawProducer, committed_values, error_of

GROUP = "group"
both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])
both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture
async def linked(tmp_path: Path) -> AsyncIterator[LinkedRooms]:
    """Transactions are coordinated by broker 1, groups by broker 2; partition 0 of `t` is on 1, partition 1 on 2."""
    linked = LinkedRooms(tmp_path)
    linked.create(TRANSACTIONS_TOPIC, [1], (1, 2), internal=True)
    linked.create(OFFSETS_TOPIC, [2], (2, 1), internal=True)
    linked.create("t", [1, 2], (1, 2))
    yield linked
    await linked.close()


class Clients:
    """One that is connected to each broker."""

    def __init__(self, linked: LinkedRooms) -> None:
        self._linked = linked
        self._clients = {node_id: rooms.connect() for node_id, rooms in linked.brokers.items()}

    def __getitem__(self, node_id: int) -> Client:
        return self._clients[node_id]

    async def begin(self, version: int, name: str = "payments") -> RawProducer:
        producer = RawProducer(name, version, now_ms=NOW_MS)
        producer.heard(await self[1].ask(*producer.initialize()))
        return producer

    async def write(self, producer: RawProducer, value: bytes = b"value", offset: int = 5) -> None:
        """To both partitions and to the group's offsets."""
        if producer.version == CLASSIC:
            assert error_of(await self[1].ask(*producer.add("t", 0, 1))) is ErrorCode.NONE
            assert error_of(await self[1].ask(*producer.add_offsets(GROUP))) is ErrorCode.NONE
        for partition, leader in ((0, 1), (1, 2)):
            assert error_of(await self[leader].ask(*producer.produce("t", value, partition=partition))) == 0
        assert error_of(await self[2].ask(*producer.commit_offsets(GROUP, "t", offset))) is ErrorCode.NONE

    async def end(self, producer: RawProducer, commit: bool = True) -> None:
        producer.heard(await self[1].ask(*producer.end(commit)))

    async def committed(self, partition: int, leader: int | None = None) -> list[bytes | None]:
        response = await self[leader or partition + 1].ask(fetch("t", 0, partition, isolation=1), 12)
        return committed_values(response.responses[0].partitions[0])

    async def offset(self) -> int:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=True)
        response = await self[2].ask(asked, 8)
        (group,) = response.groups
        return int(group.topics[0].partitions[0].committed_offset)

    async def state(self, coordinator: int = 1) -> str:
        response = await self[coordinator].ask(DescribeTransactionsRequest(transactional_ids=["payments"]))
        return str(response.transaction_states[0].transaction_state)


@pytest.fixture
def clients(linked: LinkedRooms) -> Clients:
    return Clients(linked)


def is_stable(linked: LinkedRooms, node_id: int, topic: str, index: int) -> bool:
    partition = linked.brokers[node_id].partition(topic, index)
    return partition.last_stable_offset == partition.high_watermark == partition.log.next_offset


async def settled(linked: LinkedRooms) -> None:
    """Every marker is there, and the coordinator has written that down."""
    await eventually(
        lambda: (
            is_stable(linked, 1, "t", 0)
            and is_stable(linked, 2, "t", 1)
            and is_stable(linked, 2, OFFSETS_TOPIC, 0)
            and not any(rooms.marker_writer._newest for rooms in linked.brokers.values())
        )
    )


# ---- finding a coordinator, and asking the wrong one


async def test_the_coordinator_is_the_leader_of_the_partition_of_the_key(linked: LinkedRooms, clients: Clients) -> None:
    linked.create("__many", [1])
    for rooms in linked.brokers.values():
        topic = rooms.image.topics[OFFSETS_TOPIC]
        one, two = (replace(topic.partitions[0], leader=leader) for leader in (1, 2))
        rooms.put_topic(replace(topic, partitions=(two, one, two)))
    keys = ["a", "b", "c", "d", "e"]
    response = await clients[1].ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys))
    leaders = (2, 1, 2)
    expected = [(key, leaders[java_hash(key) % 3]) for key in keys]
    assert [(each.key, each.node_id) for each in response.coordinators] == expected
    assert {each.host for each in response.coordinators} == {"broker-1", "broker-2"}
    response = await clients[2].ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["payments"]))
    assert [(each.node_id, each.host, each.port) for each in response.coordinators] == [(1, "broker-1", 9092)]


async def test_where_nobody_leads_nobody_coordinates(linked: LinkedRooms, clients: Clients) -> None:
    linked.elect(OFFSETS_TOPIC, 0, -1)
    response = await clients[1].ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
    (found,) = response.coordinators
    assert (found.node_id, found.error_code) == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_a_coordinator_that_the_client_can_not_reach_is_none(linked: LinkedRooms, clients: Clients) -> None:
    linked.brokers[1].image.brokers[2] = BrokerState(2, (Endpoint("INTERNAL", "inside", 1),))
    response = await clients[1].ask(FindCoordinatorRequest(key=GROUP, key_type=0), 3)
    assert (response.node_id, response.error_code) == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_who_does_not_coordinate_a_group_says_so(linked: LinkedRooms, clients: Clients) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    commit = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
    assert error_of(await clients[1].ask(commit, 9)) is ErrorCode.NOT_COORDINATOR
    assert error_of(await clients[2].ask(commit, 9)) is ErrorCode.NONE
    described = await clients[1].ask(DescribeGroupsRequest(groups=[GROUP]), 5)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert [len((await clients[each].ask(ListGroupsRequest())).groups) for each in (1, 2)] == [0, 1]


async def test_who_does_not_coordinate_a_transaction_says_so(linked: LinkedRooms, clients: Clients) -> None:
    producer = await clients.begin(BUMPING)
    for asked in (producer.initialize(), producer.end(), producer.add("t", 0), producer.add_offsets(GROUP)):
        assert error_of(await clients[2].ask(*asked)) is ErrorCode.NOT_COORDINATOR
    assert error_of(await clients[1].ask(*producer.commit_offsets(GROUP, "t", 1))) is ErrorCode.NOT_COORDINATOR
    assert (await clients.state()) == "Empty", "who is refused has begun nothing"
    described = await clients[2].ask(DescribeTransactionsRequest(transactional_ids=["payments"]))
    assert described.transaction_states[0].error_code == ErrorCode.NOT_COORDINATOR
    listed = [(await clients[each].ask(ListTransactionsRequest())).transaction_states for each in (1, 2)]
    assert [len(states) for states in listed] == [1, 0]


async def test_a_join_that_waits_is_answered_when_its_coordinator_goes(linked: LinkedRooms, clients: Clients) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=60_000, member_id="", protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    given = await clients[2].ask(join, 5)
    join.member_id = given.member_id
    await clients[2].send(join, 5)
    await turns()
    linked.elect(OFFSETS_TOPIC, 0, 1)
    assert (await clients[2].receive()).error_code == ErrorCode.NOT_COORDINATOR
    assert (await clients[1].ask(join, 5)).error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED)


# ---- transactions over several brokers


@both_versions
@both_ways
async def test_a_transaction_ends_on_every_broker(
    linked: LinkedRooms, clients: Clients, version: int, commit: bool
) -> None:
    producer = await clients.begin(version)
    await clients.write(producer)
    await clients.end(producer, commit)
    await settled(linked)
    expected = [b"value"] if commit else []
    assert [await clients.committed(each) for each in (0, 1)] == [expected, expected]
    assert await clients.offset() == (5 if commit else -1)
    assert (await clients.state()) == ("CompleteCommit" if commit else "CompleteAbort")
    (markers,) = linked.peers[1].of(WriteTxnMarkersRequest)
    assert len(markers.markers) == 1, "one request for both partitions of broker 2"


@both_versions
async def test_transactions_follow_each_other_without_an_error(
    linked: LinkedRooms, clients: Clients, version: int
) -> None:
    """The next one begins while markers of the last are on their way: who asks for another broker asks again."""
    producer = await clients.begin(version)
    for number in range(5):
        await clients.write(producer, b"%d" % number, number)
        await clients.end(producer, commit=number % 2 == 0)
    await settled(linked)
    assert [await clients.committed(each) for each in (0, 1)] == [[b"0", b"2", b"4"]] * 2
    assert await clients.offset() == 4


@both_versions
@pytest.mark.parametrize("fault", ["lost", "unheard", "twice"])
async def test_markers_arrive_whatever_becomes_of_the_requests(
    linked: LinkedRooms, clients: Clients, version: int, fault: str
) -> None:
    faults = iter([fault, fault, fault])
    linked.peers[1].fault = lambda _, request: (
        next(faults, None) if isinstance(request, WriteTxnMarkersRequest) else None
    )
    producer = await clients.begin(version)
    for number in range(3):
        await clients.write(producer, b"%d" % number, number)
        await clients.end(producer, commit=number != 1)
        await settled(linked)
    await eventually(lambda: len(linked.peers[1].of(WriteTxnMarkersRequest)) >= 3)
    await settled(linked)
    assert [await clients.committed(each) for each in (0, 1)] == [[b"0", b"2"]] * 2
    assert await clients.offset() == 2


async def test_a_marker_that_comes_again_late_does_not_end_the_next_transaction(
    linked: LinkedRooms, clients: Clients
) -> None:
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    await clients.end(producer)
    await settled(linked)
    await clients.write(producer, b"next", 9)
    (late,) = linked.peers[1].of(WriteTxnMarkersRequest)
    response = await clients[2].ask(late, 2)
    codes = {each.error_code for topic in response.markers[0].topics for each in topic.partitions}
    assert codes == {ErrorCode.INVALID_PRODUCER_EPOCH}
    await clients.end(producer, commit=False)
    await settled(linked)
    assert [await clients.committed(each) for each in (0, 1)] == [[b"value"]] * 2
    assert await clients.offset() == 5


async def test_markers_follow_a_partition_to_its_next_leader(linked: LinkedRooms, clients: Clients) -> None:
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    linked.elect("t", 1, -1)
    await clients.end(producer)
    await eventually(lambda: is_stable(linked, 1, "t", 0))
    assert (await clients.state()) == "PrepareCommit"
    await linked.copy("t", 1, 2, 1)
    linked.elect("t", 1, 1)
    await eventually(lambda: is_stable(linked, 1, "t", 1))
    assert await clients.committed(1, leader=1) == [b"value"]


async def test_a_leader_that_has_not_heard_of_its_election_is_asked_again(
    linked: LinkedRooms, clients: Clients
) -> None:
    """The coordinator knows of it first, and so does nobody who could take the marker."""
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    await linked.copy("t", 0, 1, 2)
    linked.elect("t", 0, 2, told=[1])
    await clients.end(producer)
    await eventually(lambda: len(linked.peers[1].of(WriteTxnMarkersRequest)) > 3)
    assert (await clients.state()) == "PrepareCommit"
    linked.elect("t", 0, 2, told=[2])
    await eventually(lambda: is_stable(linked, 2, "t", 0))
    assert await clients.committed(0, leader=2) == [b"value"]


async def test_a_topic_that_is_deleted_holds_up_no_transaction(
    linked: LinkedRooms, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_writer, "GONE_AFTER_MS", 100)
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    for rooms in linked.brokers.values():
        rooms.delete_topic("t")
    await clients.end(producer)
    await eventually(lambda: not linked.brokers[1].marker_writer._newest)
    assert (await clients.state()) == "CompleteCommit"
    assert is_stable(linked, 2, OFFSETS_TOPIC, 0)


async def test_a_topic_that_is_not_heard_of_yet_gets_its_markers_all_the_same(
    linked: LinkedRooms, clients: Clients
) -> None:
    """A coordinator that has just begun to lead may know less than the one before."""
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    image = linked.brokers[1].image
    topic = image.topics["t"]
    image.drop_topic("t")
    await clients.end(producer)
    await eventually(lambda: is_stable(linked, 2, OFFSETS_TOPIC, 0))
    assert (await clients.state()) == "PrepareCommit"
    image.put_topic(topic)
    await settled(linked)
    assert [await clients.committed(each) for each in (0, 1)] == [[b"value"]] * 2


async def test_that_all_markers_are_there_is_written_down_when_there_are_enough_replicas(
    linked: LinkedRooms, clients: Clients
) -> None:
    linked.peers[1].fault = lambda _, request: "lost" if isinstance(request, WriteTxnMarkersRequest) else None
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    await clients.end(producer)
    linked.brokers[1].change_topic(TRANSACTIONS_TOPIC, min_insync_replicas="2")
    linked.peers[1].fault = lambda _, request: None
    await eventually(lambda: is_stable(linked, 2, "t", 1) and is_stable(linked, 2, OFFSETS_TOPIC, 0))
    await turns(50)
    assert (await clients.state()) == "PrepareCommit"
    assert error_of(await clients[1].ask(*producer.initialize())) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    linked.brokers[1].change_topic(TRANSACTIONS_TOPIC)
    await settled(linked)
    assert (await clients.state()) == "CompleteCommit"


# ---- the coordinator moves


@both_versions
@both_ways
async def test_a_decision_is_carried_out_by_the_next_coordinator(
    linked: LinkedRooms, clients: Clients, version: int, commit: bool
) -> None:
    linked.peers[1].fault = lambda _, request: "lost" if isinstance(request, WriteTxnMarkersRequest) else None
    producer = await clients.begin(version)
    await clients.write(producer)
    await clients.end(producer, commit)
    await eventually(lambda: len(linked.peers[1].of(WriteTxnMarkersRequest)) > 2)
    await linked.copy(TRANSACTIONS_TOPIC, 0, 1, 2)
    linked.elect(TRANSACTIONS_TOPIC, 0, 2)
    await settled(linked)
    assert (await clients.state(2)) == ("CompleteCommit" if commit else "CompleteAbort")
    expected = [b"value"] if commit else []
    assert [await clients.committed(each) for each in (0, 1)] == [expected, expected]
    tried = len(linked.peers[1].of(WriteTxnMarkersRequest))
    await turns(50)
    assert len(linked.peers[1].of(WriteTxnMarkersRequest)) == tried


async def test_what_the_coordinator_before_still_sends_is_refused(linked: LinkedRooms, clients: Clients) -> None:
    producer = await clients.begin(CLASSIC)
    await clients.write(producer)
    linked.peers[1].fault = lambda _, request: "lost" if isinstance(request, WriteTxnMarkersRequest) else None
    await clients.end(producer)
    await eventually(lambda: bool(linked.peers[1].of(WriteTxnMarkersRequest)))
    late: Any = linked.peers[1].of(WriteTxnMarkersRequest)[0]
    await linked.copy(TRANSACTIONS_TOPIC, 0, 1, 2)
    linked.elect(TRANSACTIONS_TOPIC, 0, 2)
    await settled(linked)
    response = await clients[2].ask(late, 2)
    codes = {each.error_code for topic in response.markers[0].topics for each in topic.partitions}
    assert codes == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}


async def test_a_transaction_goes_on_with_the_next_coordinator(linked: LinkedRooms, clients: Clients) -> None:
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    await linked.copy(TRANSACTIONS_TOPIC, 0, 1, 2)
    linked.elect(TRANSACTIONS_TOPIC, 0, 2)
    assert error_of(await clients[1].ask(*producer.end())) is ErrorCode.NOT_COORDINATOR
    producer.heard(await clients[2].ask(*producer.end()))
    await settled(linked)
    assert [await clients.committed(each) for each in (0, 1)] == [[b"value"]] * 2


# ---- asking a coordinator that is elsewhere


def lose_questions(_: int, request: Message) -> str | None:
    return "lost" if isinstance(request, AddPartitionsToTxnRequest) else None


@both_versions
async def test_while_the_coordinator_can_not_be_reached_batches_are_to_be_sent_again(
    linked: LinkedRooms, clients: Clients, version: int
) -> None:
    producer = await clients.begin(version)
    if version == CLASSIC:
        await clients[1].ask(*producer.add("t", 0, 1))
        await clients[1].ask(*producer.add_offsets(GROUP))
    linked.peers[2].fault = lose_questions
    sent = producer.produce("t", b"value", partition=1)
    assert error_of(await clients[2].ask(*sent)) is ErrorCode.NOT_ENOUGH_REPLICAS
    offsets = producer.commit_offsets(GROUP, "t", 5)
    assert error_of(await clients[2].ask(*offsets)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    linked.peers[2].fault = lambda _, request: None
    assert error_of(await clients[2].ask(*producer.produce("t", b"value", partition=1, sequence=0))) is ErrorCode.NONE
    assert error_of(await clients[2].ask(*offsets)) is ErrorCode.NONE
    assert linked.brokers[2].partition("t", 1).log.end_offset == 1


async def test_while_nobody_coordinates_batches_are_to_be_sent_again(linked: LinkedRooms, clients: Clients) -> None:
    producer = await clients.begin(BUMPING)
    linked.elect(TRANSACTIONS_TOPIC, 0, -1)
    sent = producer.produce("t", b"value", partition=1)
    assert error_of(await clients[2].ask(*sent)) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_coordinator_that_has_moved_meanwhile_is_asked_when_the_batch_comes_again(
    linked: LinkedRooms, clients: Clients
) -> None:
    producer = await clients.begin(BUMPING)
    await linked.copy(TRANSACTIONS_TOPIC, 0, 1, 2)
    linked.elect(TRANSACTIONS_TOPIC, 0, 2, told=[1])
    sent = producer.produce("t", b"value", partition=1)
    assert error_of(await clients[2].ask(*sent)) is ErrorCode.NOT_ENOUGH_REPLICAS
    linked.elect(TRANSACTIONS_TOPIC, 0, 2, told=[2])
    assert error_of(await clients[2].ask(*producer.produce("t", b"value", partition=1, sequence=0))) is ErrorCode.NONE


async def test_a_topic_that_the_coordinator_has_not_heard_of_yet_is_asked_about_again(
    linked: LinkedRooms, clients: Clients
) -> None:
    """To the client it exists: its leader has said so, and takes the batch when the coordinator has heard of it too."""
    producer = await clients.begin(BUMPING)
    image = linked.brokers[1].image
    topic = image.topics["t"]
    image.drop_topic("t")
    await clients[2].send(*producer.produce("t", b"value", partition=1))
    await eventually(lambda: len(linked.peers[2].of(AddPartitionsToTxnRequest)) > 1)
    assert not clients[2].has_answer()
    image.put_topic(topic)
    assert error_of(await clients[2].receive()) is ErrorCode.NONE
    assert linked.brokers[2].partition("t", 1).log.end_offset == 1


@both_versions
async def test_who_leads_a_topic_does_not_deny_it_because_the_coordinator_has_not_heard_of_it(
    linked: LinkedRooms, clients: Clients, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the coordinator stays behind, nor of what it knows but was asked about along with it."""
    monkeypatch.setattr(transaction_calls, "AGAIN_S_MAX", 0.02)
    linked.create("known", [2])
    producer = await clients.begin(version)
    if version == CLASSIC:
        await clients[1].ask(*producer.add("known", 0))
        await clients[1].ask(*producer.add("t", 1))
        await clients[1].ask(*producer.add_offsets(GROUP))
    for name in ("t", OFFSETS_TOPIC):
        linked.brokers[1].image.drop_topic(name)
    sent, produce_version = producer.produce("t", b"value", partition=1)
    more, _ = producer.produce("known", b"value")
    assert isinstance(sent, ProduceRequest)
    assert isinstance(more, ProduceRequest)
    sent.topic_data += more.topic_data
    answer = await clients[2].ask(sent, produce_version)
    codes = [each.error_code for topic in answer.responses for each in topic.partition_responses]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    offsets = producer.commit_offsets(GROUP, "t", 5)
    assert error_of(await clients[2].ask(*offsets)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_classic_producer_must_have_added_the_partition(linked: LinkedRooms, clients: Clients) -> None:
    producer = await clients.begin(CLASSIC)
    sent = producer.produce("t", b"value", partition=1)
    assert error_of(await clients[2].ask(*sent)) is ErrorCode.TRANSACTION_ABORTABLE
    assert linked.brokers[2].partition("t", 1).log.end_offset == 0


async def test_a_zombie_is_fenced_on_every_broker(linked: LinkedRooms, clients: Clients) -> None:
    zombie = await clients.begin(BUMPING)
    await clients.begin(BUMPING)
    sent = zombie.produce("t", b"value", partition=1)
    assert error_of(await clients[2].ask(*sent)) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_many_producers_share_requests(linked: LinkedRooms, clients: Clients) -> None:
    """One request at a time is under way, so what comes meanwhile goes together."""
    producers = [await clients.begin(BUMPING, f"producer-{number}") for number in range(30)]
    connections = [linked.brokers[2].connect() for _ in producers]
    for producer, connection in zip(producers, connections):
        await connection.send(*producer.produce("t", b"value", partition=1))
    answers = [error_of(await connection.receive()) for connection in connections]
    assert answers == [ErrorCode.NONE] * 30
    asked = linked.peers[2].of(AddPartitionsToTxnRequest)
    assert sum(len(each.transactions) for each in asked) == 30
    assert len(asked) < 15
    for producer in producers:
        await clients[1].send(*producer.end())
        producer.heard(await clients[1].receive())
    await until(lambda: is_stable(linked, 2, "t", 1))


async def test_while_the_last_transaction_ends_the_next_is_asked_for_again(
    linked: LinkedRooms, clients: Clients
) -> None:
    """The coordinator does not wait, since it is asked for many at a time."""
    producer = await clients.begin(BUMPING)
    await clients.write(producer)
    linked.peers[1].fault = lambda _, request: "lost" if isinstance(request, WriteTxnMarkersRequest) else None
    await clients.end(producer)
    await clients[2].send(*producer.produce("t", b"next", partition=1))
    await eventually(lambda: len(linked.peers[2].of(AddPartitionsToTxnRequest)) > 5)
    assert not clients[2].has_answer()
    linked.peers[1].fault = lambda _, request: None
    assert error_of(await clients[2].receive()) is ErrorCode.NONE
