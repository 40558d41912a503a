"""Requests that librdkafka has no call for: one at a time, on a connection of their own."""

from __future__ import annotations

import socket
import struct
from typing import Any, TypeVar

from penstock.cli.connection import REACH_TIMEOUT_S, REQUEST_TIMEOUT_S
from penstock.cli.problem import Problem
from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.schema import Message
from penstock.protocol.wire import DecodeError

ANSWER_MAX_BYTES = 64 << 20
TRANSACTION = 1  # a key type of FindCoordinator

M = TypeVar("M", bound=Message)

Address = tuple[str, int]


def ask(address: Address, request: Message, version: int, response: type[M], timeout_s: float = REQUEST_TIMEOUT_S) -> M:
    """Raises a Problem if the broker does not answer, or not what was asked."""
    assert RESPONSE_OF[type(request)] is response
    try:
        with socket.create_connection(address, timeout=REACH_TIMEOUT_S) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(request_frame(request, version, 1, "penstock-cli"))
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < size <= ANSWER_MAX_BYTES:
                raise DecodeError(f"an answer of {size} bytes")
            _, answer = read_response(response, _receive(connection, size), version)
    except (OSError, DecodeError) as error:
        host, port = address
        hint = "Does the broker serve this request? 'penstock version' shows what this command is."
        raise Problem(f"no answer from {host}:{port} to {type(request).__name__} ({error}).", hint) from error
    return answer


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise OSError("closed by the broker")
        parts += part
    return bytes(parts)


def coordinator_of(address: Address, transactional_id: str) -> Address:
    """Who knows of a transactional id."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
    found = ask(address, request, 4, FindCoordinatorResponse).coordinators[0]
    check(found.error_code, f"can't find the coordinator of {transactional_id!r}")
    return found.host, found.port


def check(code: int, doing: str, message: str | None = None) -> None:
    if code:
        error = ErrorCode(code)
        slow = error is ErrorCode.REQUEST_TIMED_OUT
        hint = "'penstock cluster status' tells whether brokers and ZooKeeper answer." if slow else None
        raise Problem(f"{doing}: {message or error.name.replace('_', ' ').lower()} ({error.name}).", hint)


def address_of(broker: Any) -> Address:
    """Of a broker in confluent-kafka's metadata, whose own types say that it has no address."""
    return broker.host, broker.port
