"""Fetches that ask for what is not there, for too much, for too long, and for everything at once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.brokers import BrokerProcess
from tests.hostile.clients import FETCH_VERSION, RawClient, batch_of, fetch_request
from tests.hostile.conftest import Hostile
from tests.hostile.honest import TOPIC

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, FETCH_SESSION_ID_NOT_FOUND = 1, 3, 70
INVALID_FETCH_SESSION_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 71, 74, 76 - 1
INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN = 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with ten records."""
    client = RawClient(broker.port)
    for number in range(10):
        client.produce(topic, batch_of(b"record %d" % number))
    return topic


def asking(offset: int = 0, **options: Any) -> FetchPartition:
    return FetchPartition(**{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **options})


@pytest.mark.parametrize("offset", [-1, -2, 11, INT64_MAX, INT64_MIN])
def test_an_offset_that_does_not_exist_is_out_of_range(hostile: Hostile, filled: str, offset: int) -> None:
    client = hostile()
    client.fetch(filled, asking(0))
    client.fetch(filled, asking(0))
    for _ in range(3):  # on the short way too
        (partition,) = client.fetch(filled, asking(offset)).responses[0].partitions
        assert partition.error_code == OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("size", [0, -1, 1, INT32_MIN, INT32_MAX])
def test_whatever_sizes_are_asked_for_whole_batches_are_what_is_given(hostile: Hostile, filled: str, size: int) -> None:
    client = hostile()
    for options in ({"max_bytes": size}, {"min_bytes": size}, {"max_bytes": size, "min_bytes": size}):
        for _ in range(4):
            (partition,) = client.fetch(filled, asking(), **options).responses[0].partitions
            assert partition.error_code == 0
    for _ in range(4):
        (partition,) = client.fetch(filled, asking(partition_max_bytes=size)).responses[0].partitions
        assert len(partition.records) > 60


@pytest.mark.parametrize("wait", [-1, INT32_MIN])
def test_a_negative_wait_is_none(hostile: Hostile, filled: str, wait: int) -> None:
    began = time.monotonic()
    hostile().fetch(filled, asking(10), max_wait_ms=wait)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("epoch", [1, INT32_MAX])
def test_a_leader_epoch_of_the_future_is_not_known(hostile: Hostile, filled: str, epoch: int) -> None:
    (partition,) = hostile().fetch(filled, asking(current_leader_epoch=epoch)).responses[0].partitions
    assert partition.error_code == UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("epoch", [-2, 0, 1, INT32_MAX, INT32_MIN])
def test_any_last_fetched_epoch_is_answered(hostile: Hostile, filled: str, epoch: int) -> None:
    for offset in (0, 10, 11, INT64_MAX, -1):
        assert hostile().fetch(filled, asking(offset, last_fetched_epoch=epoch)).error_code == 0


@pytest.mark.parametrize("session_id", [1, -1, INT32_MAX, INT32_MIN])
def test_a_session_that_nobody_began_is_not_found(hostile: Hostile, filled: str, session_id: int) -> None:
    for epoch in (1, 5, INT32_MAX, -2, INT32_MIN):
        response = hostile().fetch(filled, session_id=session_id, session_epoch=epoch)
        assert response.error_code == FETCH_SESSION_ID_NOT_FOUND


def test_an_epoch_out_of_turn_does_not_fit_the_session(hostile: Hostile, filled: str) -> None:
    client = hostile()
    session_id = client.fetch(filled, session_id=0, session_epoch=0).session_id
    for epoch in (2, 3, INT32_MAX, -2):
        response = client.fetch(filled, session_id=session_id, session_epoch=epoch)
        assert response.error_code == INVALID_FETCH_SESSION_EPOCH


def test_forgetting_what_was_never_asked_for_is_nothing(hostile: Hostile, filled: str) -> None:
    client = hostile()
    session_id = client.fetch(filled, session_id=0, session_epoch=0).session_id
    forgotten = [ForgottenTopic(topic=name, partitions=[0, -1, INT32_MAX, 0]) for name in (filled, "?", "", filled)]
    response = client.ask(
        FetchRequest(session_id=session_id, session_epoch=1, forgotten_topics_data=forgotten), FETCH_VERSION
    )
    assert response.error_code == 0


def test_a_partition_that_is_asked_for_many_times_is_answered_once(hostile: Hostile, filled: str) -> None:
    for options in ({}, {"session_id": 0, "session_epoch": 0}):
        partitions = hostile().fetch(filled, *[asking(5)] * 1_000, **options).responses[0].partitions
        assert len(partitions) == 1


def test_five_hundred_waiting_fetches_slow_nobody_down(hostile: Hostile, filled: str) -> None:
    """All wait for more than will ever come, on the topic that the honest client writes to."""
    patient = fetch_request(TOPIC, asking(), max_wait_ms=INT32_MAX, min_bytes=INT32_MAX)
    frame = request_frame(patient, FETCH_VERSION, 1, "hostile")
    for client in hostile.crowd(500):
        client.send(frame)
    time.sleep(1)
    hostile().fetch(filled)


def test_names_that_are_no_topic_are_unknown(hostile: Hostile) -> None:
    topics = [FetchTopic(topic=name, partitions=[asking()]) for name in ("", "../x", "\0", "x" * 32_000, "nobody")]
    response = hostile().ask(FetchRequest(max_wait_ms=0, topics=topics), FETCH_VERSION)
    errors = {partition.error_code for topic in response.responses for partition in topic.partitions}
    assert errors == {UNKNOWN_TOPIC_OR_PARTITION}
    assert hostile().ask(ApiVersionsRequest(), 0).error_code == 0
