"""What to call things when a person is told what to type next."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ENOUGH = 3  # brokers of a cluster, for a client to find it though two of them are down


def enough(addresses: Sequence[str]) -> str:
    """Of a cluster, for --bootstrap."""
    return ",".join(addresses[:ENOUGH])


def command_name() -> str:
    """What a person at this terminal types: the installed script may not be on the path."""
    beside = Path(sys.executable).parent / "penstock"
    on_path = any((Path(folder) / "penstock").exists() for folder in os.environ.get("PATH", "").split(os.pathsep))
    return "penstock" if on_path or not beside.exists() else os.path.relpath(beside)


def reachable(listen: str) -> str:
    """An address a client on this machine can use: nobody connects to 0.0.0.0."""
    host, _, port = listen.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("", "0.0.0.0", "[::]", "::") else listen
