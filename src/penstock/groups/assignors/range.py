"""The range assignor: of each topic, every subscriber gets a run of partitions that follow each other.

A topic with n subscribers is cut into n slots, the first ones a partition longer if it does not divide. Topics with the
same subscribers share the question who has which slot, so that of topics with as many partitions each, a member gets
the same numbers: records with one key, in either topic, come to one member.

Who has which slot: first, members stay where most of what they have lies; then they go where most partitions have a
replica in their rack; the rest in the order of their instance ids, then of their member ids.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from penstock.groups.assignors.spec import Assignment, MemberSpec, TopicShape

Members = Mapping[str, MemberSpec]


class RangeAssignor:
    def assign(self, members: Members, topics: Mapping[bytes, TopicShape]) -> Assignment:
        assignment: Assignment = {member_id: {} for member_id in members}
        for subscribers, shared in _by_subscribers(members, topics):
            seated = _seats(subscribers, members, shared)
            for topic in shared:
                bounds = _bounds(topic.partitions, len(seated))
                for member_id, first, end in zip(seated, bounds, bounds[1:]):
                    assignment[member_id][topic.topic_id] = frozenset(range(first, end))
        return assignment


def _by_subscribers(members: Members, topics: Mapping[bytes, TopicShape]) -> list[tuple[list[str], list[TopicShape]]]:
    """Topics with the same subscribers; the subscribers in their order."""
    rank = {member_id: rank for rank, member_id in enumerate(sorted(members, key=partial(_order, members)))}
    alike: defaultdict[frozenset[bytes], list[str]] = defaultdict(list)
    for member_id in rank:
        alike[members[member_id].topic_ids].append(member_id)
    readers: defaultdict[bytes, list[frozenset[bytes]]] = defaultdict(list)  # subscriptions that name the topic
    for topic_ids in alike:
        for topic_id in topic_ids.intersection(topics):
            readers[topic_id].append(topic_ids)
    together: defaultdict[tuple[frozenset[bytes], ...], list[TopicShape]] = defaultdict(list)
    for topic_id in sorted(readers):
        together[tuple(readers[topic_id])].append(topics[topic_id])
    return [
        (sorted(chain.from_iterable(alike[topic_ids] for topic_ids in key), key=rank.__getitem__), shared)
        for key, shared in together.items()
    ]


def _order(members: Members, member_id: str) -> tuple[bool, str, str]:
    """Those with an instance id first: they come back under it, and the order stays what it was."""
    instance_id = members[member_id].instance_id
    return instance_id is None, instance_id or "", member_id


def _bounds(partitions: int, slots: int) -> list[int]:
    """Where each slot that holds anything begins, and where the last one ends."""
    width, longer = divmod(partitions, slots)
    return [slot * width + min(slot, longer) for slot in range(min(slots, partitions) + 1)]


def _seats(subscribers: Sequence[str], members: Members, topics: Sequence[TopicShape]) -> list[str]:
    """Who has slot 0, slot 1 and so on."""
    bounds = {topic.topic_id: _bounds(topic.partitions, len(subscribers)) for topic in topics}
    seats: dict[int, str] = {}
    waiting = dict.fromkeys(subscribers)
    for member_id, slot in _where_they_are(subscribers, members, bounds):
        if member_id in waiting and slot not in seats:
            seats[slot] = member_id
            del waiting[member_id]
    _seat_by_rack(seats, waiting, members, topics, bounds)
    rest = iter(waiting)
    return [seats[slot] if slot in seats else next(rest) for slot in range(len(subscribers))]


def _where_they_are(
    subscribers: Sequence[str], members: Members, bounds: Mapping[bytes, list[int]]
) -> list[tuple[str, int]]:
    """Members and slots in which they have something, those who have most there first."""
    overlaps: Counter[tuple[int, int]] = Counter()
    for place, member_id in enumerate(subscribers):
        for topic_id, owned in members[member_id].owned.items():
            starts = bounds.get(topic_id, [0])
            for partition in owned:
                if 0 <= partition < starts[-1]:
                    overlaps[place, bisect_right(starts, partition) - 1] += 1
    best_first = sorted(overlaps.items(), key=lambda item: (-item[1], item[0]))
    return [(subscribers[place], slot) for (place, slot), _ in best_first]


def _seat_by_rack(
    seats: dict[int, str],
    waiting: dict[str, None],
    members: Members,
    topics: Sequence[TopicShape],
    bounds: Mapping[bytes, list[int]],
) -> None:
    """Of those who wait, each to the free slot that has most replicas in its rack."""
    of_rack: defaultdict[str, list[str]] = defaultdict(list)
    for member_id in reversed(waiting):
        if rack_id := members[member_id].rack_id:
            of_rack[rack_id].append(member_id)
    if not of_rack:
        return
    replicas: Counter[tuple[int, str]] = Counter()
    for topic in topics:
        starts = bounds[topic.topic_id]
        for partition, racks in enumerate(topic.racks[: topic.partitions]):
            slot = bisect_right(starts, partition) - 1
            replicas.update((slot, rack_id) for rack_id in racks if slot not in seats and rack_id in of_rack)
    for (slot, rack_id), _ in sorted(replicas.items(), key=lambda item: (-item[1], item[0])):
        if slot not in seats and of_rack[rack_id]:
            seats[slot] = member_id = of_rack[rack_id].pop()
            del waiting[member_id]
