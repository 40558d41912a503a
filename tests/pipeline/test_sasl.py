"""Who a connection speaks for, against a broker that is nothing but its door."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from penstock.pipeline.brokers import Brokers
from penstock.pipeline.options import read_options
from penstock.pipeline.sasl import NotAuthenticated, scram
from penstock.protocol.apis import REQUESTS
from penstock.protocol.codec import decode
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import read_request_header, response_frame
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.protocol.schema import Message

USER, PASSWORD = "ann,=", 'pen"cil'
SALT, ROUNDS = b"salt", 4096


@dataclass
class Door:
    """Lets in whoever knows the password, by one mechanism."""

    mechanism: str
    port: int = 0
    said: list[str] = field(default_factory=list)  # of a conversation in SCRAM, what was said last
    let_in: bool = False

    def answer(self, request: Message) -> Message:
        match request:
            case ApiVersionsRequest():
                keys = [ApiVersion(key=each.api_key, min_version=0, max_version=1) for each in REQUESTS.values()]
                return ApiVersionsResponse(api_keys=keys)
            case SaslHandshakeRequest():
                error = ErrorCode.NONE if request.mechanism == self.mechanism else ErrorCode.UNSUPPORTED_SASL_MECHANISM
                return SaslHandshakeResponse(error_code=error, mechanisms=[self.mechanism])
            case SaslAuthenticateRequest():
                said = bytes(request.auth_bytes)
                answer = self.plain(said) if self.mechanism == "PLAIN" else self.scram(said.decode())
                if answer is None:
                    return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
                return SaslAuthenticateResponse(auth_bytes=answer.encode())
        assert isinstance(request, MetadataRequest)
        assert self.let_in, "asked before it was let in"
        return MetadataResponse()

    def plain(self, said: bytes) -> str | None:
        self.let_in = said == f"\0{USER}\0{PASSWORD}".encode()
        return "" if self.let_in else None

    def scram(self, said: str) -> str | None:
        digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self.mechanism]
        if not self.said:
            bare = said.removeprefix("n,,")
            nonce = bare.partition(",r=")[2] + "more"
            self.said = [bare, f"r={nonce},s={base64.b64encode(SALT).decode()},i={ROUNDS}"]
            return self.said[1]
        last, _, proof = said.rpartition(",p=")
        signed = ",".join([*self.said, last]).encode()
        salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), SALT, ROUNDS)
        key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        self.let_in = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature)) == key
        if not self.let_in:
            return None
        return "v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)).decode()


def serve(door: Door, listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as requests:
        while size := requests.read(4):
            frame = memoryview(requests.read(struct.unpack(">i", size)[0]))
            header = read_request_header(frame)
            request = decode(REQUESTS[header.api_key], frame[header.body_position :], header.api_version)
            answer = response_frame(door.answer(request), header.api_version, header.correlation_id)
            connection.sendall(b"".join(answer))


@pytest.fixture
def door() -> Iterator[Callable[[str], Door]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def open_door(mechanism: str) -> Door:
            found = Door(mechanism, listener.getsockname()[1])
            threading.Thread(target=serve, args=(found, listener), daemon=True).start()
            return found

        yield open_door


def brokers(door: Door, mechanism: str, password: str) -> Brokers:
    escaped = password.replace('"', '\\"')
    given = {
        "kafka.bootstrap.servers": f"127.0.0.1:{door.port}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'x.LoginModule required username="{USER}" password="{escaped}";',
        "subscribe": "t",
    }
    return Brokers(read_options(given, streaming=False).client)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_whoever_knows_the_password_is_let_in(door: Callable[[str], Door], mechanism: str) -> None:
    there = door(mechanism)
    with brokers(there, mechanism, PASSWORD) as cluster:
        assert cluster.topics(["t"]) == {}
    assert there.let_in


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_whoever_does_not_is_told_at_once(door: Callable[[str], Door], mechanism: str) -> None:
    with (
        brokers(door(mechanism), mechanism, "guessed") as cluster,
        pytest.raises(NotAuthenticated, match="does not let 'ann,=' in: SASL_AUTHENTICATION_FAILED"),
    ):
        cluster.topics(["t"])


def test_a_mechanism_that_the_broker_does_not_take_is_named(door: Callable[[str], Door]) -> None:
    with (
        brokers(door("SCRAM-SHA-512"), "PLAIN", PASSWORD) as cluster,
        pytest.raises(NotAuthenticated, match="it takes SCRAM-SHA-512, and no PLAIN"),
    ):
        cluster.topics(["t"])


NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_scram_says_what_its_rfc_says() -> None:
    """RFC 7677, section 3."""
    conversation = scram("sha256", "user", "pencil", NONCE)
    assert next(conversation) == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert conversation.send(CHALLENGE.encode()).endswith(f",p={proof}".encode())
    with pytest.raises(StopIteration):
        conversation.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge", [CHALLENGE.replace(NONCE, "another"), CHALLENGE.replace("4096", "1"), "e=unknown-user"]
)
def test_a_challenge_that_is_not_to_be_trusted_is_not_answered(challenge: str) -> None:
    conversation = scram("sha256", "user", "pencil", NONCE)
    next(conversation)
    with pytest.raises(NotAuthenticated):
        conversation.send(challenge.encode())


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    conversation = scram("sha256", "user", "pencil", NONCE)
    next(conversation)
    conversation.send(CHALLENGE.encode())
    with pytest.raises(NotAuthenticated, match="does not know the password"):
        conversation.send(b"v=" + base64.b64encode(bytes(32)))
