"""What a producer waits for: librdkafka knows, in its statistics, and keeps it to itself until all time is over."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

TOLD_AFTER_S = 2.0
STATISTICS_MS = 1_000
QUEUES = ("msgq_cnt", "xmit_msgq_cnt", "msgs_inflight")  # where a message may be that is not acknowledged


class Waiting:
    """Tells once of each partition that has messages and acknowledges none."""

    def __init__(self, topic: str, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._tell = tell
        self._clock = clock
        self._looked_at = clock()
        self._since: dict[int, float] = {}
        self._moved: set[int] = set()
        self._sent: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._told: set[int] = set()

    def answered(self, partition: int) -> None:
        self._moved.add(partition)

    def on_statistics(self, text: str) -> None:
        statistics: Mapping[str, Any] = json.loads(text)
        partitions = statistics["topics"].get(self._topic, {}).get("partitions", {})
        known = {int(number): facts for number, facts in partitions.items() if number != "-1"}
        self._leaders = {number: facts["leader"] for number, facts in known.items()}
        busy = {number for number, facts in known.items() if any(facts[queue] for queue in QUEUES)}
        if statistics["msg_cnt"]:  # what was refused and will be sent again is in none of the queues meanwhile
            sent = {number for number, facts in known.items() if facts["txmsgs"] > self._sent.get(number, 0)}
            busy |= (sent | (self._since.keys() & known.keys())) - self._moved
        self._sent = {number: facts["txmsgs"] for number, facts in known.items()}
        now = self._clock()
        self._since = {
            number: now if number in self._moved else self._since.get(number, self._looked_at) for number in busy
        }
        self._looked_at, self._moved = now, set()
        stuck = sorted(number for number, since in self._since.items() if now - since >= TOLD_AFTER_S)
        if not self._told.issuperset(stuck):
            self._told.update(stuck)
            self._tell(self._reason(stuck))

    def why(self, partition: int) -> str | None:
        """What kept a message from being delivered, if that is known."""
        return self._reason([partition]) if partition in self._leaders else None

    def _reason(self, stuck: list[int]) -> str:
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for number in stuck:
            by_leader[self._leaders[number]].append(number)
        return "; ".join(_said(self._topic, leader, numbers) for leader, numbers in sorted(by_leader.items()))


def _said(topic: str, leader: int, numbers: list[int]) -> str:
    many = len(numbers) > 1
    named = f"partition{'s' * many} {', '.join(map(str, numbers))} of {topic}"
    if leader < 0:
        return f"{named} {'have' if many else 'has'} no leader"
    return f"broker {leader}, which leads {named}, acknowledges nothing"
