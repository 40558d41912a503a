"""How much a follower that is not in sync is given, and when: producers are not to wait for it. Pure.

What it gets at once is bounded, and then it rests four times as long as it took to store that, so that whoever shares a
core, a disk or a network with it has a turn. On a slow way there is nothing to be gained: a rest is short. And a
follower that comes no nearer while it rests would never arrive: from then on it rests no more.
"""

from __future__ import annotations

AT_ONCE_BYTES = 256 * 1024  # or one batch, if that is more
SENT_AT_ONCE_BYTES = 128 * 1024  # of it, before the other connections of the leader have their turn
RESTS_AS_LONG = 4
REST_S_MAX = 0.01
LOOK_S = 1.0


class CatchingUp:
    __slots__ = ("_behind", "_hurries", "_look_s", "_rests_until_s", "_room", "_sent_s")

    def __init__(self) -> None:
        self._room = 0
        self._sent_s = 0.0  # when it got what it has not stored yet
        self._rests_until_s = 0.0
        self._behind = -1
        self._look_s = 0.0
        self._hurries = False

    @property
    def room(self) -> int:
        """How much of the answer that is being made may be what it has missed."""
        return self._room

    def begin_answer(self) -> None:
        self._room = AT_ONCE_BYTES

    def give(self, size: int, now_s: float) -> None:
        self._room -= size
        self._sent_s = now_s

    def asks(self, now_s: float) -> None:
        """It has stored what it got."""
        if self._sent_s:
            if not self._hurries:
                self._rests_until_s = now_s + min(RESTS_AS_LONG * (now_s - self._sent_s), REST_S_MAX)
            self._sent_s = 0.0

    def rest_s(self, now_s: float) -> float:
        """How much longer it rests; 0 if it does not."""
        return max(self._rests_until_s - now_s, 0.0)

    def is_to_be_looked_at(self, now_s: float) -> bool:
        return now_s >= self._look_s

    def look(self, behind: int, now_s: float) -> None:
        """Now and then: how many records it lacks, of all partitions in which it is not in sync."""
        self._hurries = self._hurries or 0 <= self._behind <= behind
        self._behind = behind
        self._look_s = now_s + LOOK_S

    def has_arrived(self) -> None:
        """It is in sync everywhere. The next time begins anew."""
        self._behind = -1
        self._hurries = False
