"""Random values of any declared message: nulls, empties, extremes and the lengths at which encodings change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.protocol.schema import OWN_TAGS_FROM, Message, Struct, Type

CONSUMER_PROTOCOL: list[type[Message]] = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
MESSAGES: list[type[Message]] = [*RESPONSE_OF.keys(), *RESPONSE_OF.values(), *CONSUMER_PROTOCOL]

INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
TEXTS = ["", "a", "orders", "naïve-日本語-🚰", "x" * 126, "x" * 127, "x" * 128, "y" * 300]
BLOBS = [b"", b"\0", b"\xff\x80", bytes(range(256)), b"z" * 16_400]

# Replaces the drawn value of a field, by its name, for an oracle that can't hold every value.
Narrow = Callable[[str, Any, random.Random], Any]


def carried_fields(cls: type[Struct], version: int) -> list[str]:
    """Those that Kafka has too."""
    return [name for name, f in cls.fields.items() if version in f.versions and f.tag < OWN_TAGS_FROM]


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions.first, cls.versions.last + 1)


def every_message_version(messages: list[type[Message]], *, flexible_only: bool = False) -> Any:
    """Parametrises a test over every version of each message."""
    cases = [(cls, v) for cls in messages for v in versions_of(cls) if v in cls.flexible or not flexible_only]
    return pytest.mark.parametrize(("cls", "version"), cases, ids=[f"{cls.__name__}-v{v}" for cls, v in cases])


def random_messages(cls: type[Message], version: int, count: int, narrow: Narrow | None = None) -> list[Any]:
    """The same ones in every run: first the one with every default, then `count` others."""
    rng = random.Random(f"{cls.__name__} v{version}")
    return [cls(), *(_struct(cls, version, rng, narrow) for _ in range(count))]


def _struct(cls: type[Struct], version: int, rng: random.Random, narrow: Narrow | None) -> Any:
    values = {}
    for name in carried_fields(cls, version):
        f = cls.fields[name]
        if version in f.nullable and rng.random() < 0.3:
            value = None
        elif version in f.tagged and rng.random() < 0.5:
            continue
        else:
            value = _value(f.type, version, rng, narrow)
            while f.type.name == "struct" and version in f.tagged and value == f.type.element():
                value = _value(f.type, version, rng, narrow)
        values[name] = narrow(name, value, rng) if narrow else value
    return cls(**values)


def _value(t: Type, version: int, rng: random.Random, narrow: Narrow | None) -> Any:
    if t.name == "bool":
        return rng.random() < 0.5
    if t.name == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16), b"\xff" * 16])
    if t.format:
        half = 1 << (INTEGER_BITS[t.format] - 1)
        return rng.choice([0, 1, -1, half - 1, -half, rng.randrange(-half, half), rng.randrange(-half, half)])
    if t.name == "string":
        return rng.choice(TEXTS)
    if t.name in ("bytes", "records"):
        return rng.choice(BLOBS)
    if t.name == "struct":
        return _struct(t.element, version, rng, narrow)
    return _array(t.element, version, rng, narrow)


def _array(element: Any, version: int, rng: random.Random, narrow: Narrow | None) -> list[Any]:
    if isinstance(element, Type):
        count = rng.choice([0, 1, 2, 127, 128]) if element.format else rng.choice([0, 1, 2, 3])
        return [_value(element, version, rng, narrow) for _ in range(count)]
    return [_struct(element, version, rng, narrow) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
