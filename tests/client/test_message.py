"""A message as it was read: the same in C, where that was compiled, as in Python."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Message as RawMessage

from penstock.client import message as chosen
from penstock.client import pure_messages
from penstock.client.errors import DeserializationError

BOTH = [pytest.param(pure_messages, id="python")]
if chosen.COMPILED:
    BOTH.append(pytest.param(chosen, id="c"))

# Another interpreter of the process, as mod_wsgi has them, comes and goes.
OTHER_INTERPRETER = """
try:
    import _xxsubinterpreters as interpreters
    make = lambda: interpreters.create(isolated=False)
except ImportError:
    import _interpreters as interpreters
    make = lambda: interpreters.create("legacy")
import gc, sys
from confluent_kafka import Message as RawMessage
from penstock.client import message
read = message.Message(RawMessage(topic="orders", partition=1, offset=7, value=b"", timestamp=(1, 5)))
other = make()
code = "from penstock.client import message; assert not message.COMPILED; message.Message"
assert not interpreters.run_string(other, f"import sys; sys.path[:] = {sys.path!r}; {code}")
interpreters.destroy(other)
gc.collect()
print(message.COMPILED, read, read.timestamp_ms, read.timestamp.year)
del sys.modules["penstock.client._messages"]
from penstock.client import _messages
print(_messages.Message is message.Message)
"""

both = pytest.mark.parametrize("twin", BOTH)


def raw(offset: int = 7, partition: int = 1, topic: str = "orders", **more: Any) -> RawMessage:
    given: dict[str, Any] = {"key": b"k", "value": b"value", "timestamp": (1, 1_700_000_000_123), **more}
    return RawMessage(topic=topic, partition=partition, offset=offset, **given)


@both
def test_a_message_says_what_was_read(twin: Any) -> None:
    read = raw(headers=[("a", b"1"), ("a", b"2"), ("b", None)])
    message = twin.Message(read)
    assert (message.topic, message.partition, message.offset, message.place) == ("orders", 1, 7, ("orders", 1))
    assert (message.key, message.value, message.raw_key, message.raw_value) == (b"k", b"value", b"k", b"value")
    assert (message.poison, message.attempt, message.size) == (None, 1, 6)
    assert message.headers == [("a", b"1"), ("a", b"2"), ("b", None)]
    assert (message.header("a"), message.header("b"), message.header("c")) == ("2", None, None)
    assert message.timestamp_ms == 1_700_000_000_123
    assert message.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert message.raw is read
    assert repr(message) == "Message(orders[1] at 7, 6 bytes)"


@both
def test_a_tombstone_has_neither_key_nor_value(twin: Any) -> None:
    message = twin.Message(raw(key=None, value=None))
    assert (message.key, message.value, message.size, message.headers) == (None, None, 0, [])


@both
def test_what_a_deserializer_made_is_beside_the_bytes(twin: Any) -> None:
    message = twin.DecodedMessage(raw(), "key", {"made": 1})
    assert (message.key, message.value, message.raw_key, message.raw_value) == ("key", {"made": 1}, b"k", b"value")
    assert twin.DecodedMessage(raw(), None, None).value is None
    assert isinstance(message, twin.Message)


@both
def test_a_poisoned_message_raises_when_it_is_asked(twin: Any) -> None:
    message = twin.DecodedMessage(raw(), None, None)
    poison = DeserializationError("it can't be read.", "Look.", message)
    message.poisoned(poison)
    assert message.poison is poison
    assert isinstance(message, twin.Message)
    for name in ("key", "value"):
        with pytest.raises(DeserializationError) as raised:
            getattr(message, name)
        assert raised.value is poison
    assert (message.raw_value, message.offset) == (b"value", 7)


def pickled(given: Any) -> Any:
    return pickle.loads(pickle.dumps(given))


@both
@pytest.mark.parametrize("again", [pickled, copy.copy, copy.deepcopy])
def test_a_message_can_be_given_to_another_process(twin: Any, again: Callable[[Any], Any]) -> None:
    read = raw(headers=[("a", b"1")])
    plain, made = again(twin.Message(read)), again(twin.DecodedMessage(read, None, {"made": 1}))
    assert (plain.key, plain.value, made.key, made.value) == (b"k", b"value", None, {"made": 1})
    for message in (plain, made):
        assert isinstance(message, twin.Message)
        assert (message.place, message.offset, message.headers) == (("orders", 1), 7, [("a", b"1")])
        assert (message.raw_key, message.raw_value, message.poison) == (b"k", b"value", None)


@both
def test_a_poisoned_message_and_its_error_lead_to_each_other_in_another_process(twin: Any) -> None:
    message = twin.DecodedMessage(raw(), None, None)
    message.poisoned(DeserializationError("it can't be read.", "Look.", message))
    for poison in (pickled(message).poison, pickled(message.poison), copy.copy(message).poison):
        assert str(poison) == "it can't be read. Look."
        with pytest.raises(DeserializationError):
            _ = poison.message.value
        assert poison.message.raw_value == b"value"
    assert (same := pickled(message)) is same.poison.message


@both
def test_messages_that_lead_to_themselves_are_collected(twin: Any) -> None:
    """And those that are made in their place have nothing of them."""

    class Made:
        message: Any = None

    traces = []
    for _ in range(50):
        made, poisoned = Made(), twin.DecodedMessage(raw(), None, None)
        made.message = twin.DecodedMessage(raw(), None, made)
        poison = DeserializationError("poison", "", poisoned)
        poisoned.poisoned(poison)
        traces += [weakref.ref(made), weakref.ref(poison)]
    del made, poisoned, poison
    gc.collect()
    assert [trace for trace in traces if trace() is not None] == []
    again = [twin.Message(raw(offset)) for offset in range(100)]
    assert [(message.offset, message.value, message.key, message.poison) for message in again] == [
        (offset, b"value", b"k", None) for offset in range(100)
    ]


@both
def test_a_message_of_something_like_what_confluent_kafka_reads(twin: Any) -> None:
    """As handlers get it when it is tried again: what it says about itself counts."""

    class Like:
        attempt = 3

        def __getattr__(self, name: str) -> Any:
            return lambda: name

    message = twin.Message(Like())
    assert (message.topic, message.offset, message.key, message.value, message.attempt) == (
        "topic",
        "offset",
        "key",
        "value",
        3,
    )


class Asked:
    """In place of a stream: what is asked of it, and what it gives."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.times = 0
        self.is_closed = False

    def find(self) -> Any:
        self.times += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


def granted(twin: Any, count: int, offsets: range, *answers: Any) -> tuple[Any, Any, Any, Asked]:
    hand, grant, asked = twin.Hand(), twin.Grant(), Asked(*answers)
    hand.left.extend(raw(offset) for offset in offsets)
    grant.count, grant.looked_s = count, time.monotonic()
    grant.due_s = grant.looked_s + 60
    return twin.Steps(hand, grant, asked), hand, grant, asked


@both
def test_what_is_granted_is_handed_out_from_the_end_without_asking(twin: Any) -> None:
    steps, hand, grant, asked = granted(twin, 20, range(30), None)
    assert iter(steps) is steps
    assert not hand.in_hand
    assert [next(steps).offset for _ in range(20)] == list(range(29, 9, -1))
    assert (hand.in_hand, grant.count, len(hand.left), asked.times) == (True, 0, 10, 0)
    assert list(steps) == []
    assert asked.times == 1
    steps.close()
    assert asked.is_closed


@both
@pytest.mark.parametrize("reason", ["stopping", "empty", "due", "slow"])
def test_somebody_is_asked_where_that_is_not_all(twin: Any, reason: str) -> None:
    found = object()
    steps, hand, grant, asked = granted(twin, 16, range(0 if reason == "empty" else 16), found, ValueError("no"))
    hand.stopping = reason == "stopping"
    if reason == "due":
        grant.due_s = grant.looked_s
    if reason == "slow":
        grant.looked_s -= 60
    assert next(steps) is found
    with pytest.raises(ValueError, match="no"):
        next(steps)
    assert (asked.times, grant.count) == (2, 16)


@both
def test_steps_that_nobody_has_any_more_let_go_of_their_stream(twin: Any) -> None:
    steps, _, _, asked = granted(twin, 1, range(1), None)
    asked.steps = steps  # type: ignore[attr-defined]  # a circle
    gone = weakref.ref(asked)
    del steps, asked
    gc.collect()
    assert gone() is None


@both
def test_an_error_is_found_among_messages(twin: Any) -> None:
    sound = [raw(offset) for offset in range(3)]
    error = RawMessage(topic="orders", partition=0, offset=0, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert not twin.has_errors([])
    assert not twin.has_errors(sound)
    assert twin.has_errors([*sound, error])
    assert twin.has_errors([error, *sound])


@both
def test_the_last_message_of_each_place(twin: Any) -> None:
    batch = [raw(0, 300), raw(5, 300), raw(1, 2), raw(6, 300), raw(8, 300, "other"), raw(2, 2)]
    lasts = twin.last_of(batch, None)
    assert lasts == {("orders", 300): batch[3], ("orders", 2): batch[5], ("other", 300): batch[4]}
    assert twin.last_of(batch[:4], "orders") == {("orders", 300): batch[3], ("orders", 2): batch[2]}
    assert twin.last_of([], None) == twin.last_of([], "orders") == {}


@both
def test_an_error_that_was_let_go_needs_no_collector(twin: Any) -> None:
    message = twin.DecodedMessage(raw(), None, None)
    poison = DeserializationError("poison", "", message)
    message.poisoned(poison)
    trace = weakref.ref(poison)
    gc.disable()
    try:
        poison.let_go()
        del message, poison
        assert trace() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not chosen.COMPILED, reason="in Python each interpreter has its own")
def test_another_interpreter_takes_nothing_from_messages_when_it_ends() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OTHER_INTERPRETER]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("True Message(orders[1] at 7, 0 bytes) 5 1970\nTrue\n", "")


@both
def test_what_is_no_exception_poisons_nothing(twin: Any) -> None:
    message, poisoned = twin.DecodedMessage(raw(), None, None), twin.DecodedMessage(raw(), None, None)
    with pytest.raises(TypeError):
        message.poisoned(5)
    assert message.value is None
    poisoned.poisoned(DeserializationError("poison", "", poisoned))
    message.__class__ = type(poisoned)
    with suppress(AttributeError):  # in C it is of the kind that raises, and has nothing to raise
        assert message.value is None


@pytest.mark.skipif(not chosen.COMPILED, reason="there is one of them")
@pytest.mark.parametrize("name", [name for name in dir(pure_messages.Message) if not name.startswith("_")])
def test_help_says_the_same_of_both(name: str) -> None:
    if name != "raw":
        assert getattr(chosen.Message, name).__doc__ == getattr(pure_messages.Message, name).__doc__
