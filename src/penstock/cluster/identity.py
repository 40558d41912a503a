"""Ids of topics and clusters, as Kafka makes and writes them: a random UUID, shown in URL-safe base64."""

from __future__ import annotations

import base64
from collections.abc import Callable

RandomBytes = Callable[[int], bytes]


def new_uuid(random_bytes: RandomBytes) -> bytes:
    """Never one that is shown with a leading dash, which a command line would take for an option."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40  # version 4
        raw[8] = raw[8] & 0x3F | 0x80  # variant 1
        if not show_uuid(bytes(raw)).startswith("-"):
            return bytes(raw)


def show_uuid(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()
