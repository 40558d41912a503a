"""Loops over what a reader hands out: they end on signals, and put everything back however they are left.

A loop that is left early closes its generator, which only one that is not compiled notices; so it is here, around the
reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.client.message import Message
from penstock.client.reader import Reader
from penstock.client.signals import ending_on_signals


def until_signals(
    reader: Reader, count: int | None = None, timeout: float | None = None, in_all: bool = False
) -> Iterator[Message[Any, Any]]:
    """What `Reader.stream` gives."""
    with _signals(reader):
        yield from reader.stream(count, timeout, in_all)


def until_stopped(reader: Reader, count: int | None, timeout: float | None) -> Iterator[Message[Any, Any]]:
    """The same, where `stop` ends this loop and not the next one."""
    reader.begin_again()
    try:
        with _signals(reader):
            yield from reader.stream(count, timeout)
    finally:
        reader.note_end()


def _signals(reader: Reader) -> AbstractContextManager[None]:
    """While this lasts, a signal stops the reader; one that comes when it is stopped is not ours."""
    is_ours = reader.handles_signals and not reader.stopping
    return ending_on_signals(reader.stop_for_good) if is_ours else nullcontext()
