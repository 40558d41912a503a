"""What librdkafka does not pass on of a consumer group: epochs, and states that it has no names for.

One ConsumerGroupDescribe on a connection of its own, to the coordinator. Nothing depends on it: where that is not
possible, the description has gaps.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from penstock.cli.connection import REACH_TIMEOUT_S
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from penstock.protocol.wire import DecodeError

VERSION = 0  # what is read here is in all of them
ANSWER_MAX_BYTES = 64 << 20


def ask_coordinator(coordinator: Any, name: str) -> DescribedGroup | None:
    """`coordinator` has a host and a port. None where it does not answer, or answers something else."""
    request = request_frame(ConsumerGroupDescribeRequest(group_ids=[name]), VERSION, 1, "penstock-cli")
    try:
        with socket.create_connection((coordinator.host, coordinator.port), timeout=REACH_TIMEOUT_S) as connection:
            connection.sendall(request)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < size <= ANSWER_MAX_BYTES:
                return None
            _, response = read_response(ConsumerGroupDescribeResponse, _receive(connection, size), VERSION)
    except (OSError, DecodeError):
        return None
    return next((group for group in response.groups if group.group_id == name and not group.error_code), None)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise OSError("closed by the broker")
        parts += part
    return bytes(parts)


def places(assignment: Assignment) -> set[tuple[str, int]]:
    return {(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions}
