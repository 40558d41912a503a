"""What the group gives us and takes away, and what must be known of a partition before its first message.

After a death, some messages behind the committed position may have copies elsewhere already: their process got as far
as that, and no further. Copies name their source, so the topics tell; with exactly-once there can be none. Where order
is kept, the tiers tell which keys are parked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.committer import PASSING
from penstock.client.errors import UsageError, from_kafka
from penstock.client.filtering import headers_of
from penstock.client.listeners import tell
from penstock.client.retrying.assigned import Assigned
from penstock.client.retrying.deaths import Mark
from penstock.client.retrying.headers import split
from penstock.client.retrying.holdings import Holdings, now_ms
from penstock.client.retrying.ordering import ParkedKeys
from penstock.client.retrying.recovery import Scan
from penstock.client.retrying.source import Source
from penstock.client.retrying.topics import Places
from penstock.client.retrying.waiting import Key

if TYPE_CHECKING:
    from confluent_kafka import Consumer

REQUEST_TIMEOUT_S = 30.0
POSITION_RETRY_S = 0.1
NOT_YET = PASSING | {KafkaError.UNSTABLE_OFFSET_COMMIT}
WINDOW_COMMITS = 2  # as many messages as may lie between two commits may be under way when a process dies


class Membership:
    def __init__(
        self,
        source: Source,
        holdings: Holdings,
        places: Mapping[str, Places],
        partitions: Mapping[str, int],
        is_ordered: bool,
    ) -> None:
        self._source = source
        self._holdings = holdings
        self._places = places
        self._partitions = partitions
        self._is_ordered = is_ordered
        self._scan = Scan(source.connection, source.group, committed_only=source.is_exactly_once)
        self._forget: Callable[[set[Key]], None] = lambda keys: None
        self._put_back: Callable[[Assigned], None] = lambda part: None

    def join(self, forget: Callable[[set[Key]], None], put_back: Callable[[Assigned], None]) -> None:
        """`forget` is told of partitions that are not ours any more, `put_back` of those that must be read again."""
        self._forget = forget
        self._put_back = put_back
        self._source.client.subscribe(
            list(self._places), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def leave(self) -> None:
        """Also when the last commit fails: nothing must be committed later in the name of what was given up here."""
        deadline_s = time.monotonic() + self._source.committer.timeout_s
        try:
            self._source.committer.settle()  # the last commit comes behind all others
            self._holdings.finish(set(self._holdings.parts), deadline_s)
        finally:
            self._drop(set(self._holdings.parts))
            if not self._source.committer.is_stuck:
                self._source.client.unsubscribe()

    # ---- rebalances

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        keys = [(place.topic, place.partition) for place in partitions]
        self._source.reader.came(keys)
        with self._source.committer.within():
            tell(self._source.on_assign, keys)
            if keys:
                self._take_over(client, keys)

    def _take_over(self, client: Consumer, keys: list[Key]) -> None:
        fresh = []
        for place in _committed(client, keys):
            part = Assigned((place.topic, place.partition), self._places[place.topic], now_ms())
            if place.offset >= 0:
                part.starts_at(place.offset, Mark.decode(place.metadata), WINDOW_COMMITS * self._source.commit_every)
            fresh.append(part)
        self._holdings.add(fresh)
        if not self._source.is_exactly_once:
            self._recall_copies(part for part in fresh if part.found is not None)
        if self._is_ordered:
            self.recall_keys(fresh)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(place.topic, place.partition) for place in partitions}
        with self._source.committer.within():
            try:
                tell(self._source.on_revoke, sorted(keys))
            finally:
                self._give_up(keys)

    def _give_up(self, keys: set[Key]) -> None:
        try:
            lost = self._holdings.finish(keys, time.monotonic() + self._source.committer.timeout_s)
        finally:
            self._drop(keys)
        for part in lost:
            if part.key not in keys:
                self._put_back(part)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Another has them already. What we did since the last commit is done again, by it."""
        keys = {(place.topic, place.partition) for place in partitions}
        with self._source.committer.within():
            try:
                tell(self._source.on_lost, sorted(keys))
            finally:
                self._drop(keys)

    def _drop(self, keys: set[Key]) -> None:
        self._holdings.drop(keys)
        self._forget(keys)
        self._source.reader.went(keys)

    # ---- what was parked before

    def _recall_copies(self, parts: Iterable[Assigned]) -> None:
        for part in parts:
            assert part.found is not None
            targets = [(name, part.key[1] % self._partitions[name]) for name in part.places.names]
            handed_over = set()
            for raw in self._scan.since(targets, part.found.at_ms):
                _, parked = split(headers_of(raw))
                if parked is not None and parked.source_key == part.key and parked.group == self._source.group:
                    handed_over.add(parked.source.offset)
            part.handed_over = frozenset(handed_over)

    def recall_keys(self, parts: Iterable[Assigned]) -> None:
        for part in parts:
            if part.is_tier:
                continue
            number = part.key[1]
            tiers = [self._holdings.parts.get((tier.topic, number)) for tier in part.places.tiers]
            ours = [tier for tier in tiers if tier is not None]
            if len(ours) < len(tiers):
                raise UsageError(
                    f"order can't be kept: {part.key[0]}[{number}] is ours, and not all of its retry topics are.",
                    "All members of the group must have the same handler options. Start them anew, all of them.",
                )
            keys = self._parked_in(ours)
            for each in (part, *ours):
                each.parked_keys = keys

    def _parked_in(self, tiers: list[Assigned]) -> ParkedKeys:
        keys = ParkedKeys()
        by_key = {tier.key: tier for tier in tiers}
        for raw in self._scan.behind({tier.key: max(tier.ledger.next_offset, 0) for tier in tiers}):
            _, parked = split(headers_of(raw))
            tier = by_key[raw.topic(), raw.partition()]  # type: ignore[index]
            if parked is None or parked.group != self._source.group or raw.offset() in tier.handed_over:
                continue
            keys.parked(raw.key(), parked.origin.offset, tier.key[0])
        return keys


def _committed(client: Consumer, keys: list[Key]) -> list[TopicPartition]:
    """Where a member died in a transaction, the position is not known until the brokers have given it up (KIP-447)."""
    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            found = client.committed([TopicPartition(*key) for key in keys], timeout=REQUEST_TIMEOUT_S)
            error = next((place.error for place in found if place.error is not None), None)
        except KafkaException as failure:
            error = failure.args[0]
        if error is None:
            return found
        if error.code() not in NOT_YET or time.monotonic() > deadline_s:
            raise from_kafka(error, "asking for positions")
        time.sleep(POSITION_RETRY_S)
