"""Markers for partitions of other brokers: what goes into one request, and what an answer means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.coordinator.machine import ProducerStamp
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.protocol.schema import Message
from penstock.storage.aborted import Marker
from penstock.transactions.marker_requests import PARTITIONS_PER_REQUEST, MarkerFor, MarkerRequests
from penstock.transport.peer import Answered
from tests.fakes import FakePeers, turns

COMMIT = Marker(True, 3)
Where = tuple[str, int]


class HeldPeers(FakePeers):
    """A request is under way until the test answers it."""

    def __init__(self) -> None:
        self.under_way: list[tuple[int, Any, Answered]] = []

    def told(self, node_id: int, request: Message, version: int, answered: Answered) -> None:
        self.under_way.append((node_id, request, answered))

    def answer(self, codes: dict[Where, int] | None = None) -> WriteTxnMarkersRequest:
        """With no error where none is given."""
        _, request, answered = self.under_way.pop(0)
        assert isinstance(request, WriteTxnMarkersRequest)
        answered(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index, error_code=(codes or {}).get((topic.name, index), 0)
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )
        return request

    def fail(self) -> None:
        self.under_way.pop(0)[2](None)


class Wanted:
    def __init__(self) -> None:
        self.peers = HeldPeers()
        self.requests = MarkerRequests(self.peers)
        self.done: dict[tuple[int, Where], ErrorCode | int] = {}

    def want(
        self,
        where: Where,
        producer: tuple[int, int] = (7, 0),
        *,
        marker: Marker = COMMIT,
        bumped: bool = False,
        node_id: int = 2,
        is_void: Callable[[], bool] = lambda: False,
    ) -> None:
        def done(error: Any) -> None:
            assert (producer[0], where) not in self.done, "told twice"
            self.done[producer[0], where] = error.code if error else 0

        self.requests.put(node_id, MarkerFor(where, ProducerStamp(*producer), marker, bumped, is_void, done))


@pytest.fixture
def wanted() -> Wanted:
    return Wanted()


async def test_what_is_for_one_broker_goes_in_one_request(wanted: Wanted) -> None:
    for where in (("a", 0), ("a", 1), ("b", 0)):
        wanted.want(where)
    wanted.want(("a", 2), (8, 4), marker=Marker(False, 5), bumped=True)
    wanted.want(("a", 3), node_id=3)
    await turns()
    assert [node_id for node_id, _, _ in wanted.peers.under_way] == [2, 3]
    request = wanted.peers.answer()
    assert [
        (
            (each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch),
            each.transaction_version,
            {topic.name: topic.partition_indexes for topic in each.topics},
        )
        for each in request.markers
    ] == [((7, 0, True, 3), 0, {"a": [0, 1], "b": [0]}), ((8, 4, False, 5), 2, {"a": [2]})]
    assert wanted.done == {(7, ("a", 0)): 0, (7, ("a", 1)): 0, (7, ("b", 0)): 0, (8, ("a", 2)): 0}


async def test_one_request_is_under_way_and_the_rest_goes_with_the_next(wanted: Wanted) -> None:
    wanted.want(("a", 0))
    await turns()
    for index in range(1, 6):
        wanted.want(("a", index), (7 + index, 0))
    await turns()
    assert len(wanted.peers.under_way) == 1
    wanted.peers.answer()
    assert len(wanted.peers.answer().markers) == 5
    assert len(wanted.done) == 6
    assert wanted.peers.under_way == []
    wanted.want(("b", 0))
    await turns()
    assert len(wanted.peers.under_way) == 1


async def test_a_request_has_a_bound(wanted: Wanted) -> None:
    for index in range(PARTITIONS_PER_REQUEST + 1):
        wanted.want(("a", index))
    await turns()
    (marker,) = wanted.peers.answer().markers
    assert len(marker.topics[0].partition_indexes) == PARTITIONS_PER_REQUEST
    wanted.peers.answer()
    assert len(wanted.done) == PARTITIONS_PER_REQUEST + 1


async def test_two_decisions_of_one_producer_are_asked_for_one_after_the_other(wanted: Wanted) -> None:
    """The answer names the producer, not the decision."""
    wanted.want(("a", 0), (7, 0))
    wanted.want(("a", 1), (7, 1))
    wanted.want(("a", 2), (7, 0))
    await turns()
    assert [each.producer_epoch for each in wanted.peers.answer().markers] == [0]
    assert wanted.done == {(7, ("a", 0)): 0, (7, ("a", 2)): 0}
    assert [each.producer_epoch for each in wanted.peers.answer().markers] == [1]
    assert len(wanted.done) == 3


async def test_each_partition_is_told_its_own_error(wanted: Wanted) -> None:
    for index in range(3):
        wanted.want(("a", index))
    await turns()
    wanted.peers.answer({("a", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER, ("a", 2): 12345})
    assert list(wanted.done.values()) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_when_a_broker_is_gone_everyone_looks_for_another(wanted: Wanted) -> None:
    wanted.want(("a", 0))
    await turns()
    wanted.want(("a", 1))
    wanted.peers.fail()
    assert list(wanted.done.values()) == [ErrorCode.NETWORK_EXCEPTION] * 2
    assert wanted.peers.under_way == []
    wanted.want(("a", 2))
    await turns()
    wanted.peers.answer()
    assert wanted.done[7, ("a", 2)] == 0


async def test_an_answer_that_leaves_a_partition_out_is_none_for_it(wanted: Wanted) -> None:
    wanted.want(("a", 0))
    await turns()
    wanted.peers.under_way.pop(0)[2](WriteTxnMarkersResponse(markers=[]))
    assert wanted.done == {(7, ("a", 0)): ErrorCode.NETWORK_EXCEPTION}


async def test_what_nobody_wants_any_more_is_not_sent(wanted: Wanted) -> None:
    wanted.want(("a", 0))
    await turns()
    void = False
    wanted.want(("a", 1), is_void=lambda: void)
    void = True
    wanted.peers.answer()
    assert wanted.peers.under_way == []
    assert list(wanted.done) == [(7, ("a", 0))]
