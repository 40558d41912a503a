"""A broker behind a door that asks for a name and a password, as Penstock itself does not."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.protocol.apis import REQUESTS, RESPONSE_OF
from penstock.protocol.codec import decode
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import read_request_header, read_response, response_frame
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.protocol.schema import Message

NAME, PASSWORD = "ann", "pencil"
SETTINGS = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": NAME,
    "kafka.sasl.password": PASSWORD,
}
ARGUMENTS = [each for name, value in SETTINGS.items() for each in ("--set", f"{name}={value}")]


@contextmanager
def gate(bootstrap: str) -> Iterator[str]:
    """The address of the door. Whoever asks for anything without the password finds the connection closed."""
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:  # it is over
                    return
                threading.Thread(target=serve, args=(client, (host, int(port)), listener), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)  # which wakes whoever accepts


def serve(client: socket.socket, broker: tuple[str, int], listener: socket.socket) -> None:
    door: tuple[str, int] = listener.getsockname()
    let_in = False
    with (
        client,
        socket.create_connection(broker) as behind,
        client.makefile("rb") as asked,
        behind.makefile("rb") as said,
    ):
        while frame := read_frame(asked):
            header = read_request_header(memoryview(frame))
            kind, version = REQUESTS[header.api_key], header.api_version
            if kind in (SaslHandshakeRequest, SaslAuthenticateRequest):
                request: Any = decode(kind, memoryview(frame)[header.body_position :], version)
                let_in = let_in or getattr(request, "auth_bytes", None) == f"\0{NAME}\0{PASSWORD}".encode()
                reply(client, answer(kind, let_in), version, header.correlation_id)
                continue
            if not let_in and kind is not ApiVersionsRequest:
                return
            behind.sendall(struct.pack(">i", len(frame)) + frame)
            back = read_frame(said)
            if kind in (ApiVersionsRequest, MetadataRequest, FindCoordinatorRequest):
                _, response = read_response(RESPONSE_OF[kind], back, version)
                reply(client, at_the_door(response, door), version, header.correlation_id)
            else:
                client.sendall(struct.pack(">i", len(back)) + back)


def read_frame(stream: Any) -> bytes:
    size = stream.read(4)
    return stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b""


def reply(client: socket.socket, message: Message, version: int, correlation_id: int) -> None:
    client.sendall(b"".join(response_frame(message, version, correlation_id)))


def answer(kind: type[Message], let_in: bool) -> Message:
    if kind is SaslHandshakeRequest:
        return SaslHandshakeResponse(mechanisms=["PLAIN"])
    return SaslAuthenticateResponse(error_code=ErrorCode.NONE if let_in else ErrorCode.SASL_AUTHENTICATION_FAILED)


def at_the_door(response: Any, door: tuple[str, int]) -> Message:
    """With the door's address in place of every broker's."""
    if hasattr(response, "api_keys"):
        sasl = [SaslHandshakeRequest, SaslAuthenticateRequest]
        response.api_keys += [ApiVersion(key=each.api_key, min_version=0, max_version=1) for each in sasl]
        return response
    for each in (*getattr(response, "brokers", ()), *getattr(response, "coordinators", ())):
        each.host, each.port = door
    return response
