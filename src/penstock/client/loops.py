"""Loops over what a reader hands out: they end on signals, and put everything back however they are left.

A loop that is left early closes its generator, which only one that is not compiled notices; so it is here, around the
reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from penstock.client.message import Message
from penstock.client.reader import Reader
from penstock.client.signals import ending_on_signals


def until_signals(
    reader: Reader, count: int | None = None, timeout: float | None = None, in_all: bool = False
) -> Iterator[Message[Any, Any]]:
    """What `Reader.stream` gives."""
    with ending_on_signals(reader.stop) if reader.handles_signals else nullcontext():
        yield from reader.stream(count, timeout, in_all)


def until_stopped(reader: Reader, count: int | None, timeout: float | None) -> Iterator[Message[Any, Any]]:
    """The same, where `stop` ends this loop and not the next one."""
    reader.begin_again()
    try:
        with ending_on_signals(reader.stop) if reader.handles_signals else nullcontext():
            yield from reader.stream(count, timeout)
    finally:
        reader.note_end()
