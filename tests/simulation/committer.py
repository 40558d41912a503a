"""In place of the threads that sync: a sync takes a while, and reaches the device at some moment within it."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable

from penstock.replication.commit import Done, Syncable

SYNC_S = (0.0002, 0.005)


class SimulatedCommitter:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chance: random.Random,
        sync_s: tuple[float, float] = SYNC_S,
        device_fails: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._random = chance
        self._sync_s = sync_s
        self._device_fails = device_fails
        self._under_way: dict[int, tuple[list[Syncable], Done]] = {}  # not on the device yet
        self._unsaid: dict[int, tuple[Done, OSError | None]] = {}  # on the device, but nobody knows
        self._number = 0
        self._closed = False

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way or self._unsaid)

    def sync(self, files: list[Syncable], done: Done) -> None:
        if self._closed:
            return  # whoever stops the broker syncs what is left, and sees the errors of that
        self._number += 1
        self._under_way[self._number] = (files, done)
        self._loop.call_later(self._random.uniform(*self._sync_s) / 2, self._reach_device, self._number)

    def _reach_device(self, number: int) -> None:
        if number not in self._under_way:
            return  # it was closed meanwhile
        files, done = self._under_way.pop(number)
        error = None
        try:
            if self._device_fails():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            for file in files:
                file.sync()
        except OSError as failure:
            error = failure
        self._unsaid[number] = (done, error)
        self._loop.call_later(self._random.uniform(*self._sync_s) / 2, self._say, number)

    def _say(self, number: int) -> None:
        if number in self._unsaid:
            done, error = self._unsaid.pop(number)
            done(error)

    def close(self) -> None:
        """Whoever waits for a sync that is under way is told before this returns."""
        self._closed = True
        for number in sorted({*self._under_way, *self._unsaid}):
            self._reach_device(number)
            self._say(number)
