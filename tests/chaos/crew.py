"""The copiers: a few processes in one group, each with a transactional id of its own, replaced when they end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.chaos.auditor import Violation
from tests.faults.copier import FATAL, CopierProcess

STOP_TIMEOUT_S = 60.0
FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
UNREACHABLE = "UNREACHABLE"  # one that gives up on a broker, and leaves it to its successor to find out what happened


class Crew:
    def __init__(self, folder: Path, size: int, arguments: list[str], assignor: str, other: str | None = None) -> None:
        """`arguments` are those of a copier up to its transactional id. Every second copier is the `other` program."""
        self.ended: Counter[str] = Counter()  # by themselves, by the reason
        self._folder = folder
        self._arguments = arguments
        self._assignor = assignor
        self._other = other
        self._places: list[CopierProcess | None] = [None] * size  # None: left out for a while
        self._zombies: list[CopierProcess] = []  # whose transactional id another has
        for place in range(size):
            self.start(place)

    def __len__(self) -> int:
        return len(self._places)

    def at(self, place: int) -> CopierProcess | None:
        return self._places[place]

    def start(self, place: int) -> None:
        name = f"copier-{place}"
        program = self._other if place % 2 else None
        self._places[place] = CopierProcess(self._folder, name, [*self._arguments, name, self._assignor], program)

    def kill(self, place: int) -> None:
        copier = self._places[place]
        if copier is not None:
            copier.kill()
            self._places[place] = None

    def double(self, place: int) -> None:
        """Another with the same transactional id: of the two, the older must be fenced."""
        copier = self._places[place]
        if copier is not None:
            self._zombies.append(copier)
        self.start(place)

    def look_after(self) -> None:
        """Starts anew what was fenced or gave up. An end for any other reason is a finding."""
        for place, copier in enumerate(self._places):
            if copier is not None and copier.code is not None:
                self._account_for(copier)
                self.start(place)
        for zombie in list(self._zombies):
            if zombie.code is not None:
                self._account_for(zombie)
                self._zombies.remove(zombie)

    def _account_for(self, copier: CopierProcess) -> None:
        reason = copier.last_words
        if copier.code != FATAL or reason not in {*FENCED, UNREACHABLE}:
            raise Violation(f"a copier ended with {copier.code}:\n{copier.said.read_text()[-2000:]}")
        self.ended[reason] += 1

    def complete(self) -> None:
        for place, copier in enumerate(self._places):
            if copier is None:
                self.start(place)

    def finish(self) -> None:
        """A clean end of all: nothing of theirs is open any more."""
        self.look_after()
        working = [*filter(None, self._places), *self._zombies]
        for copier in working:
            copier.process.terminate()
        for copier in working:
            if copier.wait(STOP_TIMEOUT_S):
                self._account_for(copier)

    def close(self) -> None:
        for copier in [*filter(None, self._places), *self._zombies]:
            copier.kill()
