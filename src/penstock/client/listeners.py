"""What a program may want to be told of: partitions that come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from penstock.client.message import Place

Listener = Callable[[list[Place]], object]


def tell(listeners: Sequence[Listener], places: list[Place]) -> None:
    """All of them, whatever one of them raises."""
    with ExitStack() as told:
        for listener in reversed(listeners):
            told.callback(listener, places)
