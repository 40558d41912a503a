"""How fast replicas that are not in sync may catch up, so that moving partitions leaves clients room (KIP-73). Pure.

A leader has one of these for what it sends, a follower one for what it fetches. It counts the bytes of the partitions
that topics name as throttled on this broker. It is not asked about replicas that are in sync: to hold those back would
hold back whoever waits for acks=all; but what they copy counts.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from penstock.cluster.model import ClusterImage
from penstock.cluster.settings import BrokerSettings

SAVED_MS = 1000  # what was not used for so long, and no more, may be used at once
WAIT_MS_MAX = 1000  # the rate may be raised meanwhile
LISTS_REMEMBERED = 1024


class Side(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"


class Bucket:
    """Fills with so many bytes a second. It may be overdrawn by one answer, and is paid back before the next: a batch
    that is larger than all it can hold gets through, too."""

    __slots__ = ("_filled_ms", "_level")

    def __init__(self) -> None:
        self._level = 0.0
        self._filled_ms: int | None = None  # it is full at first

    def may_take(self, rate: int, now_ms: int) -> bool:
        self._fill(rate, now_ms)
        return self._level > 0

    def take(self, size: int, rate: int, now_ms: int) -> None:
        self._fill(rate, now_ms)
        self._level -= size

    def next_ms(self, rate: int, now_ms: int) -> int:
        """How long until something may be taken, or until it is worth looking again."""
        if self.may_take(rate, now_ms):
            return 0
        if rate <= 0:
            return WAIT_MS_MAX
        return min(int(-self._level * 1000 // rate) + 1, WAIT_MS_MAX)

    def _fill(self, rate: int, now_ms: int) -> None:
        room = rate * SAVED_MS / 1000
        if self._filled_ms is None:
            self._level = room
        elif now_ms > self._filled_ms:
            self._level += rate * (now_ms - self._filled_ms) / 1000
        self._level = min(self._level, room)
        self._filled_ms = now_ms  # of a clock that was set back, the time since counts


class Throttle:
    def __init__(self, side: Side, node_id: int, image: ClusterImage, settings: BrokerSettings) -> None:
        self._listing = f"{side.value}.replication.throttled.replicas"  # a topic's setting
        self._rating = f"{side.value}.replication.throttled.rate"  # a broker's setting
        self._node_id = node_id
        self._image = image
        self._settings = settings
        self._bucket = Bucket()

    def applies(self, topic: str, index: int) -> bool:
        """Whether the topic says that this replica is throttled. Quick where it says nothing."""
        state = self._image.topics.get(topic)
        listed = state.config.get(self._listing) if state is not None else None
        if not listed:
            return False
        replicas = _replicas(listed)
        return replicas is None or (index, self._node_id) in replicas

    def may_send(self, topic: str, index: int, now_ms: int) -> bool:
        """Or fetch, on the follower's side."""
        return not self.applies(topic, index) or self._bucket.may_take(self._rate, now_ms)

    def sent(self, topic: str, index: int, size: int, now_ms: int) -> None:
        """Or fetched. What is not throttled does not count."""
        if self.applies(topic, index):
            self._bucket.take(size, self._rate, now_ms)

    def next_ms(self, now_ms: int) -> int:
        """How long until what may not be sent now is to be looked at again; 0 if it may be sent."""
        return self._bucket.next_ms(self._rate, now_ms)

    @property
    def _rate(self) -> int:
        return int(self._settings.get(self._rating))


@lru_cache(LISTS_REMEMBERED)
def _replicas(text: str) -> frozenset[tuple[int, int]] | None:
    """(partition, broker) pairs; None is all. The text was checked when it was set."""
    if text.strip() == "*":
        return None
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return frozenset((int(index), int(node_id)) for index, _, node_id in pairs)
