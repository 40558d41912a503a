"""The uniform assignor: as many partitions for everyone, moved as little as possible.

    keep     what a member has and still subscribes to, it keeps
    place    what nobody has goes to the subscriber with the fewest
    level    while someone has two more than another who could read one of their partitions, one goes over
    racks    of what was placed or moved, members with equal subscriptions take what has a replica in their rack

After `level` no partition can go to a member that has at least two fewer, so that members with equal subscriptions
differ by one at most. What is balanced when it comes in goes out unchanged, whatever the racks: a move costs more than
it brings.

Members with equal subscriptions are interchangeable. They form a class, and classes, which are few, are what is looked
through when a partition wants an owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from penstock.groups.assignors.rack_matching import match_racks
from penstock.groups.assignors.spec import Assignment, MemberSpec, TopicShape, has_replica

Partition = tuple[bytes, int]


class UniformAssignor:
    def assign(self, members: Mapping[str, MemberSpec], topics: Mapping[bytes, TopicShape]) -> Assignment:
        spread = _Spread(members, topics)
        spread.keep()
        spread.place()
        spread.level()
        spread.match_racks()
        spread.level()  # those who share out hold other topics now, which someone with fewer may read
        return spread.result()


class _Member:
    __slots__ = ("holds", "load", "order", "peers", "spec", "yields")

    def __init__(self, order: int, spec: MemberSpec) -> None:
        self.order = order
        self.spec = spec
        self.peers: _Class
        self.load = 0
        self.holds: dict[bytes, set[int]] = {}
        self.yields: list[Partition] | None = None  # all that it holds, what it would give first at the end

    def take(self, partition: Partition) -> None:
        self.holds.setdefault(partition[0], set()).add(partition[1])
        self.load += 1
        self.yields = None
        self.peers.changed(self)

    def give(self, partition: Partition) -> None:
        held = self.holds[partition[0]]
        held.remove(partition[1])
        if not held:
            del self.holds[partition[0]]
        self.load -= 1
        self.peers.changed(self)

    def had(self, partition: Partition) -> bool:
        return partition[1] in self.spec.owned.get(partition[0], ())


class _Class:
    """Members with equal subscriptions, and which of them has the fewest partitions."""

    def __init__(self, topic_ids: frozenset[bytes], members: list[_Member]) -> None:
        self.topic_ids = topic_ids
        self.members = members
        self._heap: list[tuple[int, int, _Member]] = []
        for member in members:
            member.peers = self

    def changed(self, member: _Member) -> None:
        heappush(self._heap, (member.load, member.order, member))

    def fewest(self) -> _Member:
        """Entries that are no longer true are dropped when they come up."""
        heap = self._heap
        while heap[0][0] != heap[0][2].load:
            heappop(heap)
        return heap[0][2]


class _Spread:
    def __init__(self, members: Mapping[str, MemberSpec], topics: Mapping[bytes, TopicShape]) -> None:
        self._topics = topics
        self._members = {each: _Member(order, members[each]) for order, each in enumerate(sorted(members))}
        known = {topic_ids: topic_ids.intersection(topics) for topic_ids in {m.topic_ids for m in members.values()}}
        together: defaultdict[frozenset[bytes], list[_Member]] = defaultdict(list)
        for member in self._members.values():
            together[known[member.spec.topic_ids]].append(member)
        self._classes = [_Class(topic_ids, peers) for topic_ids, peers in together.items()]
        self._subscribers: defaultdict[bytes, list[_Class]] = defaultdict(list)
        for peers in self._classes:
            for topic_id in peers.topic_ids:
                self._subscribers[topic_id].append(peers)
        self._free = {topic_id: set(range(topics[topic_id].partitions)) for topic_id in self._subscribers}

    def keep(self) -> None:
        for member in self._members.values():
            for topic_id, owned in member.spec.owned.items():
                kept = self._free[topic_id] & owned if topic_id in member.peers.topic_ids else None
                if kept:
                    self._free[topic_id] -= kept
                    member.holds[topic_id] = kept
                    member.load += len(kept)
            member.peers.changed(member)

    def place(self) -> None:
        """Topics that few can read first: the others can still be spread around them."""

        def few_readers_first(topic_id: bytes) -> tuple[int, str, bytes]:
            readers = sum(len(peers.members) for peers in self._subscribers[topic_id])
            return readers, self._topics[topic_id].name, topic_id

        for topic_id in sorted(self._free, key=few_readers_first):
            for partition in sorted(self._free[topic_id]):
                fewest = min((peers.fewest() for peers in self._subscribers[topic_id]), key=_by_load)
                fewest.take((topic_id, partition))

    def level(self) -> None:
        """Every move brings loads nearer to each other, so this ends. A move may make another possible."""
        while self._level_once():
            pass

    def _level_once(self) -> bool:
        moved = False
        givers = [(-member.load, member.order, member) for member in self._members.values()]
        heapify(givers)
        while givers:
            load, _, giver = heappop(givers)
            if -load != giver.load:
                continue  # it has changed since, and has another entry
            fewer = [member for peers in self._classes if (member := peers.fewest()).load <= giver.load - 2]
            if not fewer:
                break  # and nobody after has more
            takers = [member for member in fewer if not member.peers.topic_ids.isdisjoint(giver.holds)]
            if takers:
                taker = min(takers, key=_by_load)
                self._move(giver, taker)
                moved = True
                for member in (giver, taker):
                    heappush(givers, (-member.load, member.order, member))
        return moved

    def _move(self, giver: _Member, taker: _Member) -> None:
        """What the giver did not have before goes first, then what it reads from another rack."""
        if giver.yields is None:
            held = [(topic_id, p) for topic_id, partitions in giver.holds.items() for p in partitions]
            giver.yields = sorted(held, key=lambda each: (not giver.had(each), not self._is_near(giver, each), each))
        readable = taker.peers.topic_ids
        place = next(at for at in reversed(range(len(giver.yields))) if giver.yields[at][0] in readable)
        partition = giver.yields.pop(place)
        giver.give(partition)
        taker.take(partition)

    def _is_near(self, member: _Member, partition: Partition) -> bool:
        return has_replica(self._topics[partition[0]], partition[1], member.spec.rack_id)

    def match_racks(self) -> None:
        for peers in self._classes:
            if len(peers.members) > 1 and any(member.spec.rack_id for member in peers.members):
                self._match_racks_of(peers.members)

    def _match_racks_of(self, members: list[_Member]) -> None:
        """They share out again what they did not have before. Their loads stay within one of each other."""
        fewest = min(member.load for member in members)
        loose: list[Partition] = []
        for member in members:
            new = [(t, p) for t, held in member.holds.items() for p in held if not member.had((t, p))]
            loose += new
            for partition in new:
                member.give(partition)
            member.yields = None
        loose.sort()
        racks = [self._racks_of(partition) for partition in loose]
        room = [fewest - member.load for member in members]
        takers = match_racks(racks, [member.spec.rack_id for member in members], room)
        for partition, taker in zip(loose, takers, strict=True):
            members[taker].take(partition)

    def _racks_of(self, partition: Partition) -> frozenset[str]:
        racks = self._topics[partition[0]].racks
        return racks[partition[1]] if partition[1] < len(racks) else frozenset()

    def result(self) -> Assignment:
        return {
            member_id: {topic_id: frozenset(held) for topic_id, held in sorted(member.holds.items())}
            for member_id, member in self._members.items()
        }


def _by_load(member: _Member) -> tuple[int, int]:
    return member.load, member.order
