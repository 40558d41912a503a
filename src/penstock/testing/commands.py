"""What other languages' tests say to `python -m penstock.testing`, a line each: the name of a method and its arguments.

    fail_next Produce NOT_LEADER_OR_FOLLOWER times=3
    advance minutes=10
    produce orders '{"total": 5}'
    messages orders

Words are parted, and quoted, as in a shell. Every line is answered with one: `ok`, `ok` and what was asked for as JSON,
or `error` and what is wrong.
"""

from __future__ import annotations

import inspect
import json
import shlex
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from penstock.testing.kit import Kit
from penstock.testing.messages import StoredMessage
from penstock.testing.names import unknown

COMMANDS = (
    "topic", "topics", "produce", "messages", "advance", "fail_next", "lose_answer", "delay", "clear_faults",
    "disconnect_clients", "stop", "kill", "start", "leader", "in_sync", "wait_until_in_sync",
)  # fmt: skip
TEXTS = {"name", "topic", "api", "error", "values", "key", "isolation"}  # arguments that are never numbers


def answer(kit: Kit, line: str) -> str:
    try:
        return _said(_carry_out(kit, shlex.split(line)))
    except Exception as error:
        return f"error {' '.join(str(error).split()) or type(error).__name__}"


def _carry_out(kit: Kit, words: list[str]) -> Any:
    if not words:
        raise ValueError("say what is to be done")
    known = [name for name in COMMANDS if hasattr(kit, name)]
    if words[0] not in known:
        raise unknown(f"no command is called {words[0]!r}", words[0], known)
    method: Callable[..., Any] = getattr(kit, words[0])
    positional: list[str] = []
    named: dict[str, Any] = {}
    for word in words[1:]:
        name, is_named, value = word.partition("=")
        if is_named and name.isidentifier():
            named[name] = _value(name, value)
        else:
            positional.append(word)
    bound = inspect.signature(method).bind(*positional, **named)
    for name, value in bound.arguments.items():
        if isinstance(value, str) and name not in named:
            bound.arguments[name] = _value(name, value)
    return method(*bound.args, **bound.kwargs)


def _value(name: str, text: str) -> Any:
    if name in TEXTS:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _said(result: Any) -> str:
    return "ok" if result is None else f"ok {json.dumps(_plain(result))}"


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return [_plain(each) for each in result]
    if isinstance(result, StoredMessage):
        return {
            "topic": result.topic, "partition": result.partition, "offset": result.offset,
            "timestamp_ms": result.timestamp_ms, "key": _readable(result.key), "value": _readable(result.value),
            "headers": [[name, _readable(value)] for name, value in result.headers],
        }  # fmt: skip
    return result


def _readable(data: bytes | None) -> Any:
    """Text where it is text, else an object that has it in base 64."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data or b"").decode()}
