"""Processes that die in a handler, counted. Pure.

Nothing is written for each message while all goes well. The metadata of a committed offset says that a process is at
work from there; who finds that at the start of an assignment knows that the last one ended without saying so. It was
one of the messages that follow, nobody knows which, so for as many as may have been under way (the window) it is
careful: before each call it commits the message's offset and which attempt this is. If the process dies again, the
message is known, and the deaths before are put down to it, unless it can't have been their cause: it came later, or it
is known to kill and was never called without care. What has killed once is handled with care everywhere.

    ""                                      ended in order; nothing is under way
    {"at": ms}                              at work from here, since then
    {"at": ms, "deaths": 1}                 the same, after a death that no message is known for
    {"at": ms, "deaths": 1, "trying": 2}    the message at this offset is being tried, for the second time at this place
"""

from __future__ import annotations

import json
from dataclasses import dataclass

COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Mark:
    at_ms: int
    deaths: int = 0
    trying: int = 0

    def encode(self) -> str:
        fields = {"at": self.at_ms, "deaths": self.deaths, "trying": self.trying}
        return json.dumps({"penstock": {name: value for name, value in fields.items() if value}})

    @classmethod
    def decode(cls, metadata: str | None) -> Mark | None:
        """None if the last owner ended in order, or was another client, which writes what it likes."""
        try:
            fields = json.loads(metadata or "null")["penstock"]
            return cls(*(min(max(int(fields.get(name, 0)), 0), bound) for name, bound in _FIELDS))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return None


_FIELDS = (("at", 2**62), ("deaths", COUNT_MAX), ("trying", COUNT_MAX))


class Watch:
    """What is known of one partition, from its assignment on."""

    __slots__ = ("_careful_until", "_deaths", "_first", "_found", "attempts")

    def __init__(self, offset: int, found: Mark | None, window: int) -> None:
        self._first = offset
        self._found = found
        self._deaths = 0
        self.attempts = 0  # calls with the message at `offset` that ended with the process
        self._careful_until = offset
        if found is not None:
            self._careful_until = offset + window
            if found.trying:
                self.attempts = found.deaths + found.trying
            else:
                self._deaths = found.deaths + 1

    @property
    def is_after_a_death(self) -> bool:
        return self._found is not None

    def is_careful(self, offset: int) -> bool:
        return offset < self._careful_until

    def attempts_at(self, offset: int) -> int:
        """Calls with this message that ended with a process, as far as is known."""
        return self.attempts if offset <= self._first else 0

    def died_of(self, offset: int) -> bool:
        return self.attempts_at(offset) > 0

    def working(self, position: int, now_ms: int) -> Mark:
        """For a commit while work goes on. What was suspected of this part of the log holds to its end."""
        if not self.is_careful(position):
            self._deaths = 0
        if position <= self._first and self.attempts:  # not taken care of yet: its attempts must stay on record
            return Mark(now_ms, 0, self.attempts)
        return Mark(now_ms, self._deaths)

    def trying(self, offset: int, now_ms: int, is_suspect: bool = True) -> Mark:
        """Before a call. Of who is no suspect, no death is known but those it is known for."""
        if not self.is_careful(offset):
            self._deaths = 0
        return Mark(now_ms, self._deaths if is_suspect else 0, self.attempts_at(offset) + 1)
