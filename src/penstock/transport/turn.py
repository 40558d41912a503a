"""One turn of the event loop: what its callbacks gathered is carried out once, at its end.

Sockets that are ready are read one after another; their requests stage writes and answers. Then, in this order: one
write per partition, the answers that waited for it, one send per connection. A receive buffer is free again only
behind the writes, because staged batches are views of it.

Whoever was answered is likely to ask for more within microseconds, and to be put to sleep and woken takes longer than
that. So a loop that has nothing to do may look at its sockets again for a while before it sleeps.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

RECEIVE_BYTES: Final = 128 * 1024
BUFFERS_PER_TURN: Final = 32
LONG_MS: Final = 20

log = logging.getLogger("penstock.transport")


class Sender(Protocol):
    def flush(self) -> None: ...


class ReceiveBuffer:
    __slots__ = ("bytes", "view")

    def __init__(self, size: int = RECEIVE_BYTES) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes)


class Turn:
    __slots__ = (
        "_awake_ns", "_awake_until_ns", "_clock_ns", "_free", "_gives_way", "_is_awake", "_loop", "_unless", "_used",
        "answers", "begun_ms", "count", "flushes", "now_ms", "scheduled", "sends", "writes",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._loop = loop
        self._clock_ns = clock_ns
        self._free: list[ReceiveBuffer] = []
        self._used: list[ReceiveBuffer] = []
        self._awake_ns = 0
        self._awake_until_ns = 0
        self._is_awake = False
        self._gives_way = False
        self._unless: Callable[[], bool] = bool
        self.count = 0  # of what was carried out, which may be several times a turn
        self.flushes = 0  # of turns
        self.now_ms = 0  # the wall clock, read whenever something is to be carried out again
        self.begun_ms = 0  # the same when the turn began; 0 between turns
        self.scheduled = False
        self.writes: list[Callable[[], None]] = []
        self.answers: list[Callable[[], None]] = []
        self.sends: list[Sender] = []

    def schedule(self) -> None:
        if not self.scheduled:
            self.scheduled = True
            self.now_ms = self._clock_ns() // 1_000_000
            if not self.begun_ms:
                self.begun_ms = self.now_ms
            self._loop.call_soon(self.flush)

    def stay_awake(self, microseconds: int, unless: Callable[[], bool], *, gives_way: bool = False) -> None:
        """After each turn for so long, unless another thread of this process is at work, which it would hinder. Whoever
        gives way lets another process have the core between two looks."""
        self._awake_ns = 1000 * microseconds
        self._unless = unless
        self._gives_way = gives_way

    def wall_ms(self) -> int:
        return self._clock_ns() // 1_000_000

    def steady_ms(self) -> int:
        """For what lasts: nobody sets this clock."""
        return int(self._loop.time() * 1000)

    @property
    def is_long(self) -> bool:
        """Whether others have waited for their turn for so long that whoever had a request handled should let them."""
        return self._clock_ns() // 1_000_000 - self.begun_ms >= LONG_MS

    @property
    def readers(self) -> int:
        """How many sockets were read in this turn, or since its buffers ran out."""
        return len(self._used)

    def buffer(self) -> ReceiveBuffer:
        """A receive buffer that is the caller's until the end of the turn."""
        if not self.scheduled:
            self.schedule()
        elif len(self._used) >= BUFFERS_PER_TURN:
            self.flush()
            self.schedule()
        buffer = self._free.pop() if self._free else ReceiveBuffer()
        self._used.append(buffer)
        return buffer

    def settle(self) -> None:
        """Writes and answers now. Receive buffers stay with their users."""
        self.count += 1
        try:
            # An answer may stage another write, so each list is taken before it is walked.
            # One that fails must not take others with it, who would be answered though they were never written.
            while self.writes or self.answers:
                writes, self.writes = self.writes, []
                for write in writes:
                    try:
                        write()
                    except Exception:
                        log.exception("a write failed in a way nobody foresaw")
                answers, self.answers = self.answers, []
                for answer in answers:
                    try:
                        answer()
                    except Exception:
                        log.exception("an answer failed in a way nobody foresaw")
        finally:
            self.scheduled = False
        sends, self.sends = self.sends, []
        for sender in sends:
            try:
                sender.flush()
            except Exception:
                log.exception("a send failed in a way nobody foresaw")

    def flush(self) -> None:
        """The end of the turn."""
        self.settle()
        self.flushes += 1
        self.begun_ms = 0
        self._free += self._used
        self._used.clear()
        if len(self._free) > BUFFERS_PER_TURN:
            del self._free[BUFFERS_PER_TURN:]
        if self._awake_ns:
            self._awake_until_ns = time.monotonic_ns() + self._awake_ns
            if not self._is_awake:
                self._is_awake = True
                self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        """A callback that is due keeps the loop from sleeping, and it looks at its sockets before it calls back."""
        if time.monotonic_ns() < self._awake_until_ns and not self._unless():
            if self._gives_way:
                os.sched_yield()
            self._loop.call_soon(self._look_again)
        else:
            self._is_awake = False
