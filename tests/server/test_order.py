"""Requests on one connection: pipelined, mixed, with and without answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.produce import ProduceResponse
from penstock.transport import connection as connections
from penstock.transport import turn as turns_of_the_loop
from tests.fakes import turns, until
from tests.server.rooms import Rooms, batch, fetch, produce


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    rooms = Rooms(tmp_path)
    rooms.create_topic("t", 2)
    yield rooms
    await rooms.close()


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Rooms]:
    """Syncs end when the test says so."""
    rooms = Rooms(tmp_path / "held", held_syncs=True)
    rooms.create_topic("t", 2)
    yield rooms
    await rooms.close()


VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def latest(topic: str = "t") -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def offset_of(response: object) -> int:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].base_offset


@pytest.mark.parametrize("flush", ["commit", "os", "interval"])
async def test_mixed_requests_in_one_segment_are_answered_in_their_order(rooms: Rooms, flush: str) -> None:
    rooms.change_topic("t", flush=flush)
    client = rooms.connect()
    requests = [
        (produce("t", batch()), 9), (produce("t", batch(), acks=1), 9), (fetch("t"), 11), (VERSIONS, 4),
        (produce("t", batch(2)), 9), (latest(), 7), (fetch("t", 2, wait_ms=50), 12),
        (DeleteRecordsRequest(topics=[DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])], timeout_ms=1000), 2),
        (fetch("t", 0), 11), (produce("nowhere", batch()), 9), (latest("nowhere"), 7), (produce("t", batch(), 1), 9),
    ]  # fmt: skip
    for _ in range(3):
        await client.send_bytes(b"".join(client.frame(request, version) for request, version in requests))
        answers = [await client.receive() for _ in requests]
        assert isinstance(answers[2], FetchResponse)
        assert isinstance(answers[3], ApiVersionsResponse)
        assert offset_of(answers[1]) == offset_of(answers[0]) + 1
        high_watermark = answers[5].topics[0].partitions[0].offset
        assert high_watermark == offset_of(answers[4]) + 2, "a request sees what the requests before it did"


async def test_produce_requests_overlap_while_they_wait_for_the_device(held: Rooms) -> None:
    client = held.connect()
    for _ in range(6):
        await client.send(produce("t", batch()), 9)
    await until(lambda: held.partition("t").log.next_offset == 6)
    await turns()
    assert not client.has_answer()
    held.committer.end_all()
    await turns()
    held.committer.end_all()
    assert [offset_of(await client.receive()) for _ in range(6)] == list(range(6))


async def test_another_request_waits_for_the_produce_requests_before_it(held: Rooms) -> None:
    client = held.connect()
    await client.send_bytes(
        b"".join(
            client.frame(request, version)
            for request, version in ((produce("t", batch()), 9), (latest(), 7), (produce("t", batch()), 9))
        )
    )
    await until(lambda: held.partition("t").log.end_offset == 1)
    await turns()
    assert held.partition("t").log.next_offset == 1, "what stands behind it waits as well"
    held.committer.end_all()
    assert offset_of(await client.receive()) == 0
    assert (await client.receive()).topics[0].partitions[0].offset == 1
    await until(lambda: held.partition("t").log.end_offset == 2)
    held.committer.end_all()
    assert offset_of(await client.receive()) == 1


async def test_acks_1_behind_acks_all_waits_for_its_place(held: Rooms) -> None:
    client = held.connect()
    for _ in range(3):
        await client.send(produce("t", batch()), 9)
        await client.send(produce("t", batch(), 1, acks=1), 9)
    await until(lambda: held.partition("t", 1).log.end_offset == 3)
    await turns()
    assert not client.has_answer()
    while held.partition("t").high_watermark < 3:
        held.committer.end_all()
        await turns(3)
    assert [offset_of(await client.receive()) for _ in range(6)] == [0, 0, 1, 1, 2, 2]


async def test_a_long_poll_holds_up_its_own_connection_and_no_other(rooms: Rooms) -> None:
    waiting, other = rooms.connect(), rooms.connect()
    await waiting.send(fetch("t", wait_ms=5000), 11)
    await waiting.send(produce("t", batch(), 1), 9)
    for number in range(5):
        assert offset_of(await other.ask(produce("t", batch(), 1), 9)) == number
    assert not waiting.has_answer()
    await other.ask(produce("t", batch()), 9)
    assert isinstance(await waiting.receive(), FetchResponse)
    assert offset_of(await waiting.receive()) == 5


# ---- acks=0


@pytest.mark.parametrize("flush", ["commit", "os"])
async def test_acks_0_has_no_answer_and_is_stored(rooms: Rooms, flush: str) -> None:
    rooms.change_topic("t", flush=flush)
    client = rooms.connect()
    for _ in range(5):
        await client.send_bytes(request_frame(produce("t", batch(2), acks=0), 9, 7, "client"))
    assert (await client.ask(latest(), 7)).topics[0].partitions[0].offset >= 0
    await until(lambda: rooms.partition("t").high_watermark == 10)


async def test_an_error_under_acks_0_ends_the_connection_and_what_stands_behind_it_is_not_carried_out(
    rooms: Rooms,
) -> None:
    client = rooms.connect()
    frames = [
        request_frame(produce("t", batch(), acks=0), 9, 1, "client"),
        request_frame(produce("nowhere", batch(), acks=0), 9, 2, "client"),
        request_frame(produce("t", batch(), acks=0), 9, 3, "client"),
    ]
    await client.send_bytes(b"".join(frames[:1]))
    await until(lambda: rooms.partition("t").high_watermark == 1)
    await client.send_bytes(b"".join(frames))
    assert await client.is_closed()
    await rooms.idle()
    assert rooms.partition("t").log.end_offset <= 2


@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("last", ["an error under acks=0", "no request"])
async def test_what_ends_a_connection_takes_no_answer_with_it(rooms: Rooms, flush: str, acks: int, last: str) -> None:
    rooms.change_topic("t", flush=flush)
    client = rooms.connect()
    for _ in range(3):
        await client.ask(produce("t", batch(), acks=acks), 9)
    good = [client.frame(produce("t", batch(), acks=acks), 9) for _ in range(5)]
    refused = request_frame(produce("nowhere", batch(), acks=0), 9, 2, "client")
    await client.send_bytes(b"".join(good) + (refused if last != "no request" else b"\0\0\0\x20\0\xff" + bytes(30)))
    assert [offset_of(await client.receive()) for _ in good] == [3, 4, 5, 6, 7]
    assert await client.is_closed()


async def test_an_answer_is_not_forgotten_where_the_peer_takes_what_is_before_it_just_as_the_connection_ends(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_nothing(answers: object) -> int:
        raise BlockingIOError

    client = rooms.connect()
    for _ in range(3):
        await client.ask(produce("t", batch(), acks=1), 9)
    with monkeypatch.context() as patch:
        patch.setattr(client.connection, "_send", takes_nothing)
        client.connection.send_parts([b"before"])
        await turns()
        client.sock.send(client.frame(produce("t", batch(), acks=1), 9) + b"GET / HTTP/1.1")
        client.connection._readable()
    client.connection._writable()  # in the same turn
    assert await client.receive_bytes(6) == b"before"
    assert offset_of(await client.receive()) == 3
    assert await client.is_closed()


async def test_what_stands_behind_an_answer_that_can_not_be_sent_is_not_carried_out(rooms: Rooms) -> None:
    client = rooms.connect()
    for _ in range(3):
        await client.ask(produce("t", batch(), acks=1), 9)

    def reset(answers: object) -> int:
        raise ConnectionResetError

    client.connection._send = reset
    behind = request_frame(produce("t", batch(), 1, acks=0), 9, 1, "client")
    client.sock.send(client.frame(produce("t", batch(), acks=1), 9) + behind)
    await until(lambda: client.connection.closed)
    await rooms.idle()
    assert rooms.partition("t").log.end_offset == 4
    assert rooms.partition("t", 1).log.end_offset == 0


async def test_a_wait_that_begins_as_its_connection_is_closed_is_given_up(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, begin = rooms.connect(), rooms.context.fetch_sessions.begin

    def close_and_begin(request: FetchRequest) -> object:
        client.connection.close()
        return begin(request)

    monkeypatch.setattr(rooms.context.fetch_sessions, "begin", close_and_begin)
    await client.send(fetch("t", wait_ms=600_000), 11)
    await until(lambda: client.connection.closed)
    await turns()
    assert not rooms.partition("t").fetchers
    assert not client.connection.slots


def test_a_turn_that_was_carried_out_in_its_midst_is_no_shorter(tmp_path: Path) -> None:
    loop, now_ms = asyncio.new_event_loop(), 1000
    turn = turns_of_the_loop.Turn(loop, lambda: now_ms * 1_000_000)
    turn.schedule()
    now_ms += turns_of_the_loop.LONG_MS - 1
    turn.settle()
    turn.schedule()
    assert not turn.is_long
    now_ms += 1
    assert turn.is_long
    turn.flush()
    turn.schedule()
    assert not turn.is_long
    loop.close()


async def test_a_transactional_request_that_is_refused_under_acks_0_ends_the_connection(rooms: Rooms) -> None:
    client = rooms.connect()
    refused = produce("t", batch(producer=(7, 0, 0), transactional=True), acks=0)
    refused.transactional_id = "nobody's"
    await client.send_bytes(request_frame(refused, 9, 1, "client"))
    assert await client.is_closed()
    await rooms.idle()
    assert rooms.partition("t").log.end_offset == 0


# ---- what is no request


@pytest.mark.parametrize(
    "payload",
    [b"\0\xff" + bytes(20), b"\0\0\0\x63" + bytes(20), b"\0\3\0\1\0\0\0\1\0\xff" + b"x"],
    ids=["no such API", "no such version", "a client id that runs past the end"],
)
async def test_what_is_no_request_ends_its_connection_and_no_other(rooms: Rooms, payload: bytes) -> None:
    bad, good = rooms.connect(), rooms.connect()
    frame = len(payload).to_bytes(4, "big") + payload
    await bad.send_bytes(frame + bad.frame(produce("t", batch()), 9))
    assert await bad.is_closed()
    assert offset_of(await good.ask(produce("t", batch()), 9)) == 0


async def test_an_unknown_version_of_api_versions_is_answered_so_that_another_can_be_chosen(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.send_bytes(len(b"x" * 14).to_bytes(4, "big") + b"\0\x12\0\x63" + b"\0\0\0\7" + b"\0\2me" + b"\0\0")
    frame = await client.receive_frame()
    assert frame[:6] == b"\0\0\0\7" + int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
    assert isinstance(await client.ask(VERSIONS, 4), ApiVersionsResponse)


async def test_a_handler_that_fails_costs_its_connection_and_a_line_in_the_log(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = rooms.connect(), rooms.connect()
    monkeypatch.setattr(rooms.context.fetch_sessions, "begin", lambda request: 1 / 0)
    await bad.send(fetch("t"), 11)
    assert await bad.is_closed()
    assert "the request failed" in caplog.text
    assert offset_of(await good.ask(produce("t", batch()), 9)) == 0


async def test_a_task_that_fails_costs_its_connection_and_no_other(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    bad, good = rooms.connect(), rooms.connect()
    await good.ask(produce("t", batch()), 9)
    monkeypatch.setattr(rooms.upkeep, "advance_start", fail)
    asked = DeleteRecordsPartition(partition_index=0, offset=1)
    await bad.send(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=9), 2)
    assert await bad.is_closed()
    assert "the request failed" in caplog.text
    assert offset_of(await good.ask(produce("t", batch()), 9)) == 1


# ---- bounds


async def test_answers_to_a_slow_reader_are_bounded(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch(size=60_000)), 9)
    frames = [client.frame(fetch("t"), 11) for _ in range(200)]
    sending = asyncio.ensure_future(client.send_bytes(b"".join(frames)))
    await until(lambda: client.connection.waiting_for == "order")
    await turns()
    assert connections.UNSENT_MAX // 2 < client.connection.unsent < connections.UNSENT_MAX + 100_000
    for _ in frames:
        assert len((await client.receive()).responses[0].partitions[0].records) > 60_000
    await sending


async def test_one_connection_with_much_to_do_lets_others_have_their_turn(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second request has the turn carried out in its midst, which makes it no other turn."""
    monkeypatch.setattr(type(rooms.turn), "is_long", True)
    busy, other = rooms.connect(), rooms.connect()
    for _ in range(3):
        await busy.ask(produce("t", batch(), acks=1), 9)
    requests = [(produce("t", batch(), acks=1), 9), (VERSIONS, 4)] * 20
    busy.sock.send(b"".join(busy.frame(request, version) for request, version in requests))
    other.sock.send(other.frame(VERSIONS, 4))
    await until(other.has_answer)
    assert rooms.partition("t").log.end_offset < 10
    for _ in requests:
        await busy.receive()
    assert rooms.partition("t").log.end_offset == 23


async def test_whatever_the_reason_for_which_a_request_was_put_off_it_is_carried_out_in_the_end(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(rooms.turn), "is_long", True)
    client = rooms.connect()
    requests = [
        *[(produce("t", batch(), acks=1), 9)] * 3, *[(fetch("t"), 11)] * 3, *[(produce("t", batch()), 9)] * 3,
        (VERSIONS, 4), (latest(), 7), (latest(), 7), *[(produce("t", batch()), 9)] * 2,
    ]  # fmt: skip
    await client.send_bytes(b"".join(client.frame(request, version) for request, version in requests))
    for _ in requests:
        await client.receive()
    quiet = [request_frame(produce("t", batch(), acks=0), 9, n, "client") for n in range(10)]
    end = rooms.partition("t").log.end_offset
    await client.send_bytes(b"".join(quiet))
    await until(lambda: rooms.partition("t").log.end_offset == end + 10)
