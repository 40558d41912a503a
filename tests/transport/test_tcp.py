"""Options of sockets, as the kernel tells them."""

from __future__ import annotations

import socket

import pytest

from penstock.transport import tcp


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_within_one_machine_nothing_is_held_back(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as before, socket.socket() as sock:
        if congestion_control(before) == tcp.UNPACED:  # then another shows that one is chosen
            monkeypatch.setattr(tcp, "UNPACED", b"reno")
        tcp.set_options(sock, host)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert congestion_control(sock) == tcp.UNPACED


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "fe80::1%eth0"])
def test_across_a_network_the_system_decides(host: str) -> None:
    with socket.socket() as before, socket.socket() as sock:
        tcp.set_options(sock, host)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert congestion_control(sock) == congestion_control(before)


def test_other_congestion_controls_are_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "UNPACED", b"unheard-of")
    with socket.socket() as sock:
        tcp.set_options(sock, "127.0.0.1")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
