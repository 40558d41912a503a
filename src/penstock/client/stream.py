"""What a loop over messages goes by. `Steps` is what it iterates, and asks here where there is something to think of.

It is a class because a generator costs more each time it goes on, and a compiled one does not notice that a loop was
left early; and it is `__del__` that notices it, as it does for a generator.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from penstock.client.message import Grant, Message, Steps
from penstock.client.pace import Pace

if TYPE_CHECKING:
    from penstock.client.reader import Reader


class Stream:
    """Messages until `count` are handed out, or none came for `timeout` (`in_all`: since the first was asked for), or
    the reader is `stopping`. `scope` is entered before the first one, and left in the end, however that comes.

    A message counts as processed when the next one is asked for, unless the reader `marks_itself`.
    """

    def __init__(
        self,
        reader: Reader,
        count: int | None,
        timeout: float | None,
        in_all: bool = False,
        scope: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._reader = reader
        self._is_plain = reader.decoder.is_plain and reader.filter is None
        self._left_count = -1 if count is None else count
        self._timeout = timeout
        self._in_all = in_all
        self._scope = scope
        self._pace = Pace()
        self._clock = time.monotonic  # here it is found faster
        self._wait_until_s: float | None = None
        self._due_s = 0.0  # when a commit is
        self._unseen = 0  # messages until the clock is looked at again, besides those
        self._grant = Grant()  # of the batch
        self._in_batch = False
        self._has_begun = False
        self._begun_in = 0  # a thread
        self._is_over = False

    def steps(self) -> Steps:
        return Steps(self._reader.hand, self._grant, self)

    def find(self) -> Message[Any, Any] | None:
        """The next message; None at the end."""
        if self._is_over:
            return None
        try:
            message = self._find()
        except BaseException:
            self.close()
            raise
        if message is None:
            self.close()
        return message

    def close(self) -> None:
        """No more of this one."""
        self._grant.count = 0
        has_begun, self._has_begun, self._is_over = self._has_begun, False, True
        if has_begun:
            self._reader.turns.loops.remove(self._begun_in)
            if self._scope is not None:
                self._scope.__exit__(None, None, None)

    def __del__(self) -> None:
        self.close()

    # ---- what most messages do not need

    def _find(self) -> Message[Any, Any] | None:
        """The next one, be it of another batch; None at the end."""
        reader = self._reader
        if not self._has_begun:
            self._begin()
        self._take_back()
        reader.wait_for_others()
        while True:
            while self._left_count and reader.has_left and self._goes_on():
                message = reader.hand_out()
                if message is not None:
                    self._left_count -= 1
                    self._grant_more()
                    return message
            if self._in_batch:
                self._end_batch()
            if not self._left_count or reader.stopping or not reader.refill(self._wait_until_s):
                return None
            if reader.has_left:
                self._in_batch = True
                reader.read_in = get_ident()
                self._due_s = reader.commits.due_s
                self._unseen = self._pace.begin(self._clock())

    def _grant_more(self) -> None:
        """What is left of the batch, for who is quick; else as many as may go unseen."""
        if self._is_plain:
            granted = len(self._reader.hand.left) if self._pace.is_quick else self._unseen
            if self._left_count >= 0:
                granted = min(granted, self._left_count)
                self._left_count -= granted
            self._unseen = 0
            grant = self._grant
            grant.count, grant.due_s, grant.looked_s = granted, self._due_s, self._pace.looked_s

    def _take_back(self) -> None:
        """What was granted and had no use: the batch is at its end, or it is time to look, or it was taken away."""
        grant = self._grant
        if grant.count and self._left_count >= 0:
            self._left_count += grant.count
        grant.count = 0
        self._pace.looked_s = max(self._pace.looked_s, grant.looked_s)

    def _begin(self) -> None:
        if self._scope is not None:
            self._scope.__enter__()
        self._has_begun = True
        self._begun_in = self._reader.read_in = get_ident()
        self._reader.turns.loops.append(self._begun_in)
        self._reader.count_in_hand()
        if self._reader.stopping:
            self._reader.rest(self._timeout)
        if self._timeout is not None:
            self._wait_until_s = self._clock() + self._timeout

    def _goes_on(self) -> bool:
        """Whether the next message of the batch is for now."""
        if not self._in_batch or self._reader.stopping:
            return False
        if self._unseen <= 0:
            now_s = self._clock()
            if now_s >= self._due_s:
                return False
            self._unseen = self._pace.next(now_s)
        self._unseen -= 1
        return True

    def _end_batch(self) -> None:
        """It is over, or a commit is due, or it is to stop."""
        self._in_batch = False
        self._unseen = 0
        self._reader.count_in_hand()
        now_s = self._clock()
        if now_s >= self._due_s:
            self._reader.between()
        if self._timeout is not None and not self._in_all:
            self._wait_until_s = now_s + self._timeout
