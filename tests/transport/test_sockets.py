"""A socket by its number, in C and in Python alike."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from penstock.transport import pure_sockets, sockets
from penstock.transport.sockets import Stream

TWINS: list[Callable[[socket.socket], Stream]] = [pure_sockets.Stream]
if sockets.COMPILED:
    from penstock.transport import _sockets

    TWINS.append(lambda sock: _sockets.Stream(sock.fileno()))

Pair = tuple[socket.socket, socket.socket]
Open = Callable[[socket.socket], Stream]
twins = pytest.mark.parametrize("opened", TWINS, ids=["pure", "compiled"][: len(TWINS)])


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@twins
def test_what_came_is_put_where_it_is_wanted(opened: Open, pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"abcdef")
    buffer = bytearray(b".........")
    assert opened(ours).receive(buffer, 2, 6) == 4
    assert buffer == b"..abcd..."
    assert opened(ours).receive(buffer, 0, 9) == 2
    assert buffer == b"efabcd..."


@twins
def test_nothing_yet_is_not_the_end(opened: Open, pair: Pair) -> None:
    ours, theirs = pair
    buffer = bytearray(10)
    assert opened(ours).receive(buffer, 0, 10) == -1
    theirs.close()
    assert opened(ours).receive(buffer, 0, 10) == 0


@twins
def test_a_socket_that_is_broken_is_at_its_end(opened: Open) -> None:
    with socket.socket() as alone:
        alone.setblocking(False)
        assert opened(alone).receive(bytearray(10), 0, 10) == 0
        with pytest.raises(OSError):
            opened(alone).send(b"x")


@twins
@pytest.mark.parametrize(("at", "stop"), [(-1, 5), (6, 5), (0, 11), (11, 11)])
def test_nothing_is_put_outside(opened: Open, pair: Pair, at: int, stop: int) -> None:
    with pytest.raises(ValueError):
        opened(pair[0]).receive(bytearray(10), at, stop)


@twins
@pytest.mark.parametrize("size", [1, 5000, 3_000_000])
def test_what_is_sent_arrives_as_far_as_it_was_taken(opened: Open, pair: Pair, size: int) -> None:
    ours, theirs = pair
    data = bytes(n % 251 for n in range(size))
    arrived, sent = bytearray(), 0
    buffer = bytearray(size)
    theirs.setblocking(False)
    while len(arrived) < size:
        taken = opened(ours).send(memoryview(data)[sent:]) if sent < size else -1
        sent += max(taken, 0)
        received = opened(theirs).receive(buffer, 0, size)
        arrived += buffer[: max(received, 0)]
    assert arrived == data


@twins
def test_a_peer_that_does_not_read_takes_nothing_in_the_end(opened: Open, pair: Pair) -> None:
    ours, _ = pair
    while opened(ours).send(bytes(100_000)) >= 0:
        pass
    assert opened(ours).send(b"x") == -1


@twins
def test_to_send_to_one_who_is_gone_is_an_error(opened: Open, pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        opened(ours).send(b"x")


@pytest.mark.skipif(not sockets.COMPILED, reason="in Python types are as they are")
def test_arguments_of_the_wrong_type_are_refused_in_c(pair: Pair) -> None:
    stream = _sockets.Stream(pair[0].fileno())
    for call in (
        lambda: stream.receive(bytes(5), 0, 5),
        lambda: stream.receive(bytearray(5), 0),
        lambda: stream.receive(bytearray(5), "0", 5),
        lambda: stream.send("text"),
        lambda: stream.send(),
        lambda: _sockets.Stream("1"),
        lambda: _sockets.Stream(fd=1),
    ):
        with pytest.raises(TypeError):
            call()  # type: ignore[no-untyped-call]


def test_what_only_looks_like_a_socket_is_asked_through_its_methods(pair: Pair) -> None:
    class Likeness:
        def recv_into(self, buffer: memoryview) -> int:
            buffer[:3] = b"abc"
            return 3

    buffer = bytearray(5)
    assert sockets.stream(cast(socket.socket, Likeness())).receive(buffer, 1, 5) == 3
    assert buffer == b"\0abc\0"
    assert isinstance(sockets.stream(pair[0]), pure_sockets.Stream) != sockets.COMPILED
