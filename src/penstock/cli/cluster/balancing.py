"""Which partitions to move so that brokers can go, and so that all hold and lead about the same. Pure.

A plan changes as little as it can. Data moves only where a broker has to be left, where a partition's replicas share a
rack and need not, or where one broker holds at least two replicas more than another, of one topic or of all; what moves
then is of a topic that the one has more of, and small. No move makes a partition share racks more than it did. Who
leads costs nothing to change and is evened last, by the order of the replicas. What is even already stays as it is, and
the same cluster gets the same plan.

Replicas on brokers that are not given (they may be down, and return) stay where they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Racks = Mapping[int, str | None]  # the brokers that may hold replicas, each with its rack


class NoRoom(Exception):
    """A replica has nowhere to go: each broker that may hold it has one already."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        return f"no broker is left that could take over a replica of {self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a partition is. The first replica is its preferred leader."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    size_bytes: int = 0  # of one replica, if it is known


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    partition: int
    before: tuple[int, ...]
    replicas: tuple[int, ...]
    size_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        return self.size_bytes * len(set(self.replicas) - set(self.before))


def drain(placements: Iterable[Placement], brokers: Racks, leaving: Collection[int]) -> list[Move]:
    """Moves all that is on the brokers that leave, and nothing else, to where least is."""
    spread = _Spread(placements, {node_id: rack for node_id, rack in brokers.items() if node_id not in leaving})
    spread.leave(set(leaving))
    spread.even_leaders(spread.changed())
    return spread.moves()


def rebalance(placements: Iterable[Placement], brokers: Racks, replicas_min: int = 0) -> list[Move]:
    """Moves what must move for all brokers to hold and lead about the same. A partition with fewer replicas than asked
    for gets more."""
    spread = _Spread(placements, brokers)
    spread.replicate(replicas_min)
    spread.part_racks()
    while spread.even_topics() or spread.even_replicas():
        pass  # each makes topics more even, or all of them together and none less: that ends
    spread.even_leaders(range(len(spread.placements)))
    return spread.moves()


class _Spread:
    """A cluster while it is rearranged on paper. Partitions are known by their place in `placements`."""

    def __init__(self, placements: Iterable[Placement], brokers: Racks) -> None:
        self.placements: Sequence[Placement] = sorted(placements, key=lambda each: (each.topic, each.partition))
        self._replicas = [list(each.replicas) for each in self.placements]
        self._brokers = sorted(brokers)
        no_racks = all(rack is None for rack in brokers.values())
        # As for new partitions: where nobody has a rack, each broker is its own.
        self._rack = {each: str(each) if no_racks else brokers[each] or "" for each in self._brokers}
        self._racks = len(set(self._rack.values()))
        self._held: Counter[int] = Counter()
        self._held_of: Counter[tuple[str, int]] = Counter()
        self._bytes: Counter[int] = Counter()
        self._on: dict[int, set[int]] = {each: set() for each in self._brokers}
        for index, replicas in enumerate(self._replicas):
            for broker in replicas:
                self._count(index, broker, 1)

    def changed(self) -> list[int]:
        return [index for index, each in enumerate(self.placements) if list(each.replicas) != self._replicas[index]]

    def moves(self) -> list[Move]:
        return [
            Move(each.topic, each.partition, each.replicas, tuple(self._replicas[index]), each.size_bytes)
            for index in self.changed()
            for each in (self.placements[index],)
        ]

    # ---- what must move

    def leave(self, leaving: set[int]) -> None:
        """Large partitions first: what comes later evens out what they did."""
        left = [index for index, replicas in enumerate(self._replicas) if not leaving.isdisjoint(replicas)]
        for index in sorted(left, key=lambda each: -self.placements[each].size_bytes):
            for broker in [each for each in self._replicas[index] if each in leaving]:
                heirs = [each for each in self._brokers if each not in self._replicas[index]]
                if not heirs:
                    raise NoRoom(self.placements[index].topic, self.placements[index].partition)
                self._move(index, broker, min(heirs, key=lambda heir: self._burden(index, broker, heir)))

    def replicate(self, replicas_min: int) -> None:
        """Large partitions first, too."""
        few = [index for index, replicas in enumerate(self._replicas) if len(replicas) < replicas_min]
        for index in sorted(few, key=lambda each: -self.placements[each].size_bytes):
            while len(self._replicas[index]) < replicas_min:
                self._replicas[index].append(self._newcomer(index))
                self._count(index, self._replicas[index][-1], 1)

    def _newcomer(self, index: int) -> int:
        topic, replicas = self.placements[index].topic, self._replicas[index]
        free = [each for each in self._brokers if each not in replicas]
        if not free:
            raise NoRoom(topic, self.placements[index].partition)
        return min(
            free,
            key=lambda each: (
                self._shared([*replicas, each]), self._held[each], self._held_of[topic, each], self._bytes[each], each
            ),
        )  # fmt: skip

    def part_racks(self) -> None:
        if self._racks <= 1 or self._racks == len(self._brokers):
            return
        for index, replicas in enumerate(self._replicas):
            while (best := min(self._partings(index), default=None)) is not None and best[0] < self._shared(replicas):
                self._move(index, *best[-2:])

    def _partings(self, index: int) -> Iterator[tuple[int, int, int, int, int, int]]:
        replicas = self._replicas[index]
        for source in (each for each in replicas if each in self._rack):
            for heir in (each for each in self._brokers if each not in replicas):
                shared, held, of_topic, size = self._burden(index, source, heir)
                yield shared, held, of_topic, size, source, heir

    def _burden(self, index: int, source: int, heir: int) -> tuple[int, int, int, int]:
        """The less, the better the heir."""
        shared = self._shared([heir if each == source else each for each in self._replicas[index]])
        return shared, self._held[heir], self._held_of[self.placements[index].topic, heir], self._bytes[heir]

    def _shared(self, replicas: Iterable[int]) -> int:
        """How many pairs of a partition's replicas are in one rack."""
        counts = Counter(self._rack[each] for each in replicas if each in self._rack)
        return sum(count * (count - 1) // 2 for count in counts.values())

    # ---- what is uneven

    def even_topics(self) -> bool:
        """Each topic by itself: so a new broker gets its share of each, and with that of what each costs."""
        of_topic: defaultdict[str, list[int]] = defaultdict(list)
        for index, placement in enumerate(self.placements):
            of_topic[placement.topic].append(index)
        moves = False
        for topic, indexes in of_topic.items():
            moves |= self._even({each: self._held_of[topic, each] for each in self._brokers}, set(indexes))
        return moves

    def even_replicas(self) -> bool:
        """All topics together, without making any one of them less even."""
        return self._even({each: self._held[each] for each in self._brokers}, None)

    def _even(self, amounts: dict[int, int], among: set[int] | None) -> bool:
        """First from those above the average to those below it; then, where racks are in the way, between any two."""
        average = sum(amounts.values()) / max(1, len(amounts))
        moved = False
        for lowest_giving, highest_taking in ((average, average), (0.0, float("inf"))):
            moves = True
            while moves:
                moves = False
                for source in sorted(amounts, key=lambda each: (-amounts[each], each)):
                    if amounts[source] > max(lowest_giving, min(amounts.values()) + 1):
                        moves |= self._give(source, amounts, among, lowest_giving, highest_taking)
                moved |= moves
        return moved

    def _give(
        self, source: int, amounts: dict[int, int], among: set[int] | None, lowest_giving: float, highest_taking: float
    ) -> bool:
        gave = False
        own = self._on[source] if among is None else self._on[source] & among
        for index in sorted(own, key=lambda each: (self.placements[each].size_bytes, each)):
            if amounts[source] <= lowest_giving:
                break
            below = min(highest_taking, amounts[source] - 1)  # else the two would merely change places
            takers = [each for each, amount in amounts.items() if amount < below and self._takes(index, source, each)]
            if takers:
                taker = min(takers, key=lambda each: (amounts[each], self._held[each], self._bytes[each], each))
                self._move(index, source, taker)
                amounts[source] -= 1
                amounts[taker] += 1
                gave = True
        return gave

    def _takes(self, index: int, source: int, taker: int) -> bool:
        replicas, topic = self._replicas[index], self.placements[index].topic
        if taker in replicas or self._held_of[topic, taker] >= self._held_of[topic, source]:
            return False
        if self._racks == len(self._brokers):
            return True
        return self._shared(taker if each == source else each for each in replicas) <= self._shared(replicas)

    # ---- who leads

    def even_leaders(self, indexes: Iterable[int]) -> None:
        """Only of these partitions. Where the one that leads most shares nothing with the one that leads least, others
        stand between them, each of which takes over from one and hands over to the next.
        """
        leads = Counter(replicas[0] for replicas in self._replicas if replicas)
        follow: dict[int, dict[int, set[int]]] = {each: defaultdict(set) for each in self._brokers}
        for index in indexes:
            self._know_followers(index, follow)
        while chain := self._longest_fall(leads, follow):
            leads[chain[0]] -= 1
            leads[chain[-1]] += 1
            for leader, follower in pairwise(chain):
                index = min(follow[leader][follower])
                self._forget_followers(index, follow)
                replicas = self._replicas[index]
                at = replicas.index(follower)
                replicas[0], replicas[at] = follower, leader
                self._know_followers(index, follow)

    def _know_followers(self, index: int, follow: dict[int, dict[int, set[int]]]) -> None:
        leader, *followers = self._replicas[index]
        if leader in follow:
            for follower in followers:
                if follower in follow:
                    follow[leader][follower].add(index)

    def _forget_followers(self, index: int, follow: dict[int, dict[int, set[int]]]) -> None:
        leader, *followers = self._replicas[index]
        for follower in followers:
            follow[leader][follower].discard(index)

    def _longest_fall(self, leads: Counter[int], follow: dict[int, dict[int, set[int]]]) -> list[int]:
        """A chain from one that leads much to one that leads at least two fewer, or nothing if there is none."""
        for source in sorted(self._brokers, key=lambda each: (-leads[each], each)):
            came_from = {source: source}
            queue = deque([source])
            while queue:
                leader = queue.popleft()
                for follower in sorted(each for each, shared in follow[leader].items() if shared):
                    if follower not in came_from:
                        came_from[follower] = leader
                        queue.append(follower)
            least = min(came_from, key=lambda each: (leads[each], each))
            if leads[source] - leads[least] >= 2:
                chain = [least]
                while chain[-1] != source:
                    chain.append(came_from[chain[-1]])
                return chain[::-1]
        return []

    # ---- the books

    def _move(self, index: int, source: int, heir: int) -> None:
        replicas = self._replicas[index]
        replicas[replicas.index(source)] = heir
        self._count(index, source, -1)
        self._count(index, heir, 1)

    def _count(self, index: int, broker: int, by: int) -> None:
        placement = self.placements[index]
        self._held[broker] += by
        self._held_of[placement.topic, broker] += by
        self._bytes[broker] += by * placement.size_bytes
        if broker in self._on:
            (self._on[broker].add if by > 0 else self._on[broker].discard)(index)
