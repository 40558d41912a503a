"""A message as text: by a format string, as JSON, or as a line for a terminal; and JSON as a message."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.problem import usage

if TYPE_CHECKING:
    from confluent_kafka import Message

Header = tuple[str, bytes | None]
Write = Callable[["Message"], bytes]

VERBS: dict[str, Write] = {
    "t": lambda message: (message.topic() or "").encode(),
    "p": lambda message: b"%d" % (message.partition() or 0),
    "o": lambda message: b"%d" % (message.offset() or 0),
    "k": lambda message: message.key() or b"",
    "v": lambda message: message.value() or b"",
    "K": lambda message: b"%d" % len(message.key() or b""),
    "V": lambda message: b"%d" % len(message.value() or b""),
    "h": lambda message: b",".join(name.encode() + b"=" + (value or b"") for name, value in headers_of(message)),
    "T": lambda message: b"%d" % message.timestamp()[1],
    "d": lambda message: _clock(message).encode(),
    "%": lambda message: b"%",
}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
VERBS_HELP = (
    "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms, %d time, %K %V lengths, %%"
)


def unescape(text: str) -> str:
    r"""`\n`, `\t`, `\r`, `\0`, `\\` and `\xHH`, as typed in a shell."""
    escape = r"\\(?:x([0-9a-fA-F]{2})|(.))"
    return re.sub(escape, lambda m: chr(int(m[1], 16)) if m[1] else ESCAPES.get(m[2], m[0]), text)


def compile_format(text: str) -> Write:
    pieces: list[bytes | Write] = []
    for literal, verb in re.findall(r"([^%]+)|%(.?)", text, re.DOTALL):
        if literal:
            pieces.append(unescape(literal).encode())
        elif verb in VERBS:
            pieces.append(VERBS[verb])
        else:
            raise usage(f"the format has an unknown verb '%{verb}'.", VERBS_HELP)
    return lambda message: b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in pieces)


def headers_of(message: Message) -> list[Header]:
    found: Any = message.headers() or []
    return list(found.items() if isinstance(found, dict) else found)


def to_json(message: Message) -> bytes:
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        **json_bytes("key", message.key()),
        **json_bytes("value", message.value()),
        "headers": [{"key": name, **json_bytes("value", value)} for name, value in headers_of(message)],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def json_bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    """Text stays text; bytes that are none go under another name, so that nothing is ever guessed."""
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


def to_terminal(colour: bool) -> Write:
    dim, bold, cyan, off = ("\x1b[2m", "\x1b[1m", "\x1b[36m", "\x1b[0m") if colour else ("", "", "", "")

    def write(message: Message) -> bytes:
        place = f"{message.topic()}[{message.partition()}]@{message.offset()}"
        line = f"{dim}{_clock(message)}{off} {cyan}{place}{off}"
        if (key := message.key()) is not None:
            line += f" {bold}{printable(key)}{off}"
        value = message.value()
        line += f" {dim}(no value){off}" if value is None else f" {printable(value)}"
        for name, content in headers_of(message):
            line += f" {dim}{printable(name.encode())}={printable(content or b'')}{off}"
        return line.encode() + b"\n"

    return write


def printable(content: bytes) -> str:
    """Text as it is; control characters and stray bytes escaped, since a message must not drive the terminal."""
    text = content.decode(errors="backslashreplace")
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _clock(message: Message) -> str:
    timestamp_ms = message.timestamp()[1]
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(sep=" ", timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Outgoing:
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def from_json(line: bytes) -> Outgoing:
    """What `to_json` wrote, or less: only what is there is used. Raises ValueError with the reason."""
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    if unknown := document.keys() - JSON_NAMES:
        raise ValueError(f"unknown name {min(unknown)!r}; known are {', '.join(sorted(JSON_NAMES))}")
    return Outgoing(
        key=_content(document, "key"),
        value=_content(document, "value"),
        headers=tuple(_headers(document.get("headers") or [])),
        partition=_whole(document, "partition", 2**31 - 1),
        timestamp_ms=_whole(document, "timestamp", 2**63 - 1),
    )


JSON_NAMES = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp", "topic", "offset"}
)


def _content(document: dict[str, Any], name: str) -> bytes | None:
    """A string is its UTF-8; any other JSON value is its own text."""
    if (encoded := document.get(f"{name}_base64")) is not None:
        return base64.b64decode(encoded, validate=True)
    content = document.get(name)
    if content is None:
        return None
    return (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode()


def _headers(found: Any) -> list[Header]:
    if isinstance(found, dict):
        return [(name, _content(found, name)) for name in found]
    if isinstance(found, list) and all(isinstance(header, dict) and "key" in header for header in found):
        return [(str(header["key"]), _content(header, "value")) for header in found]
    raise ValueError('headers are an object, or a list of {"key": …, "value": …}')


def _whole(document: dict[str, Any], name: str, most: int) -> int | None:
    number = document.get(name)
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and abs(number) <= most):
        return number
    raise ValueError(f"{name} is not a whole number up to {most}")
