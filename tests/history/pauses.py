"""How long nothing was acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.history.tally import Tally


class Pause(NamedTuple):
    seconds: float
    since: float  # by the clock of the history
    where: str

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s in {self.where}, since {self.since:.3f}"


def longest(times: Sequence[float], first_sent: float, last_sent: float, where: str) -> Pause:
    """From when the first message was sent. What was sent behind the last acknowledgement waited in vain."""
    points = sorted((first_sent, *times, *((last_sent,) if not times or last_sent > max(times) else ())))
    pauses = [(later - earlier, earlier) for earlier, later in pairwise(points)]
    seconds, since = max(pauses, default=(0.0, first_sent))
    return Pause(seconds, since, where)


def longest_pauses(tally: Tally) -> list[Pause]:
    """Overall first, then of every partition, the longest first."""
    if not tally.sendings:
        return []
    sent = [sending.at for sending in tally.sendings.values()]
    everything = [at for times in tally.acknowledged_at.values() for at in times]
    overall = longest(everything, min(sent), max(sent), "all")
    by_partition = []
    for partition in sorted({*tally.sent_at, *tally.acknowledged_at}):
        times = tally.acknowledged_at.get(partition, [])
        known = (min(times), max(times)) if times else (0.0, 0.0)  # keyed messages: where they went shows only later
        first, last = tally.sent_at.get(partition, known)
        by_partition.append(longest(times, first, last, str(partition)))
    return [overall, *sorted(by_partition, reverse=True)]
