"""How often the clock is looked at between two messages.

To look costs as much as a tenth of reading a message, so who is quick looks seldom. Who has become slow since the last
look finds out a few messages late; as few as do no harm, whatever each of them takes.
"""

from __future__ import annotations

UNSEEN_MAX = 8  # messages between two looks
QUICK_S = 0.001  # for each of them


class Pace:
    __slots__ = ("_unseen", "looked_s")

    def __init__(self) -> None:
        self._unseen = 1
        self.looked_s = 0.0

    @property
    def is_quick(self) -> bool:
        return self._unseen == UNSEEN_MAX

    def begin(self, now_s: float) -> int:
        """Messages until the next look, after a wait that says nothing about who reads them."""
        self.looked_s = now_s
        return self._unseen

    def next(self, now_s: float) -> int:
        is_quick = now_s - self.looked_s < QUICK_S * self._unseen
        self._unseen = min(UNSEEN_MAX, 2 * self._unseen) if is_quick else 1
        self.looked_s = now_s
        return self._unseen
