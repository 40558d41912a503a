from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.problem import Problem
from penstock.cli.records import Outgoing, compile_format, from_json, to_json, to_terminal, unescape


class FakeMessage:
    def __init__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
        self._key, self._value, self._headers = key, value, headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 17

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_123


def message(key: bytes | None = b"k", value: bytes | None = b"v", **headers: bytes | None) -> Any:
    return FakeMessage(key, value, list(headers.items()))


def test_a_format_is_made_of_verbs_and_text() -> None:
    write = compile_format(r"%t %p %o %k=%v [%h] %T %K/%V 100%%\n")
    assert write(message(value=b"hello", a=b"1", b=None)) == b"orders 2 17 k=hello [a=1,b=] 1700000000123 1/5 100%\n"


def test_an_unknown_verb_is_refused() -> None:
    with pytest.raises(Problem, match="%q"):
        compile_format("%q")


def test_escapes_are_those_of_a_shell() -> None:
    assert unescape(r"a\tb\n\\n\x41\q") == "a\tb\n\\nA\\q"


def test_json_out_can_be_read_back_in() -> None:
    line = to_json(message(b"\xff\x00", '{"id": 1, "name": "é"}'.encode(), trace=b"x", raw=b"\xfe", none=None))
    assert from_json(line) == Outgoing(
        key=b"\xff\x00",
        value='{"id": 1, "name": "é"}'.encode(),
        headers=(("trace", b"x"), ("raw", b"\xfe"), ("none", None)),
        partition=2,
        timestamp_ms=1_700_000_000_123,
    )


def test_json_keeps_a_tombstone_apart_from_an_empty_value() -> None:
    assert from_json(to_json(message(value=None))).value is None
    assert from_json(to_json(message(value=b""))).value == b""


def test_json_in_may_be_brief_and_nest_json() -> None:
    line = b'{"value": {"id": 1}, "headers": {"a": "1", "b": null}}'
    assert from_json(line) == Outgoing(None, b'{"id": 1}', (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "not a JSON object"),
        ({"valeu": 1}, "unknown name 'valeu'"),
        ({"partition": "1"}, "partition is not a whole number"),
        ({"timestamp": 2**63}, "timestamp is not a whole number up to"),
        ({"headers": ["a"]}, "headers are"),
        ({"value_base64": "%"}, "base64"),
    ],
)
def test_json_that_is_no_message_is_refused(document: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(json.dumps(document).encode())


def test_a_message_can_not_drive_the_terminal() -> None:
    line = to_terminal(colour=False)(message(b"\x1b[2J", b"two\nlines \xff", h=b"\r"))
    assert line.count(b"\n") == 1
    assert b"\x1b" not in line
    assert rb"\x1b[2J two\nlines \xff h=\r" in line


def test_a_missing_value_is_said() -> None:
    assert b"(no value)" in to_terminal(colour=False)(message(value=None))
