"""Whose turn it is to use a consumer, when threads besides the one that reads want something of it.

confluent-kafka lets one thread at a time into a consumer, and who waits in there for messages, over and over, is never
overtaken by one that comes from outside: that one would wait for ever. So whoever asks for messages comes in through
here, a few times a second, and lets those in first who wait.

What a loop has taken and not handed out is its thread's alone: what changes that is handed to the loop, which sees to
it when it asks for more. Nobody waits for longer than `PATIENCE_S`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

from penstock.client.errors import UsageError

PATIENCE_S = 30.0
LOOK_S = 0.01

T = TypeVar("T")


class _Asked:
    """What another thread wants done by the loop's."""

    __slots__ = ("_call", "answered", "failure", "is_done", "result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.answered = threading.Event()
        self.is_done = False  # else the loop has ended before it came to that
        self.result: Any = None
        self.failure: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self.result = self._call()
        except BaseException as failure:  # theirs, whatever it is
            self.failure = failure
        self.is_done = True
        self.answered.set()


class Turns:
    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner: int | None = None  # the thread that has its turn
        self._depth = 0
        self._polls = False  # it is there to ask for messages
        self._waiting = 0  # others who want a turn
        self._loop: int | None = None  # the thread that iterates
        self._run: int | None = None  # the thread that calls the handler
        self._asked: deque[_Asked] = deque()

    # ---- who asks for messages: `with turns`

    def __enter__(self) -> None:
        me = get_ident()
        with self._changed:
            if self._owner == me:
                self._depth += 1
                return
            while self._owner is not None or self._waiting:
                if self._polls:
                    raise UsageError(
                        "another thread reads with this consumer.", "Use a consumer for each thread, of the same group."
                    )
                self._changed.wait()
            self._owner, self._depth, self._polls = me, 1, True
            if self._loop is not None:
                self._loop = me

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
                self._owner, self._depth = me, 1
        try:
            yield
        finally:
            self.__exit__()

    def _wait_for_turn(self) -> None:
        self._waiting += 1
        try:
            if not self._changed.wait_for(lambda: self._owner is None, PATIENCE_S):
                raise _too_long("another thread has been asking for messages")
        finally:
            self._waiting -= 1
            self._changed.notify_all()

    def handed_over(self, call: Callable[[], T]) -> T:
        """What comes of this, done by the thread that iterates, between two messages; here, where there is none."""
        while True:
            if self.is_ours or self._owner == get_ident():
                with self.beside():
                    if self.is_ours or self._depth > 1:  # else one has begun, which waits for us
                        return call()
            asked = _Asked(call)
            self._asked.append(asked)
            if self.is_ours and self._withdraw(asked):  # the loop has ended, perhaps before it could see this
                continue
            self._wait_for(asked)
            if asked.failure is not None:
                raise asked.failure
            if asked.is_done:
                result: T = asked.result
                return result

    def _wait_for(self, asked: _Asked) -> None:
        is_withdrawn = False
        try:
            asked.answered.wait(PATIENCE_S)
        finally:
            if not asked.answered.is_set():
                is_withdrawn = self._withdraw(asked)
        if is_withdrawn:
            raise _too_long("the loop over its messages has been busy with one, in another thread,")
        asked.answered.wait()  # it has begun

    def _withdraw(self, asked: _Asked) -> bool:
        try:
            self._asked.remove(asked)
        except ValueError:
            return False
        return True

    # ---- the loop

    @property
    def is_ours(self) -> bool:
        """Nobody iterates, or this thread does."""
        return self._loop in (None, get_ident())

    def begin_loop(self) -> int | None:
        """Returns whose loop this one is within.

        It is there before it looks whether somebody else has a turn, and who takes one looks behind that whether there
        is a loop: so one of them sees the other, without a lock for each poll.
        """
        me = get_ident()
        before, self._loop = self._loop, me
        if self._owner is not None and self._owner != me:
            with self._changed:
                self._changed.wait_for(lambda: self._owner in (None, me) or self._polls)
        return before

    def end_loop(self, before: int | None) -> None:
        self._loop = before
        while self._asked and before is None:
            try:
                self._asked.popleft().answered.set()
            except IndexError:  # withdrawn this moment
                return

    @contextmanager
    def parked(self) -> Iterator[None]:
        """While the loop's thread waits for another one, which may itself want something of the consumer."""
        with self._changed:
            loop, self._loop = self._loop, None
        try:
            yield
        finally:
            with self.beside():
                self._loop = loop

    def serve(self) -> None:
        """Does what others have asked of this loop: where none of its messages is in hand."""
        while self._asked:
            try:
                asked = self._asked.popleft()
            except IndexError:  # withdrawn this moment
                return
            asked.carry_out()

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

    def wait_for_run(self) -> None:
        """Until it is over, which was told to stop. In its own thread it never would be."""
        with self._changed:
            if self._run == get_ident():
                raise UsageError("the consumer runs its handler.", "Call stop(); it can be closed when run() is over.")
            if not self._changed.wait_for(lambda: self._run is None, PATIENCE_S):
                raise _too_long("its handler has been busy with a message")

    def wait_for_loop(self, timeout_s: float) -> None:
        """Until it is over, or is busy for longer."""
        until_s = time.monotonic() + timeout_s
        while not self.is_ours and time.monotonic() < until_s:
            time.sleep(LOOK_S)


def _too_long(what: str) -> UsageError:
    return UsageError(
        f"{what} for {PATIENCE_S:g} s.",
        "Ask in the thread that reads, between two messages, or when that is over.",
    )
