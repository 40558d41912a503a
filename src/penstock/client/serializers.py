"""Objects to bytes and back: plain callables, and short names for the usual ones.

A serializer gets a value that is not None and returns bytes; a deserializer does the reverse. None is never given to
either: it is the absence of a key, or the tombstone of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.client.errors import DeserializationError, SerializationError, SettingsError, near_miss
from penstock.client.message import DecodedMessage, Message

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]

_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes:
    return _TO_JSON(value).encode()


def from_json(data: bytes) -> Any:
    return json.loads(data)


def to_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"it is {type(value).__name__}, not str")
    return value.encode()


def from_text(data: bytes) -> str:
    return data.decode()


# None: bytes as they are, which no function need be called for.
_SERIALIZERS: dict[str, Serializer | None] = {"json": to_json, "text": to_text, "bytes": None}
_DESERIALIZERS: dict[str, Deserializer | None] = {"json": from_json, "text": from_text, "bytes": None}


def serializer(given: Any, option: str) -> Serializer | None:
    """What was given to a producer as `key` or `value`: a callable, a short name, or nothing. It is Any, as in what
    follows, because compiled code would refuse all else by itself, with a bare TypeError."""
    found: Serializer | None = _find(given, option, _SERIALIZERS)
    return found


def deserializer(given: Any, option: str) -> Deserializer | None:
    found: Deserializer | None = _find(given, option, _DESERIALIZERS)
    return found


def _find(given: Any, option: str, known: dict[str, Any]) -> Any:
    if given is None or callable(given):
        return given
    if isinstance(given, str) and given in known:
        return known[given]
    near = near_miss(given, known) if isinstance(given, str) else ""
    raise SettingsError(
        f"{option}={given!r} is no serializer.", f"{near} Give a callable, or one of {_all(known)}.".strip()
    )


def _all(known: dict[str, Any]) -> str:
    return ", ".join(repr(name) for name in known)


def serialize(serializer: Callable[[Any], Any], value: Any, what: str, topic: str) -> bytes:
    """The bytes of what is to be sent. Whatever the serializer raises becomes a `SerializationError`."""
    try:
        data = serializer(value)
    except Exception as failure:
        raise SerializationError(f"the {what} of a message to {topic!r} can't be serialized: {failure}.") from failure
    if not isinstance(data, bytes):
        name = type(data).__name__
        raise SerializationError(f"the serializer of the {what} gave {name} instead of bytes, for topic {topic!r}.")
    return data


def wrong_type(value: Any, key: Any, headers: Any, topic: str) -> SerializationError:
    """For what confluent-kafka takes for neither bytes nor text."""
    for what, given in (("value", value), ("key", key)):
        if given is not None and not isinstance(given, (bytes, str)):
            return SerializationError(
                f"the {what} of a message to {topic!r} is {type(given).__name__}, and there is no serializer for it.",
                f"Give the producer one: Producer({what}='json'), or a callable that returns bytes.",
            )
    return SerializationError(
        f"the headers of a message to {topic!r} can't be sent: {headers!r}.",
        "Headers are a dict, or a list of pairs, from str to str, bytes or None.",
    )


def not_text(failure: UnicodeEncodeError, value: Any, key: Any, topic: str) -> SerializationError:
    """For text that has no UTF-8."""
    what = next(
        (
            name
            for name, given in (("value", value), ("key", key))
            if isinstance(given, str) and given == failure.object
        ),
        "headers",
    )
    return SerializationError(
        f"the {what} of a message to {topic!r} can't be sent as UTF-8: {failure}.",
        "Surrogates stand for bytes that are no text: os.fsencode(name) gives those of a file's name.",
    )


class Decoder:
    """Makes messages of what was read, with the deserializers of one consumer."""

    def __init__(self, read_key: Deserializer | None, read_value: Deserializer | None) -> None:
        self._read_key = read_key
        self._read_value = read_value
        self.is_plain = read_key is None and read_value is None  # then `Message(raw)` is all there is to do

    def decode(self, raw: Any) -> Message[Any, Any]:
        if self.is_plain:
            return Message(raw)
        key, value = raw.key(), raw.value()
        what = "key"
        try:
            if self._read_key is not None and key is not None:
                key = self._read_key(key)
            what = "value"
            if self._read_value is not None and value is not None:
                value = self._read_value(value)
        except Exception as failure:
            return self._poisoned(raw, what, failure)
        return DecodedMessage(raw, key, value)

    def _poisoned(self, raw: Any, what: str, failure: Exception) -> Message[Any, Any]:
        place = f"{raw.topic()}[{raw.partition()}] at offset {raw.offset()}"
        message: DecodedMessage[Any, Any] = DecodedMessage(raw, None, None)
        poison = DeserializationError(
            f"the {what} of the message in {place} can't be read: {type(failure).__name__}: {failure}.",
            "Its bytes are message.raw_key and message.raw_value. Iterate again to go on behind it (in a transaction: "
            "within its block), or use a handler with dead_letter=True, which puts such messages aside.",
            message,
        )
        poison.__cause__ = failure
        message.poisoned(poison)
        return message
