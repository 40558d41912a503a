"""Who a connection speaks for: SASL with PLAIN (RFC 4616) or SCRAM (RFC 5802, 7677), as Kafka's clients do it.

A mechanism is a conversation: it yields what is to be sent, is given what the broker answered, and ends when it is
content. What a broker says without knowing the password is not believed, if the mechanism can tell.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from penstock.pipeline.problem import PipelineError

PLAIN = "PLAIN"
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM)
ITERATIONS_MIN = 4096  # as in Kafka: with fewer a password is too cheap to guess

Conversation = Generator[bytes, bytes, None]


class NotAuthenticated(PipelineError):
    """To try again with the same name and password would not help."""


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str
    username: str
    password: str = field(repr=False)

    def conversation(self) -> Conversation:
        if self.mechanism == PLAIN:
            return _plain(self.username, self.password)
        return scram(SCRAM[self.mechanism], self.username, self.password, base64.b64encode(os.urandom(24)).decode())


def _plain(username: str, password: str) -> Conversation:
    yield b"\0".join((b"", username.encode(), password.encode()))


def scram(digest: str, username: str, password: str, nonce: str) -> Conversation:
    name = username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    first = (yield f"n,,{bare}".encode()).decode()
    given = _fields(first)
    if not given["r"].startswith(nonce) or int(given["i"]) < ITERATIONS_MIN:
        raise NotAuthenticated(f"the broker's challenge can't be trusted: {first}")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(given["s"]), int(given["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={given['r']}"  # biws: no channel is bound
    signed = f"{bare},{first},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature))
    answer = _fields((yield f"{last},p={base64.b64encode(proof).decode()}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(base64.b64decode(answer["v"]), expected):
        raise NotAuthenticated("the broker does not know the password that it asks for")


def _fields(text: str) -> dict[str, str]:
    """Such as r=…,s=…,i=4096. Raises NotAuthenticated where it says what is wrong instead."""
    found = dict(each.split("=", 1) for each in text.split(",") if "=" in each)
    if "e" in found:
        raise NotAuthenticated(found["e"])
    return found


def converse(conversation: Conversation, ask: Callable[[bytes], bytes]) -> None:
    """Carries to and fro what the two say."""
    try:
        said = next(conversation)
        while True:
            said = conversation.send(ask(said))
    except StopIteration:
        return
    except (KeyError, ValueError) as error:
        raise NotAuthenticated(f"the broker does not speak the mechanism: {error!r}") from error
