"""Which offsets of a partition come from the archive and which from its log: pure arithmetic, before anything is read.

    archive   |---------------|         |---------|
    log                          |------------------------------|
    read      |--- archive ---|  lost   |-archive-|---- log ----|
                              |--|-log--|

The archive is taken wherever it has a range, because it is the cheaper one to read; the log has the rest. A range that
neither has is lost. Every offset between the first that anybody has and the end of the log is in exactly one piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Offsets from `start` up to `stop`, which is not in it."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Pieces:
    archived: tuple[Span, ...]
    live: tuple[Span, ...]
    lost: tuple[Span, ...]


def divide(archived: Iterable[Span], log: Span | None) -> Pieces:
    """`archived` are spans in order that do not overlap; a topic that does not exist any more has no log."""
    taken: list[Span] = []
    live: list[Span] = []
    lost: list[Span] = []
    at: int | None = None
    for each in archived:
        if log is not None and (at is None or at < each.start):
            _between(min(log.start, each.start) if at is None else at, each.start, log, live, lost)
        elif log is None and at is not None and at < each.start:
            lost.append(Span(at, each.start))
        taken.append(each)
        at = each.stop
    if log is not None:
        _between(log.start if at is None else at, log.stop, log, live, lost)
    return Pieces(tuple(taken), tuple(live), tuple(lost))


def _between(start: int, stop: int, log: Span, live: list[Span], lost: list[Span]) -> None:
    """What the archive does not have, up to `stop`."""
    first = min(max(start, log.start), stop)
    if start < first:
        lost.append(Span(start, first))
    if first < stop:
        live.append(Span(first, stop))
