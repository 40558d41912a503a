"""Loops over what a reader hands out: they end on signals, and put everything back however they are left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from penstock.client.message import Steps
from penstock.client.reader import Reader
from penstock.client.signals import ending_on_signals


def until_signals(
    reader: Reader, count: int | None = None, timeout: float | None = None, in_all: bool = False
) -> Steps:
    """What `Reader.stream` gives."""
    return reader.stream(count, timeout, in_all, _signals(reader))


def until_stopped(reader: Reader, count: int | None, timeout: float | None) -> Steps:
    """The same, where `stop` ends this loop and not the next one."""
    return reader.stream(count, timeout, False, _during_loop(reader))


@contextmanager
def _during_loop(reader: Reader) -> Iterator[None]:
    reader.begin_again()
    try:
        with stopped_by_signals(reader):
            yield
    finally:
        reader.note_end()


def stopped_by_signals(reader: Reader) -> AbstractContextManager[None]:
    """While this lasts, a signal stops the reader; one that comes when it is stopped is not ours."""
    return _signals(reader) or nullcontext()


def _signals(reader: Reader) -> AbstractContextManager[None] | None:
    is_ours = reader.handles_signals and not reader.stopping
    return ending_on_signals(reader.stop_for_good) if is_ours else None
