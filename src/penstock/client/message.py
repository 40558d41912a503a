"""A message as it was read, and the receipt for one that was written.

Messages are written in C where that was compiled, else in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import GenericAlias

from penstock.client import pure_messages
from penstock.client.pure_messages import Header, Place

try:
    from penstock.client._messages import DecodedMessage, Grant, Hand, Message, Steps, has_errors, last_of

    COMPILED = True
except ImportError:
    from penstock.client.pure_messages import DecodedMessage, Grant, Hand, Message, Steps, has_errors, last_of

    COMPILED = False

__all__ = [
    "COMPILED",
    "DecodedMessage",
    "Grant",
    "Hand",
    "Header",
    "Message",
    "Place",
    "Receipt",
    "Steps",
    "has_errors",
    "last_of",
]

SELDOM = ("place", "attempt", "headers", "header", "timestamp_ms", "timestamp", "size", "__repr__")

if COMPILED:
    for name in SELDOM:
        setattr(Message, name, vars(pure_messages.Message)[name])
    setattr(Message, "__class_getitem__", classmethod(GenericAlias))  # noqa: B010  (a type in C, of which mypy knows no such name)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message that was sent is now. `offset` is -1 where the broker was not asked to say (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
