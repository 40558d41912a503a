"""What other languages' tests say to `python -m penstock.testing`, a line each: the name of a method and its arguments.

    fail_next Produce NOT_LEADER_OR_FOLLOWER times=3
    advance minutes=10
    produce orders {"total": 5} key=ada
    messages orders
    help

How it is parted is said in `words`. Every line is answered with one: `ok`, `ok` and what was asked for as JSON, or
`error` and what is wrong.
"""

from __future__ import annotations

import inspect
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from penstock.testing.arguments import BadArgument
from penstock.testing.kit import Kit
from penstock.testing.messages import StoredMessage
from penstock.testing.names import unknown
from penstock.testing.words import Word, words_of

COMMANDS = (
    "topic", "topics", "produce", "messages", "advance", "fail_next", "lose_answer", "delay", "clear_faults",
    "disconnect_clients", "stop", "kill", "start", "leader", "in_sync", "wait_until_in_sync",
)  # fmt: skip
HELP = "help"
TEXTS = {"name", "topic", "api", "error", "values", "key", "isolation"}  # arguments that are never numbers


def answer(kit: Kit, line: str) -> str:
    try:
        return _said(_carry_out(kit, words_of(line)))
    except Exception as error:
        return f"error {' '.join(str(error).split()) or type(error).__name__}"


def _carry_out(kit: Kit, words: list[Word]) -> Any:
    if not words:
        raise BadArgument("say what is to be done: help lists it")
    command, *given = words
    known = [name for name in COMMANDS if hasattr(kit, name)]
    if command.text == HELP:
        chosen = [word.text for word in given] or known
        return {name: usage(kit, _command(name, known)) for name in chosen}
    name = _command(command.text, known)
    method: Callable[..., Any] = getattr(kit, name)
    named = {word.name: _value(word.name, word.text) for word in given if word.name is not None}
    try:
        bound = inspect.signature(method).bind(*(word.text for word in given if word.name is None), **named)
    except TypeError as error:
        hint = "; a word with = in it that is no argument by name is put in quotes" if named else ""
        raise BadArgument(f"{error}: it is {usage(kit, name)}{hint}") from None
    for name, value in bound.arguments.items():
        if isinstance(value, str) and name not in named:
            bound.arguments[name] = _value(name, value)
    return method(*bound.args, **bound.kwargs)


def _command(name: str, known: list[str]) -> str:
    if name not in known:
        every = ", ".join([*known, HELP])
        raise BadArgument(f"{unknown(f'no command is called {name!r}', name, known)}; there are {every}")
    return name


def usage(kit: Kit, name: str) -> str:
    """How a command is said: `delay api seconds [times=] [topic=]`."""
    return " ".join([name, *map(_spoken, inspect.signature(getattr(kit, name)).parameters.values())])


def _spoken(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"{parameter.name}..."
    if parameter.kind is parameter.VAR_KEYWORD:
        return "[name=value...]"
    return parameter.name if parameter.default is parameter.empty else f"[{parameter.name}=]"


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
