"""A connection to one broker that blocks: a worker of Spark has one thing to do at a time.

Requests may be sent ahead; answers come in the order of the requests. After any failure a connection is closed and of
no use, because nobody knows which answer would come next.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from penstock.pipeline.sasl import NotAuthenticated, Sasl, converse
from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.protocol.schema import Message
from penstock.protocol.wire import DecodeError

ANSWER_MAX_BYTES = 256 << 20
CONNECT_TIMEOUT_S = 10.0
RECEIVE_BUFFER_BYTES = 4 << 20
REACH_S = 5.0

M = TypeVar("M", bound=Message)

Address = tuple[str, int]


class Unreachable(OSError):
    """A broker that does not answer, or not what was asked."""


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is made safe. The context is made where it is used: it can't be sent to a worker."""

    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_host: bool = True
    sasl: Sasl | None = None

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        if not self.tls:
            return plain
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_host
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        return context.wrap_socket(plain, server_hostname=host)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = "penstock-spark"
    request_timeout_s: float = 30.0  # for one answer
    patience_s: float = 120.0  # for a request with all its retries
    security: Security = Security()
    reach_s: float | None = None  # for the first broker that answers at all, if not so patient

    def hasty(self) -> ClientSettings:
        """For a driver that plans: an address at which nobody is ought to be told at once."""
        return replace(self, reach_s=REACH_S)


class Connection:
    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self._settings = settings
        self._correlation = 0
        self._sent: deque[tuple[int, type[Message], int]] = deque()  # correlation id, what is answered, its version
        self._kept: dict[int, Any] = {}  # answers that came before whoever waits for them asked
        self._unwanted: set[int] = set()  # whose answers nobody waits for any more
        try:
            plain = socket.create_connection(address, timeout=min(CONNECT_TIMEOUT_S, settings.request_timeout_s))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            plain.settimeout(settings.request_timeout_s)
            self._socket = settings.security.wrap(plain, address[0])
        except OSError as error:
            raise Unreachable(f"{self.name}: {error}") from error
        self._newest = self._ask_versions()
        if settings.security.sasl is not None:
            self._authenticate(settings.security.sasl)

    @property
    def name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def close(self) -> None:
        self._socket.close()

    def _ask_versions(self) -> dict[int, int]:
        request = ApiVersionsRequest(client_software_name="penstock-spark", client_software_version="1")
        answer: ApiVersionsResponse = self.ask(request, 3)
        if answer.error_code:
            self.close()
            raise Unreachable(f"{self.name} does not say what it speaks (error {answer.error_code})")
        return {each.key: each.max_version for each in answer.api_keys}

    def _authenticate(self, sasl: Sasl) -> None:
        request = SaslHandshakeRequest(mechanism=sasl.mechanism)
        answer = self.ask(request, self.newest(SaslHandshakeRequest, 1))
        try:
            if answer.error_code:
                taken = " and ".join(answer.mechanisms) or "nothing"
                raise NotAuthenticated(f"it takes {taken}, and no {sasl.mechanism}")
            converse(sasl.conversation(), self._one_step)
        except NotAuthenticated as error:
            self.close()
            raise NotAuthenticated(f"{self.name} does not let {sasl.username!r} in: {error}") from error

    def _one_step(self, said: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=said)
        answer = self.ask(request, self.newest(SaslAuthenticateRequest, 2))
        if answer.error_code:
            raise NotAuthenticated(answer.error_message or ErrorCode(answer.error_code).name)
        return bytes(answer.auth_bytes)

    def newest(self, request: type[Message], at_most: int) -> int:
        """The version to speak: the newest that both sides know, and not above what the caller can handle."""
        theirs = self._newest.get(request.api_key)
        if theirs is None:
            raise Unreachable(f"{self.name} has no {request.__name__}")
        return min(theirs, at_most)

    def send(self, request: Message, version: int) -> int:
        """The number by which its answer is received. Several may share a connection, and each waits for its own."""
        self._correlation += 1
        try:
            self._socket.sendall(request_frame(request, version, self._correlation, self._settings.client_id))
        except OSError as error:
            raise self._failed(error) from error
        self._sent.append((self._correlation, RESPONSE_OF[type(request)], version))
        return self._correlation

    def receive(self, number: int) -> Any:
        while number not in self._kept:
            if not self._sent or self._sent[0][0] > number:
                raise Unreachable(f"{self.name}: request {number} has no answer any more")
            came, answer = self._next()
            if came in self._unwanted:
                self._unwanted.discard(came)
            else:
                self._kept[came] = answer
        return self._kept.pop(number)

    def discard(self, number: int) -> None:
        """Nobody will receive it."""
        if self._kept.pop(number, None) is None:
            self._unwanted.add(number)

    def _next(self) -> tuple[int, Any]:
        """Brokers answer in the order in which they were asked."""
        expected, response, version = self._sent[0]
        try:
            (size,) = struct.unpack(">i", self._read(4))
            if not 0 < size <= ANSWER_MAX_BYTES:
                raise DecodeError(f"an answer of {size} bytes")
            correlation, answer = read_response(response, memoryview(self._read(size)), version)
            if correlation != expected:
                raise DecodeError(f"the answer to request {correlation} where {expected} was due")
        except (OSError, DecodeError) as error:
            raise self._failed(error) from error
        self._sent.popleft()
        return expected, answer

    def ask(self, request: Message, version: int) -> Any:
        return self.receive(self.send(request, version))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            read = self._socket.recv_into(view[at:])
            if not read:
                raise OSError("closed by the broker")
            at += read
        return data

    def _failed(self, error: Exception) -> Unreachable:
        self.close()
        return Unreachable(f"{self.name}: {error}")
