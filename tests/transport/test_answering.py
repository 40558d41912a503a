"""Answers leave in the order of their requests, byte for byte, and no faster than the peer reads them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.storage.disk import Disk, File
from penstock.storage.log import FileRange
from penstock.transport import connection as connections
from penstock.transport.connection import SLOTS_MAX, UNSENT_MAX, Connection
from penstock.transport.turn import RECEIVE_BYTES
from tests.fakes import framed, request, turns, until
from tests.transport.conftest import LOOPS, Listening, Wires
from tests.transport.test_memory import FakeAsker

# ---- order


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
async def test_answers_keep_the_order_of_requests_whatever_is_answered_first(wires: Wires, order: list[int]) -> None:
    _, peer = wires.connect()
    frames = [request("s") for _ in range(4)]
    await peer.send(b"".join(map(framed, frames)))
    await until(lambda: len(wires.router.frames) == 4)
    done: set[int] = set()
    for slot in order:
        wires.router.answer(frames[slot])
        done.add(slot)
        await turns()
        assert peer.has_data() == (0 in done)
    assert [await peer.receive_frame() for _ in frames] == frames


async def test_a_request_that_nothing_overlaps_holds_up_what_stands_behind_it(wires: Wires) -> None:
    connection, peer = wires.connect()
    first, second, third = request("e"), request("e"), request("n")
    await peer.send(framed(first) + framed(second) + framed(third))
    await until(lambda: connection.waiting_for == "order")
    assert wires.router.frames == [first]
    wires.router.answer(first)
    await until(lambda: wires.router.frames == [first, second])
    wires.router.answer(second)
    assert [await peer.receive_frame() for _ in range(3)] == [first, second, third]


async def test_produce_requests_overlap_and_others_wait_for_them(wires: Wires) -> None:
    connection, peer = wires.connect()
    produce = [request("s") for _ in range(3)]
    other = request("n")
    await peer.send(b"".join(map(framed, (*produce, other, produce[0]))))
    await until(lambda: connection.waiting_for == "order")
    assert wires.router.frames == produce
    wires.router.answer(produce[1])
    wires.router.answer(produce[0])
    await turns()
    assert wires.router.frames == produce
    wires.router.answer(produce[2])
    await until(lambda: len(wires.router.frames) == 5)
    assert [await peer.receive_frame() for _ in range(4)] == [*produce, other]


async def test_a_long_wait_on_one_connection_delays_no_other(wires: Wires) -> None:
    _, waiting = wires.connect()
    _, other = wires.connect()
    slow = request("e")
    await waiting.send(framed(slow))
    for _ in range(3):
        quick = request("n")
        await other.send(framed(quick))
        assert await other.receive_frame() == quick
    wires.router.answer(slow)
    assert await waiting.receive_frame() == slow


async def test_requests_without_an_answer_keep_the_order_of_the_others(wires: Wires) -> None:
    _, peer = wires.connect()
    frames = [request("s") for _ in range(3)]
    await peer.send(b"".join(map(framed, frames)))
    await until(lambda: len(wires.router.open) == 3)
    wires.router.answer(frames[1], [])
    wires.router.answer(frames[2])
    wires.router.answer(frames[0])
    assert [await peer.receive_frame() for _ in range(2)] == [frames[0], frames[2]]


async def test_requests_that_wait_for_an_answer_are_bounded(wires: Wires) -> None:
    connection, peer = wires.connect()
    frames = [request("s") for _ in range(SLOTS_MAX + 10)]
    await peer.send(b"".join(map(framed, frames)))
    await until(lambda: connection.waiting_for == "order")
    assert len(wires.router.frames) == SLOTS_MAX
    for frame in frames[:SLOTS_MAX]:
        wires.router.answer(frame)
    await until(lambda: len(wires.router.frames) == SLOTS_MAX + 10)


# ---- a peer that does not read


async def test_answers_to_a_peer_that_does_not_read_are_bounded_then_its_requests_are_not_read(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=4096)
    size = 100_000
    frames = [request("n", size) for _ in range(3 * UNSENT_MAX // size)]
    sending = wires.loop.create_task(peer.send(b"".join(map(framed, frames))))
    await until(lambda: connection.waiting_for == "order")
    await turns(100)
    held = len(wires.router.frames)
    assert UNSENT_MAX <= held * size <= UNSENT_MAX + size + RECEIVE_BYTES + 10_000
    assert UNSENT_MAX < connection.unsent < UNSENT_MAX + 2 * size
    for frame in frames:
        assert await peer.receive_frame() == frame
    await sending
    assert connection.unsent == 0
    assert not connection.waiting_for


async def test_a_peer_that_reads_again_is_read_again_when_half_is_gone(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=4096)
    frames = [request("n", 100_000) for _ in range(60)]
    sending = wires.loop.create_task(peer.send(b"".join(map(framed, frames))))
    await until(lambda: connection.waiting_for == "order")
    held = len(wires.router.frames)
    unsent = connection.unsent
    for frame in frames[:held]:
        assert await peer.receive_frame() == frame
        await turns(5)
        if len(wires.router.frames) > held:
            break
        unsent = connection.unsent
    assert UNSENT_MAX // 2 - 200_000 < unsent < UNSENT_MAX // 2 + 200_000
    sending.cancel()


async def test_small_answers_without_a_slot_count_too(wires: Wires) -> None:
    """As the short way of Produce sends them: one part for each answer, thousands in a turn."""
    connection, peer = wires.connect(buffer=4096)
    sent = bytearray()
    for number in range(200):
        for part in range(1000):
            piece = b"%06d.%06d|" % (number, part)
            connection.send(piece)
            sent += piece
        wires.turn.flush()
        if connection.unsent > UNSENT_MAX // 4:
            break
    assert connection.unsent > UNSENT_MAX // 4, "nobody noticed how much waits"
    assert await peer.receive(len(sent)) == sent
    await until(lambda: connection.unsent == 0)


class CountedPart(bytes):
    """It counts how often somebody wanted to know how long such a part is."""

    asked = 0

    def __len__(self) -> int:
        CountedPart.asked += 1
        return super().__len__()


async def test_an_answer_behind_others_that_wait_costs_no_more_the_more_there_are(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=4096)
    connection.send_parts([b"x" * 1_000_000])
    await turns()
    stuck = connection.unsent
    assert stuck
    CountedPart.asked = 0
    for number in range(1, 101):
        connection.send_parts([CountedPart(b"in parts")])
        connection.send(b"short")
        connection.send_part(b"long")
        wires.turn.flush()
        assert connection.unsent == stuck + 17 * number
    assert CountedPart.asked == 100
    assert await peer.receive(1_001_700) == b"x" * 1_000_000 + b"in partsshortlong" * 100
    await until(lambda: connection.unsent == 0)


async def test_the_peer_may_go_while_answers_wait(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=4096)
    waiting = request("e")
    await peer.send(framed(request("n", 90_000)) + framed(waiting))
    await until(lambda: bool(wires.router.open))
    assert connection.unsent
    peer.close()
    await until(lambda: connection.closed)
    assert connection.unsent == 0
    assert wires.router.cancelled == [waiting]
    wires.router.answer(waiting)  # too late, and no harm done
    await turns()
    assert wires.closed == [connection]


async def test_closing_twice_is_closing_once(wires: Wires) -> None:
    connection, peer = wires.connect()
    waiting = [request("s"), request("s")]
    await peer.send(b"".join(map(framed, waiting)))
    await until(lambda: len(wires.router.open) == 2)
    wires.router.answer(waiting[1])
    connection.close()
    connection.close()
    assert wires.router.cancelled == [waiting[0]], "an answer that was ready needs no cancelling"
    assert wires.closed == [connection]
    assert await peer.closed()


# ---- ranges of files


@pytest.fixture
def log_file(tmp_path: Path) -> File:
    file = Disk().open(tmp_path / "log", create=True)
    content = random.Random(3).randbytes(3_000_000)
    file.append([content], len(content))
    return file


async def test_ranges_of_files_are_sent_between_bytes(wires: Wires, log_file: File) -> None:
    connection, peer = wires.connect()
    ranges = [FileRange(log_file, 0, 2_500_000), FileRange(log_file, 17, 0), FileRange(log_file, 2_999_999, 1)]
    connection.send_parts([b"head", ranges[0], b"", b"middle", memoryview(b"view"), ranges[1], ranges[2], b"tail"])
    connection.send_parts([b"next"])
    wanted = b"head" + ranges[0].read() + b"middleview" + ranges[2].read() + b"tailnext"
    assert await peer.receive(len(wanted)) == wanted
    await until(lambda: connection.unsent == 0)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was sent of files, by a socket that takes whatever it is given."""
    sent: list[int] = []

    def take_all(to: int, file: int, position: int, size: int) -> int:
        sent.append(size)
        return size

    monkeypatch.setattr(os, "sendfile", take_all)
    return sent


async def test_of_a_large_file_only_so_much_is_sent_before_others_have_their_turn(
    wires: Wires, log_file: File, sent: list[int]
) -> None:
    connection, _ = wires.connect()
    connection.send_parts([b"head", FileRange(log_file, 0, 3_000_000)])
    connection.send_parts([FileRange(log_file, 0, 1), b"tail"])
    wires.turn.settle()
    assert sent == [connections.FILES_AT_ONCE]
    await until(lambda: connection.unsent == 0)
    assert sum(sent) == 3_000_001
    assert max(sent) == connections.FILES_AT_ONCE


async def test_of_what_nobody_waits_for_others_wait_for_less(wires: Wires, log_file: File, sent: list[int]) -> None:
    connection, _ = wires.connect()
    connection.send_parts([b"head", FileRange(log_file, 0, 250_000, at_once=100_000), b"tail"])
    wires.turn.settle()
    assert sent == [100_000]
    await until(lambda: connection.unsent == 0)
    assert sent == [100_000, 100_000, 50_000]


async def test_whoever_ends_is_answered_first_and_not_read_any_more(wires: Wires) -> None:
    connection, peer = wires.connect()
    waiting, ready = request("s"), request("n")
    await peer.send(framed(ready) + framed(waiting))
    await until(lambda: bool(wires.router.open))
    connection.end()
    connection.end()
    await peer.send(framed(request("n")))
    assert await peer.receive_frame() == ready
    await turns()
    assert not connection.closed
    wires.router.answer(waiting)
    assert await peer.receive_frame() == waiting
    assert await peer.closed()
    assert wires.closed == [connection]


class EndingMemo:
    def __init__(self) -> None:
        self.ran = 0

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        self.ran += 1
        connection.end()
        return True


async def test_what_came_behind_a_request_that_ends_the_connection_is_not_carried_out(wires: Wires) -> None:
    connection, peer = wires.connect()
    memo = connection.memo = EndingMemo()
    await peer.send(framed(request("n")) * 3)
    assert await peer.closed()
    assert memo.ran == 1


async def test_whoever_ends_while_a_long_wait_is_open_is_closed(wires: Wires) -> None:
    connection, peer = wires.connect()
    await peer.send(framed(request("e")))  # nothing may pass its answer
    await until(lambda: bool(wires.router.open))
    connection.end()
    assert await peer.closed()


async def test_whoever_ends_keeps_no_memory_though_the_peer_does_not_read(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=5000)
    connection.send_parts([b"x" * 1_000_000])
    await turns()
    await peer.send(framed(request("q", 900_000)))
    await until(lambda: connection.ending)
    await turns()
    assert (wires.memory.used, wires.memory.finishing, len(wires.memory.waiting)) == (0, None, 0)
    assert not connection.closed
    assert await peer.receive(1_000_000) == b"x" * 1_000_000
    assert await peer.closed()


async def test_whoever_ends_gives_up_its_place_among_those_who_wait_for_memory(wires: Wires) -> None:
    assert wires.memory.take(wires.memory.limit, FakeAsker())
    (first, its), (second, others) = wires.connect(buffer=5000), wires.connect()
    first.send_parts([b"x" * 1_000_000])  # more than its peer takes: it is there for longer
    for connection, peer in ((first, its), (second, others)):
        peer.send_now(framed(request("n", 300_000))[:100_000])
        await until(partial(wires.memory.waiting.__contains__, connection))
    first.end()
    await turns()
    wires.memory.give_back(wires.memory.limit)
    await others.send(framed(request("n", 300_000))[100_000:])
    assert len(await others.receive_frame()) == 300_000
    assert not first.closed


async def test_what_was_answered_arrives_though_more_has_come_that_is_not_read(listening: Listening) -> None:
    listener = listening.start()
    peer = await listening.connect()
    await until(lambda: len(listener.connections) == 1)
    (connection,) = listener.connections
    connection.send_parts([b"x" * 1_000_000])
    connection.end()
    peer.send_now(bytes(200_000))
    assert await peer.receive(1_000_000) == b"x" * 1_000_000
    assert await peer.closed()


async def test_whoever_ends_with_nothing_to_be_answered_is_closed(wires: Wires) -> None:
    connection, peer = wires.connect()
    connection.end()
    assert await peer.closed()
    assert connection.closed


@pytest.mark.parametrize(
    ("begin", "word"),
    [(b"\x16\x03\x01\x02\x00", "TLS"), (b"GET / HTTP/1.1\r\n", "HTTP"), (b"\xff\xff\xff\xff", "-1 bytes")],
)
async def test_what_is_no_request_is_said_in_the_log(
    wires: Wires, caplog: pytest.LogCaptureFixture, begin: bytes, word: str
) -> None:
    _, peer = wires.connect()
    await peer.send(begin)
    assert await peer.closed()
    assert word in caplog.text


async def test_a_file_that_was_cut_while_it_was_sent_ends_the_connection(wires: Wires, log_file: File) -> None:
    connection, peer = wires.connect()
    connection.send_parts([b"head", FileRange(log_file, 2_000_000, 1_000_000)])
    log_file.truncate(2_000_000)
    assert await peer.receive(4) == b"head"
    assert await peer.closed()
    assert connection.closed


part = st.one_of(
    st.binary(max_size=3000),
    st.binary(max_size=3000).map(memoryview),
    st.tuples(st.integers(0, 20_000), st.integers(0, 20_000)),
)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = LOOPS[request.param]()
    yield loop
    loop.close()


@given(script=st.lists(st.one_of(st.lists(part, max_size=6), st.integers(1, 8000)), max_size=15))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_arrives_byte_for_byte_through_a_narrow_socket(
    loop: asyncio.AbstractEventLoop, log_file: File, monkeypatch: pytest.MonkeyPatch, script: list[Any]
) -> None:
    """Answers of any parts are sent, and so many bytes are read in between."""
    monkeypatch.setattr(connections, "FILES_AT_ONCE", 5000)

    async def run() -> None:
        wires = Wires(loop)
        connection, peer = wires.connect(buffer=1)
        sent, received = bytearray(), bytearray()
        for step in script:
            if isinstance(step, int):
                received += await peer.receive(min(step, len(sent) - len(received)))
                continue
            parts = [FileRange(log_file, *each) if isinstance(each, tuple) else each for each in step]
            if all(type(each) is bytes for each in parts):
                for each in parts:
                    connection.send(each)
                wires.turn.schedule()
            elif parts:
                connection.send_parts([b"", *parts])
            for each in parts:
                sent += each.read() if isinstance(each, FileRange) else each
            await asyncio.sleep(0)
        received += await peer.receive(len(sent) - len(received))
        assert received == sent
        await until(lambda: connection.unsent == 0)
        assert not peer.has_data()
        wires.close()

    loop.run_until_complete(run())
