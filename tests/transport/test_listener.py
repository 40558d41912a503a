"""Accepting connections, and letting go of them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from typing import Any

import pytest

from penstock.transport import listener as listeners
from penstock.transport import relief
from penstock.transport.connection import LARGE_FIRST
from penstock.transport.connection_limit import ConnectionLimit
from penstock.transport.listener import SWEEPS_PER_IDLE_TIME, Listener
from tests.fakes import framed, request, turns, until
from tests.transport.conftest import Listening


async def test_connections_are_served_and_forgotten_when_they_go(listening: Listening) -> None:
    listener = listening.start()
    for peer in [await listening.connect() for _ in range(5)]:
        frame = request("n")
        await peer.send(framed(frame))
        assert await peer.receive_frame() == frame
    assert len(listener.connections) == 5
    assert {c.host for c in listener.connections} == {"127.0.0.1"}
    for peer in listening.peers:
        peer.close()
    await until(lambda: not listener.connections)


@pytest.mark.parametrize("size", [600, 900_000], ids=["small", "large"])
async def test_a_reset_behind_the_beginning_of_a_request_is_seen(listening: Listening, size: int) -> None:
    """The loop tells of bytes and of the error at once, and of the error never again."""
    listener = listening.start()
    for _ in range(20):
        peer = await listening.connect()
        await until(lambda: len(listener.connections) == 1)
        peer.send_now(framed(request("n", size))[: size // 2])
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await until(lambda: not listener.connections)


async def test_a_sweep_finds_who_is_gone(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "SWEEP_S", 0.05)
    listener = listening.start(idle_ms_max=-1)
    peer = await listening.connect()
    await until(lambda: len(listener.connections) == 1)
    (connection,) = listener.connections
    connection._pause("order")  # nobody listens to the loop
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    await until(lambda: not listener.connections)


async def test_an_address_of_version_6(listening: Listening) -> None:
    try:
        listener = listening.start("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    await listening.connect()
    await until(lambda: len(listener.connections) == 1)


async def test_no_more_connections_than_the_bound(listening: Listening, caplog: pytest.LogCaptureFixture) -> None:
    listener = listening.start(limit=ConnectionLimit(lambda: 2))
    first, second = await listening.connect(), await listening.connect()
    await until(lambda: len(listener.connections) == 2)
    assert await (await listening.connect()).closed()
    assert "max.connections is reached" in caplog.text
    first.close()
    await until(lambda: len(listener.connections) == 1)
    third = await listening.connect()
    for peer in (second, third):
        await peer.send(framed(request("n")))
        assert await peer.receive_frame()


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(listening: Listening) -> None:
    listening.start()
    other = Listener(
        listening.loop, name="TEST", turn=listening.turn, memory=listening.memory,
        dispatch=listening.router.dispatch, frame_max=100, limit=ConnectionLimit(lambda: 1), idle_ms_max=1000,
        cold_reads=listening.cold_reads,
    )  # fmt: skip
    with pytest.raises(OSError) as failure:
        other.start("127.0.0.1", listening.port)
    assert failure.value.errno == errno.EADDRINUSE
    other.close()


async def test_idle_connections_are_closed_and_others_are_not(listening: Listening) -> None:
    listener = listening.start(idle_ms_max=500)
    idle, waiting, busy = [await listening.connect() for _ in range(3)]
    await waiting.send(framed(request("e")))
    await until(lambda: bool(listening.router.open))
    for _ in range(SWEEPS_PER_IDLE_TIME + 2):
        await busy.send(framed(request("n")))
        await busy.receive_frame()
        listener._sweep()
    assert len(listener.connections) == 2
    assert await idle.closed()
    await busy.send(framed(request("n")))
    assert await busy.receive_frame()


async def test_a_connection_is_idle_for_as_long_as_was_said_before_it_is_closed(listening: Listening) -> None:
    listening.start(idle_ms_max=500)
    peer = await listening.connect()
    began = listening.loop.time()
    assert await peer.closed()
    assert 0.5 <= listening.loop.time() - began < 2


async def test_connections_may_be_idle_for_ever(listening: Listening) -> None:
    listener = listening.start(idle_ms_max=-1)
    await listening.connect()
    await until(lambda: len(listener.connections) == 1)
    for _ in range(5 * SWEEPS_PER_IDLE_TIME):
        listener._sweep()
    await asyncio.sleep(0.06)
    assert len(listener.connections) == 1


async def test_the_sweep_takes_back_buffers_that_were_kept(listening: Listening) -> None:
    listener = listening.start()
    peer = await listening.connect()
    await peer.send(framed(request("n", LARGE_FIRST - 4)))
    await peer.receive_frame()
    await turns()
    assert listening.memory.used == LARGE_FIRST
    listener._sweep()
    assert listening.memory.used == 0


async def test_a_connection_that_closes_during_the_sweep_is_not_remembered(listening: Listening) -> None:
    listener = listening.start()
    for _ in range(3):
        peer = await listening.connect()
        await peer.send(framed(request("n", LARGE_FIRST - 4)))
        await peer.receive_frame()
    first, _, last = listener.connections
    await turns()
    listening.turn.writes.append(last.close)
    listening.turn.schedule()
    listener._sweep()
    assert last.closed
    assert not first.closed
    assert last not in listener.connections


async def test_without_descriptors_it_rests_and_goes_on_later(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "REST_S", 0.05)
    listener = listening.start()
    real = listener._socket

    class FullTable:
        """A socket whose connections can't be accepted: the table of descriptors is full."""

        def accept(self) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

        def fileno(self) -> int:
            assert real is not None
            return real.fileno()

        def close(self) -> None:
            assert real is not None
            real.close()

    listener._socket = FullTable()
    peer = await listening.connect()
    await asyncio.sleep(0.02)
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1, "it asks again and again"
    listener._socket = real
    await peer.send(framed(request("n")))
    assert await peer.receive_frame()


async def test_closing_ends_all_connections_and_calls_nothing_later(listening: Listening) -> None:
    listener = listening.start()
    peers = [await listening.connect() for _ in range(3)]
    await peers[0].send(framed(request("e")))
    await until(lambda: bool(listening.router.open))
    listener.close()
    for peer in peers:
        assert await peer.closed()
    assert len(listening.router.cancelled) == 1
    assert not listener.connections


async def test_while_somebody_waits_for_memory_kept_buffers_and_stalled_frames_make_room(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relief, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(relief, "STALLED_S", 0.1)
    listening.start()
    listening.memory.limit = 2 * LARGE_FIRST
    frame = request("n", LARGE_FIRST - 4)
    quiet, stalled, patient = [await listening.connect() for _ in range(3)]
    await quiet.send(framed(frame))
    await quiet.receive_frame()
    await stalled.send(framed(frame)[:-1])
    await until(lambda: listening.memory.used == 2 * LARGE_FIRST)
    await patient.send(framed(frame))
    assert await patient.receive_frame() == frame
    assert listening.memory.used <= 2 * LARGE_FIRST
    await quiet.send(framed(frame))
    assert await quiet.receive_frame() == frame
