"""Fetch sessions (KIP-227): a consumer names its partitions once, and is told only what changed."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.clients.conftest import Topics
from tests.clients.wire import Wire, batch_of

FULL, FINAL = 0, -1


def ask(
    wire: Wire,
    version: int,
    topic: str,
    partitions: dict[int, int],
    *,
    session: int = 0,
    epoch: int = FULL,
    forget: tuple[int, ...] = (),
    wait_ms: int = 0,
) -> FetchResponse:
    """Partitions and the offsets at which they are asked for."""
    topic_id = wire.topic_id(topic) if version >= 13 else bytes(16)
    asked = [FetchPartition(partition=n, fetch_offset=at, partition_max_bytes=1 << 20) for n, at in partitions.items()]
    forgotten = ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forget))
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=asked)] if asked else [],
        forgotten_topics_data=[forgotten] if forget else [],
    )
    return wire.ask(request, version)


def sizes(response: FetchResponse) -> dict[int, int]:
    assert response.error_code == ErrorCode.NONE
    return {p.partition_index: len(p.records or b"") for topic in response.responses for p in topic.partitions}


@pytest.fixture(params=[11, 12, 13, 18])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


def test_a_full_fetch_begins_a_session_and_names_every_partition(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic(partitions=3)
    wire.produce(topic, batch_of(b"x"), partition=1)
    response = ask(wire, version, topic, {0: 0, 1: 0, 2: 0})
    assert response.session_id != 0
    found = sizes(response)
    assert found.keys() == {0, 1, 2}
    assert [n for n, size in found.items() if size] == [1]


def test_an_incremental_fetch_is_told_only_of_what_changed(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic(partitions=3)
    session = ask(wire, version, topic, {0: 0, 1: 0, 2: 0}).session_id
    assert sizes(ask(wire, version, topic, {}, session=session, epoch=1)) == {}
    wire.produce(topic, batch_of(b"x"), partition=2)
    batch = len(batch_of(b"x"))
    assert sizes(ask(wire, version, topic, {}, session=session, epoch=2)) == {2: batch}
    # The consumer moves on in one partition; the others stay where they were.
    assert sizes(ask(wire, version, topic, {2: 1}, session=session, epoch=3)) == {}
    wire.produce(topic, batch_of(b"x"), partition=0)
    wire.produce(topic, batch_of(b"x"), partition=2)
    assert sizes(ask(wire, version, topic, {}, session=session, epoch=4)) == {0: batch, 2: batch}


def test_a_session_takes_partitions_in_and_forgets_them(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic(partitions=3)
    session = ask(wire, version, topic, {0: 0}).session_id
    assert sizes(ask(wire, version, topic, {1: 0, 2: 0}, session=session, epoch=1)).keys() == {1, 2}
    assert sizes(ask(wire, version, topic, {}, session=session, epoch=2, forget=(1,))) == {}
    for partition in range(3):
        wire.produce(topic, batch_of(b"x"), partition=partition)
    assert sizes(ask(wire, version, topic, {}, session=session, epoch=3)).keys() == {0, 2}


def test_a_long_poll_in_a_session_waits_for_all_its_partitions(
    version: int, wire: Wire, new_topic: Topics, bootstrap: str
) -> None:
    topic = new_topic(partitions=4)
    session = ask(wire, version, topic, dict.fromkeys(range(4), 0)).session_id
    request = FetchRequest(max_wait_ms=15_000, min_bytes=1, session_id=session, session_epoch=1)
    wire.send(request, version)
    with Wire(bootstrap) as other:
        other.produce(topic, batch_of(b"x"), partition=3)
    assert sizes(wire.receive()).keys() == {3}


def test_an_epoch_out_of_turn_is_refused(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic()
    session = ask(wire, version, topic, {0: 0}).session_id
    assert ask(wire, version, topic, {}, session=session, epoch=5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(wire, version, topic, {}, session=session, epoch=1).error_code == ErrorCode.NONE
    assert ask(wire, version, topic, {}, session=session, epoch=1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(wire, version, topic, {}, session=session, epoch=2).error_code == ErrorCode.NONE


def test_a_session_that_nobody_began_is_refused(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic()
    response = ask(wire, version, topic, {0: 0}, session=123456789, epoch=1)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert response.responses == []


def test_a_session_ends_with_its_final_fetch(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic()
    session = ask(wire, version, topic, {0: 0}).session_id
    last = ask(wire, version, topic, {0: 0}, session=session, epoch=FINAL)
    assert last.session_id == 0
    assert sizes(last).keys() == {0}
    after = ask(wire, version, topic, {}, session=session, epoch=1)
    assert after.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_full_fetch_replaces_the_session(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic()
    first = ask(wire, version, topic, {0: 0}).session_id
    second = ask(wire, version, topic, {0: 0}, session=first, epoch=FULL).session_id
    assert second not in (0, first)
    gone = ask(wire, version, topic, {}, session=first, epoch=1)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(wire, version, topic, {}, session=second, epoch=1).error_code == ErrorCode.NONE


def test_a_partition_in_error_is_named_again_until_it_is_well(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic()
    response = ask(wire, version, topic, {0: 99})
    session = response.session_id
    for epoch in (1, 2):
        (partition,) = response.responses[0].partitions
        assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.records is not None, "librdkafka takes null records for a broken response"
        response = ask(wire, version, topic, {}, session=session, epoch=epoch)
    recovered = ask(wire, version, topic, {0: 0}, session=session, epoch=3)
    assert all(p.error_code == ErrorCode.NONE for found in recovered.responses for p in found.partitions)


def test_a_session_is_not_bound_to_its_connection(version: int, wire: Wire, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    session = ask(wire, version, topic, {0: 0}).session_id
    with Wire(bootstrap) as other:
        assert ask(other, version, topic, {}, session=session, epoch=1).error_code == ErrorCode.NONE


def test_a_fetch_without_a_session_needs_none(version: int, wire: Wire, new_topic: Topics) -> None:
    topic = new_topic()
    response = ask(wire, version, topic, {0: 0}, session=0, epoch=FINAL)
    assert response.session_id == 0
    assert sizes(response) == {0: 0}
