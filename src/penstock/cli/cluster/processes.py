"""Which process is behind an address of this machine: the kernel knows, whatever was written down when it started."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"  # a state of sockets in /proc/net/tcp
PR_SET_PDEATHSIG = 1

Address = tuple[str, int]
IpAddress = IPv4Address | IPv6Address


def listeners(addresses: Collection[Address]) -> dict[Address, int]:
    """The process that listens at each address. Those that are not of this machine, or not ours to look at, are not
    there."""
    sockets: dict[str, Address] = {}
    listening = list(_listening())
    for host, port in addresses:
        for ip in _local(host):
            for at, at_port, inode in listening:
                if at_port == port and (at == ip or at.is_unspecified):
                    sockets[f"socket:[{inode}]"] = (host, port)
    holders: dict[Address, list[int]] = {}
    if sockets:
        for pid, link in _open_sockets():
            if link in sockets:
                holders.setdefault(sockets[link], []).append(pid)
    return {address: _eldest(pids) for address, pids in holders.items()}


def _local(host: str) -> list[IpAddress]:
    """The addresses of a host, if it is this one: another's can't be bound."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    local = []
    for family, kind, _, _, where in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(where)
                local.append(ip_address(str(where[0]).partition("%")[0]))
            except (OSError, ValueError):
                continue
    return local


def _listening() -> Iterator[tuple[IpAddress, int, str]]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTENING:
                address, _, port = fields[1].partition(":")
                yield _decoded(bytes.fromhex(address)), int(port, 16), fields[9]


def _decoded(raw: bytes) -> IpAddress:
    """Each four bytes are a number as this machine has them, which is little-endian where anyone runs this."""
    ordered = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    if len(ordered) == 4:
        return IPv4Address(ordered)
    address = IPv6Address(ordered)
    return address.ipv4_mapped or address


def _open_sockets() -> Iterator[tuple[int, str]]:
    for process in PROC.iterdir():
        if process.name.isdecimal():
            try:
                for file in (process / "fd").iterdir():
                    yield int(process.name), os.readlink(file)
            except OSError:
                continue  # it has ended, or is another's


def _eldest(pids: list[int]) -> int:
    """A child may have inherited the socket."""
    return next((pid for pid in pids if _parent(pid) not in pids), pids[0])


def _parent(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def runs(pid: int, named: str) -> bool:
    """Whether the process lives and has this on its command line: numbers of processes are used again."""
    try:
        return named.encode() in (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def ends_with_parent() -> Callable[[], None]:
    """To be run by a new process: it is told to stop when the one that started it is gone, in whatever way."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
