"""Frames come out whole, however their bytes came in."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest

from penstock.transport.connection import LARGE_FIRST, LARGE_KEPT_MAX, SLOTS_MAX, Connection
from penstock.transport.turn import BUFFERS_PER_TURN, RECEIVE_BYTES
from tests.fakes import framed, request, turns, until
from tests.transport.conftest import Wires

LARGE = RECEIVE_BYTES + 1000


async def test_a_frame_comes_out_whole(wires: Wires) -> None:
    _, peer = wires.connect()
    frame = request("n", 100)
    await peer.send(framed(frame))
    assert await peer.receive_frame() == frame
    assert wires.router.frames == [frame]


async def test_a_frame_that_comes_byte_by_byte_is_the_same_frame(wires: Wires) -> None:
    _, peer = wires.connect()
    frames = [request("n", size) for size in (8, 9, 20)]
    for byte in b"".join(map(framed, frames)):
        await peer.send(bytes((byte,)))
        await turns(3)
    assert wires.router.frames == frames


@pytest.mark.parametrize("cut", range(1, 36))
async def test_frames_in_one_segment_with_part_of_the_next_behind_them(wires: Wires, cut: int) -> None:
    _, peer = wires.connect()
    frames = [request("n", 8) for _ in range(4)]
    data = b"".join(map(framed, frames))
    await peer.send(data[:cut])
    await until(lambda: len(wires.router.frames) == cut // 12)
    await peer.send(data[cut:])
    for frame in frames:
        assert await peer.receive_frame() == frame
    assert wires.router.frames == frames


@pytest.mark.parametrize(
    "size", [RECEIVE_BYTES - 5, RECEIVE_BYTES - 4, RECEIVE_BYTES - 3, LARGE, 3 * LARGE_FIRST, 5_000_000]
)
async def test_a_frame_around_and_beyond_the_size_of_a_receive_buffer(wires: Wires, size: int) -> None:
    connection, peer = wires.connect()
    frames = [request("n", size), request("n", 8), request("n", size), request("n", 50)]
    for frame in frames:
        await peer.send(framed(frame))
        assert await peer.receive_frame() == frame
    assert wires.router.frames == frames
    assert (connection.charged > 0) == (RECEIVE_BYTES < size + 4 <= LARGE_KEPT_MAX)


async def test_large_frames_and_small_ones_sent_without_waiting(wires: Wires) -> None:
    _, peer = wires.connect()
    frames = [request("n", size) for size in (8, LARGE, 8, 8, LARGE_FIRST + 1, 5000, LARGE, 8)]
    sending = wires.loop.create_task(peer.send(b"".join(map(framed, frames))))
    for frame in frames:
        assert await peer.receive_frame() == frame
    await sending
    assert wires.router.frames == frames


@pytest.mark.parametrize("size", [-1, 0, 7, -(2**31), 2**31 - 1, 1001])
async def test_a_length_that_no_frame_has_closes_the_connection(wires: Wires, size: int) -> None:
    connection, peer = wires.connect(frame_max=1000)
    await peer.send(framed(request("n", 1000)))
    assert len(await peer.receive_frame()) == 1000
    await peer.send(size.to_bytes(4, "big", signed=True) + request("n"))
    assert await peer.closed()
    assert connection.closed
    assert len(wires.router.frames) == 1


async def test_what_stands_behind_a_frame_that_closed_the_connection_is_not_carried_out(wires: Wires) -> None:
    _, peer = wires.connect()
    bad = request("x")
    await peer.send(framed(bad) + framed(request("n")))
    assert await peer.closed()
    assert wires.router.frames == [bad]


class ClosingMemo:
    """It takes care of a request, and in doing so finds that nobody is there any more."""

    ran = 0

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        self.ran += 1
        connection.close()
        return True


async def test_what_stands_behind_a_frame_that_a_memo_took_care_of_is_not_carried_out_if_it_closed(
    wires: Wires,
) -> None:
    connection, peer = wires.connect()
    memo = connection.memo = ClosingMemo()
    await peer.send(framed(request("n")) + framed(request("n")))
    assert await peer.closed()
    assert memo.ran == 1


class BrokenSocket(socket.socket):
    """Its error is told of in no other way any more."""

    def getsockopt(self, level: int, name: int, size: int = 0) -> Any:
        return errno.ECONNRESET if name == socket.SO_ERROR else super().getsockopt(level, name)


async def test_an_error_that_the_loop_told_of_with_bytes_is_found_in_the_middle_of_a_large_frame(wires: Wires) -> None:
    connection, peer = wires.connect()
    await peer.send(framed(request("n", LARGE))[: LARGE // 2])
    await until(lambda: wires.memory.used > 0)
    sound = connection.sock
    connection.sock = BrokenSocket(fileno=os.dup(sound.fileno()))
    peer.send_now(b"more")
    await until(lambda: connection.closed)
    sound.close()


# ---- memory


async def test_a_large_frame_is_charged_as_its_bytes_arrive_and_given_back_if_it_was_very_large(wires: Wires) -> None:
    _, peer = wires.connect()
    frame = framed(request("n", 6_000_000))
    charged, sent = [], 0
    for end in (RECEIVE_BYTES - 1, LARGE_FIRST, LARGE_FIRST + 1, 4 * LARGE_FIRST + 1, 16 * LARGE_FIRST + 1):
        await peer.send(frame[sent:end])
        sent = end
        await turns()
        charged.append(wires.memory.used)
    assert charged == [LARGE_FIRST, LARGE_FIRST, 4 * LARGE_FIRST, 16 * LARGE_FIRST, len(frame)]
    await peer.send(frame[sent:])
    await peer.receive_frame()
    await until(lambda: wires.memory.used == 0)


async def test_what_was_charged_is_given_back_when_the_peer_goes_in_the_middle(wires: Wires) -> None:
    _, peer = wires.connect()
    await peer.send(framed(request("n", 3 * LARGE_FIRST))[: 2 * LARGE_FIRST])
    await until(lambda: wires.memory.used == 3 * LARGE_FIRST + 4)
    peer.close()
    await until(lambda: wires.memory.used == 0)
    assert len(wires.closed) == 1


async def test_a_buffer_kept_for_the_next_large_frame_goes_when_none_came(wires: Wires) -> None:
    connection, peer = wires.connect()
    for _ in range(2):
        await peer.send(framed(request("n", LARGE)))
        await peer.receive_frame()
        await turns()
        assert wires.memory.used == connection.charged == LARGE + 4
    connection.release_idle_memory()
    assert wires.memory.used == 0
    await peer.send(framed(request("n", LARGE)))
    assert len(await peer.receive_frame()) == LARGE


async def test_a_frame_in_the_middle_keeps_its_buffer_through_a_sweep(wires: Wires) -> None:
    connection, peer = wires.connect()
    frame = request("n", LARGE)
    await peer.send(framed(frame)[:5000])
    await turns()
    connection.release_idle_memory()
    await peer.send(framed(frame)[5000:])
    assert await peer.receive_frame() == frame


async def test_without_room_the_socket_is_not_read_until_there_is_some(wires: Wires) -> None:
    wires.memory.limit = LARGE_FIRST
    first, first_peer = wires.connect()
    second, second_peer = wires.connect()
    frames = [request("n", LARGE_FIRST - 4), request("n", LARGE_FIRST - 4)]
    await first_peer.send(framed(frames[0])[:-1])
    await until(lambda: wires.memory.used == LARGE_FIRST)
    sending = wires.loop.create_task(second_peer.send(framed(frames[1])))
    await until(lambda: second.waiting_for == "memory")
    await turns()
    assert wires.memory.used == LARGE_FIRST
    await first_peer.send(framed(frames[0])[-1:])
    assert await first_peer.receive_frame() == frames[0]
    await sending
    assert await second_peer.receive_frame() == frames[1]
    assert not first.waiting_for


async def test_a_frame_larger_than_the_whole_budget_passes_when_it_is_alone(wires: Wires) -> None:
    wires.memory.limit = 1000
    _, peer = wires.connect()
    frame = request("n", 3 * LARGE_FIRST)
    sending = wires.loop.create_task(peer.send(framed(frame)))
    assert await peer.receive_frame() == frame
    await sending


async def test_memory_comes_in_the_order_of_asking_and_nobody_waits_for_ever(wires: Wires) -> None:
    """One connection sends large frames without a pause; those that wait must come to their turn all the same."""
    wires.memory.limit = LARGE_FIRST
    wires.router.keeps = 8
    _, greedy_peer = wires.connect()
    frame = request("n", LARGE_FIRST - 4)

    async def pump() -> None:
        while True:
            await greedy_peer.send(framed(frame))

    async def drain() -> None:
        while True:
            await greedy_peer.receive(1 << 16)

    tasks = [wires.loop.create_task(pump()), wires.loop.create_task(drain())]
    await until(lambda: len(wires.router.frames) > 2)
    patient = [wires.connect() for _ in range(4)]
    frames = [request("n", LARGE_FIRST - 4) for _ in patient]
    for (connection, peer), each in zip(patient, frames):
        tasks.append(wires.loop.create_task(peer.send(framed(each))))
        await until(lambda c=connection, e=each: c.waiting_for == "memory" or e[:8] in wires.router.frames)
    for (_, peer), each in zip(patient, frames):
        assert await peer.receive_frame() == each
    ids = [each[:8] for each in frames]
    assert [each for each in wires.router.frames if each in ids] == ids
    for task in tasks:
        task.cancel()


async def test_frames_that_all_hold_a_part_and_want_more_do_not_wait_for_each_other_for_ever(wires: Wires) -> None:
    wires.memory.limit = 4 * LARGE_FIRST
    peers = [wires.connect()[1] for _ in range(4)]
    frames = [request("n", 4 * LARGE_FIRST - 4) for _ in peers]
    for peer, frame in zip(peers, frames):
        await peer.send(framed(frame)[:LARGE_FIRST])
    await until(lambda: wires.memory.used == 4 * LARGE_FIRST)
    sending = [wires.loop.create_task(p.send(framed(f)[LARGE_FIRST:])) for p, f in zip(peers, frames)]
    for peer, frame in zip(peers, frames):
        assert await peer.receive_frame() == frame
    for task in sending:
        await task
    assert wires.memory.used <= wires.memory.limit


async def test_who_leaves_while_waiting_for_memory_takes_nothing(wires: Wires) -> None:
    wires.memory.limit = LARGE_FIRST
    _, holder = wires.connect()
    leaver, leaving = wires.connect()
    _, last = wires.connect()
    frame = request("n", LARGE_FIRST - 4)
    await holder.send(framed(frame)[:-1])
    await until(lambda: wires.memory.used == LARGE_FIRST)
    sending = wires.loop.create_task(leaving.send(framed(frame)))
    await until(lambda: leaver.waiting_for == "memory")
    sending_too = wires.loop.create_task(last.send(framed(frame)))
    await turns()
    leaver.close()
    sending.cancel()
    await holder.send(framed(frame)[-1:])
    assert await holder.receive_frame() == frame
    assert await last.receive_frame() == frame
    await sending_too


async def test_a_handler_may_take_the_buffer_of_a_large_frame_along(wires: Wires) -> None:
    connection, peer = wires.connect()
    taken = []

    def dispatch(connection: object, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        taken.append((view[start + 4 : stop], wires_connection.detach_large()))
        return True

    wires_connection = connection
    connection.dispatch = dispatch
    frames = [request("n", LARGE), request("n", LARGE), request("n", 100)]
    for frame in frames:
        await peer.send(framed(frame))
    await until(lambda: len(taken) == 3)
    await turns()
    assert [bytes(view) for view, _ in taken[:2]] == frames[:2]
    assert taken[2][1] is None
    assert wires.memory.used == 2 * (LARGE + 4)
    for _, give_back in taken[:2]:
        give_back()
    assert wires.memory.used == 0


# ---- buffers and the end of a turn


async def test_receive_buffers_are_not_used_again_before_the_writes_of_their_turn(wires: Wires) -> None:
    peers = [wires.connect()[1] for _ in range(3 * BUFFERS_PER_TURN)]
    for _ in range(5):
        frames = [[request("v", 60) for _ in range(3)] for _ in peers]
        for peer, each in zip(peers, frames):
            assert peer.send_now(b"".join(map(framed, each))) == 3 * 64
        wires.router.written.clear()
        await until(lambda: len(wires.router.written) == 3 * len(peers))
        assert sorted(wires.router.written) == sorted(frame for each in frames for frame in each)


def use_up_buffers(wires: Wires) -> None:
    """Whoever wants the next one has the turn carried out first."""
    while wires.turn.readers < BUFFERS_PER_TURN:
        wires.turn.buffer()


async def test_a_connection_that_a_full_turn_closes_before_it_is_read_is_not_read(wires: Wires) -> None:
    """Its descriptor's number may be another's by then."""
    received_from = []

    def receive(*_: object) -> int:
        received_from.append(connection.closed)
        return -1

    connection, peer = wires.connect()
    connection._receive = receive
    use_up_buffers(wires)
    connection.send(b"answer")
    peer.close()
    connection._readable()
    assert connection.closed
    assert True not in received_from


async def test_a_connection_that_a_full_turn_ends_before_it_is_read_is_not_read(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=5000)
    connection.send_parts([b"x" * 1_000_000])
    await turns()
    peer.send_now(framed(request("n")))
    use_up_buffers(wires)
    wires.turn.answers.append(connection.end)
    connection._readable()
    assert not connection.closed
    assert await peer.receive(1_000_000) == b"x" * 1_000_000
    assert await peer.closed()
    assert not wires.router.frames


async def test_a_large_frame_takes_no_memory_where_the_turn_that_it_settles_ends_its_connection(wires: Wires) -> None:
    connection, peer = wires.connect(buffer=5000)
    frames = [request("n", LARGE), request("n", LARGE)]
    sent = framed(frames[0])
    while not wires.router.frames:
        sent = sent[peer.send_now(sent) :]
        connection._readable()
    peer.send_now(framed(frames[1])[:100])
    wires.turn.answers.append(connection.end)
    connection._readable()
    await turns()
    assert not connection.closed
    assert wires.memory.used == 0
    assert await peer.receive_frame() == frames[0]
    assert await peer.closed()


async def test_what_was_read_of_a_connection_that_a_full_turn_closes_is_not_carried_out(wires: Wires) -> None:
    connection, peer = wires.connect()
    waiting = request("e")
    await peer.send(framed(waiting) + framed(request("n")))
    await until(lambda: connection.waiting_for == "order")
    wires.router.answer(waiting)
    use_up_buffers(wires)
    wires.turn.answers.append(connection.close)
    connection._order_restored()
    assert connection.closed
    await turns()
    assert wires.router.frames == [waiting]


async def test_settling_writes_what_was_staged_and_leaves_the_buffers_to_their_users(wires: Wires) -> None:
    turn = wires.turn
    first = turn.buffer()
    first.bytes[:4] = b"here"
    seen: list[str] = []
    turn.writes.append(lambda: seen.append("write"))
    turn.answers.append(lambda: seen.append("answer"))
    turn.settle()
    assert seen == ["write", "answer"]
    assert turn.buffer() is not first
    turn.flush()
    assert {id(turn.buffer()), id(turn.buffer())} >= {id(first)}


async def test_an_answer_may_stage_another_write_which_is_carried_out_in_the_same_turn(wires: Wires) -> None:
    turn, seen = wires.turn, []

    def answer() -> None:
        seen.append("answer")
        turn.writes.append(lambda: seen.append("write again"))
        turn.answers.append(lambda: seen.append("answer again"))

    turn.writes.append(lambda: seen.append("write"))
    turn.answers.append(answer)
    turn.schedule()
    await turns()
    assert seen == ["write", "answer", "write again", "answer again"]


async def test_what_fails_at_the_end_of_a_turn_keeps_nobody_else_from_being_written_and_answered(wires: Wires) -> None:
    turn, seen = wires.turn, []

    def fail() -> None:
        raise ZeroDivisionError

    problems: list[object] = []
    wires.loop.set_exception_handler(lambda loop, context: problems.append(context.get("exception")))
    turn.writes += [lambda: seen.append("write 1"), fail, lambda: seen.append("write 2")]
    turn.answers += [lambda: seen.append("answer 1"), fail, lambda: seen.append("answer 2")]
    turn.schedule()
    await turns()
    assert seen == ["write 1", "write 2", "answer 1", "answer 2"]


async def test_a_large_frame_does_not_overwrite_one_that_was_only_staged(wires: Wires) -> None:
    """The first large frame had to wait for its order; when that comes, the next one is in the socket already."""
    connection, peer = wires.connect()
    waiting = [request("s") for _ in range(SLOTS_MAX)]
    first, second = request("v", LARGE), request("v", LARGE)
    await peer.send(b"".join(map(framed, waiting)) + framed(first))
    await until(lambda: connection.waiting_for == "order")
    begun = peer.send_now(framed(second))
    for frame in waiting:
        wires.router.answer(frame, [])
    await until(lambda: bool(wires.router.written))
    await peer.send(framed(second)[begun:])
    await until(lambda: len(wires.router.written) == 2)
    assert wires.router.written == [first, second]


async def test_the_clock_of_the_turn_is_not_older_than_a_large_frame(wires: Wires) -> None:
    connection, peer = wires.connect()
    seen: list[int] = []

    class Memo:
        def run(self, connection: object, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
            seen.append(wires.turn.now_ms)
            return True

    connection.memo = Memo()
    wires.clock_ns = lambda: 1_000_000_000
    frame = framed(request("n", LARGE))
    await peer.send(frame[:5000])
    await turns()
    wires.clock_ns = lambda: 9_000_000_000
    await peer.send(frame[5000:])
    await until(lambda: bool(seen))
    assert seen == [9_000]


# ---- the peer goes


@pytest.mark.parametrize("sent", [0, 1, 4, 11, 12, 13, 5000, RECEIVE_BYTES, LARGE + 3])
async def test_the_peer_may_go_at_any_point(wires: Wires, sent: int) -> None:
    connection, peer = wires.connect()
    whole = request("e", 8)
    await peer.send((framed(whole) + framed(request("n", LARGE)))[:sent])
    await turns()
    peer.close()
    if connection.waiting_for == "order":  # a frame stands behind one that waits: nobody looks at the socket
        await turns()
        assert not connection.closed
        wires.router.answer(whole)
    await until(lambda: connection.closed)
    assert wires.router.cancelled == ([whole] if 12 <= sent <= 13 else [])
    assert wires.closed == [connection]
    await turns()
    assert wires.memory.used == 0
    assert connection.charged == 0
