"""A message for a handler that a test calls itself."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from penstock import Message
from penstock.client import message as chosen
from penstock.client import pure_messages
from penstock.testing import BadArgument, handlers, message

BOTH = [pytest.param(pure_messages, id="python")]
if chosen.COMPILED:
    BOTH.append(pytest.param(chosen, id="c"))


@pytest.fixture(params=BOTH, autouse=True)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("Message", "DecodedMessage"):
        monkeypatch.setattr(handlers, name, getattr(request.param, name))
    return request.param


def test_a_handler_is_given_what_its_deserializers_would_have_made(twin: Any) -> None:
    made = message({"total": 5}, key="ada", headers={"region": "eu", "trace": None}, topic="orders", attempt=3)
    assert isinstance(made, twin.DecodedMessage)
    assert (made.key, made.value, made.raw_key, made.raw_value) == ("ada", {"total": 5}, b"ada", b'{"total": 5}')
    assert (made.place, made.offset, made.attempt, made.poison) == (("orders", 0), 0, 3, None)
    assert (made.header("region"), made.headers) == ("eu", [("region", b"eu"), ("trace", None)])
    assert abs(made.timestamp.timestamp() - time.time()) < 60
    assert (copy.copy(made).attempt, copy.copy(made).value) == (3, {"total": 5})


def test_bytes_are_what_a_consumer_without_deserializers_hands_out(twin: Any) -> None:
    made = message(b"value", b"key", [("a", b"1"), ("a", "2")], partition=2, offset=7, timestamp_ms=1_700_000_000_123)
    assert type(made) is twin.Message
    assert (made.key, made.value, made.size, made.attempt) == (b"key", b"value", 8, 1)
    assert (made.place, made.offset, made.timestamp_ms) == (("topic", 2), 7, 1_700_000_000_123)
    assert made.headers == [("a", b"1"), ("a", b"2")]
    assert message().value is None


def test_what_no_bytes_can_be_made_of_is_a_value_all_the_same() -> None:
    value = object()
    made = message(value)
    assert (made.value, made.raw_value) == (value, None)


@pytest.mark.parametrize(
    "given",
    [{"partition": "0"}, {"offset": -1}, {"attempt": 0}, {"topic": None}, {"headers": 5}, {"timestamp_ms": "now"}],
)
def test_what_no_message_has_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        message(b"", **given)


def test_it_is_the_type_that_handlers_are_annotated_with() -> None:
    def handle(given: Message[str, dict[str, int]]) -> int:
        return given.value["total"]

    assert handle(message({"total": 5})) == 5
