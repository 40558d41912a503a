"""Things that arrive later, in the order in which they were sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple

from tests.simulation.process import NOBODY


class Parcel(NamedTuple):
    due: float
    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context


class Channel:
    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: Callable[[], float]) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._parcels: deque[Parcel] = deque()
        self._last_due = 0.0
        self._is_held = False

    def send(self, callback: Callable[..., object], *args: Any, context: Context = NOBODY) -> None:
        """Calls it when the parcel arrives: as the receiver, if its context is given."""
        self._last_due = max(self._last_due, self._loop.time() + self._delay_s())
        self._parcels.append(Parcel(self._last_due, callback, args, context))
        self._loop.call_at(self._last_due, self._deliver, context=NOBODY)

    def _deliver(self) -> None:
        while self._parcels and not self._is_held and self._parcels[0].due <= self._loop.time():
            parcel = self._parcels.popleft()
            self._loop.call_soon(parcel.callback, *parcel.args, context=parcel.context)

    @property
    def is_empty(self) -> bool:
        return not self._parcels

    def hold(self) -> None:
        """Nothing arrives until it is released."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._loop.call_later(self._delay_s(), self._deliver, context=NOBODY)

    def drop(self) -> list[Parcel]:
        """What was under way never arrives."""
        dropped = list(self._parcels)
        self._parcels.clear()
        return dropped
