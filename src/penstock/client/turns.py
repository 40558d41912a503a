"""Whose turn it is to use a consumer, when threads besides the one that reads want something of it.

confluent-kafka lets one thread at a time into a consumer, and who waits in there for messages, over and over, is never
overtaken by one that comes from outside: that one would wait for ever. So whoever asks for messages comes in through
here, a few times a second, and lets one in first who waits; one, so that those who ask on and on do not keep it from
reading. Nobody waits for longer than `PATIENCE_S`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from penstock.client.errors import UsageError

PATIENCE_S = 30.0
LOOK_S = 0.01


class Turns:
    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner: int | None = None  # the thread that has its turn
        self._depth = 0
        self._polls = False  # it is there to ask for messages
        self._waiting = 0  # others who want a turn
        self._wants_to_poll = 0
        self._guest_was_last = False
        self._run: int | None = None  # the thread that calls the handler
        self.loops: list[int] = []  # the threads that have begun to iterate, for each loop that is not over

    # ---- who asks for messages: `with turns`

    def __enter__(self) -> None:
        me = get_ident()
        with self._changed:
            if self._owner == me:
                self._depth += 1
                return
            self._wants_to_poll += 1
            try:
                while self._owner is not None or (self._waiting and not self._guest_was_last):
                    if self._polls:
                        raise UsageError(
                            "another thread reads with this consumer.",
                            "Use a consumer for each thread, of the same group.",
                        )
                    self._changed.wait()
            finally:
                self._wants_to_poll -= 1
            self._owner, self._depth, self._polls, self._guest_was_last = me, 1, True, False

    def __exit__(self, *problem: object) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._owner, self._polls = None, False
                self._changed.notify_all()

    # ---- who comes from outside

    @contextmanager
    def beside(self) -> Iterator[None]:
        """While this lasts, nobody else asks for messages."""
        me = get_ident()
        with self._changed:
            if self._owner == me:
                self._depth += 1
            else:
                self._wait_for_turn()
                self._owner, self._depth, self._guest_was_last = me, 1, True
        try:
            yield
        finally:
            self.__exit__()

    def _wait_for_turn(self) -> None:
        self._waiting += 1
        try:
            if not self._changed.wait_for(self._may_come_in, PATIENCE_S):
                raise _too_long("another thread has been asking for messages")
        finally:
            self._waiting -= 1
            self._changed.notify_all()

    def _may_come_in(self) -> bool:
        return self._owner is None and not (self._wants_to_poll and self._guest_was_last)

    # ---- the end

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the handler is called."""
        with self._changed:
            if self._run is not None:
                raise UsageError("the consumer runs its handler.", "Once is enough; use a consumer for each thread.")
            self._run = get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._run = None
                self._changed.notify_all()

    def check_not_in_run(self) -> None:
        """Who waits for it in its own thread waits for ever."""
        if self._run == get_ident():
            raise UsageError("the consumer runs its handler.", "Call stop(); it can be closed when run() is over.")

    def wait_for_run(self) -> None:
        """Until it is over, which was told to stop."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._run is None, PATIENCE_S):
                raise _too_long("its handler has been busy with a message")

    def wait_for_loops(self, timeout_s: float) -> None:
        """Until those of other threads are over, or are busy for longer."""
        me, until_s = get_ident(), time.monotonic() + timeout_s
        while any(thread != me for thread in list(self.loops)) and time.monotonic() < until_s:
            time.sleep(LOOK_S)


def _too_long(what: str) -> UsageError:
    return UsageError(
        f"{what} for {PATIENCE_S:g} s.",
        "Ask in the thread that reads, between two messages, or when that is over.",
    )
