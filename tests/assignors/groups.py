"""Random groups for the assignors, and what can be said of an assignment whoever made it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import strategies as st

from penstock.groups.assignors import Assignment, MemberSpec, TopicShape

RACKS = ("east", "north", "west")


class Question(NamedTuple):
    members: dict[str, MemberSpec]
    topics: dict[bytes, TopicShape]


def topic(number: int, partitions: int, racks: tuple[frozenset[str], ...] = ()) -> TopicShape:
    return TopicShape(number.to_bytes(16, "big"), f"topic-{number}", partitions, racks)


def by_id(*topics: TopicShape) -> dict[bytes, TopicShape]:
    return {each.topic_id: each for each in topics}


def member(
    *topics: TopicShape, owned: Mapping[bytes, frozenset[int]] | None = None, rack: str | None = None
) -> MemberSpec:
    return MemberSpec(None, rack, frozenset(each.topic_id for each in topics), owned or {})


def answered(question: Question, assignment: Assignment) -> Question:
    """The same group when everyone has what it was given."""
    members = {each: spec._replace(owned=assignment[each]) for each, spec in question.members.items()}
    return Question(members, question.topics)


def loads(assignment: Assignment) -> dict[str, int]:
    return {member_id: sum(map(len, share.values())) for member_id, share in assignment.items()}


def near(question: Question, assignment: Assignment) -> int:
    """How many partitions are read within a rack."""
    return sum(
        question.members[member_id].rack_id in question.topics[topic_id].racks[partition]
        for member_id, share in assignment.items()
        for topic_id, partitions in share.items()
        for partition in partitions
        if partition < len(question.topics[topic_id].racks)
    )


def check_complete(question: Question, assignment: Assignment) -> None:
    """Everything that anyone reads is assigned once, and to one who reads it."""
    assert assignment.keys() == question.members.keys()
    given: Counter[tuple[bytes, int]] = Counter()
    for member_id, share in assignment.items():
        assert share.keys() <= question.members[member_id].topic_ids
        assert all(share.values()), "a topic without partitions has no entry"
        given.update((topic_id, partition) for topic_id, partitions in share.items() for partition in partitions)
    read = {topic_id for spec in question.members.values() for topic_id in spec.topic_ids} & question.topics.keys()
    wanted = {(topic_id, index) for topic_id in read for index in range(question.topics[topic_id].partitions)}
    assert given == Counter(wanted)


@st.composite
def questions(draw: st.DrawFn, *, equal: bool = False, racks: bool = True) -> Question:
    """Members come with what they might claim to have: some of it gone, some claimed by others as well."""
    topics = by_id(*(draw(shapes(number, racks=racks)) for number in range(draw(st.integers(1, 5)))))
    every = sorted(topics)
    unknown = (99).to_bytes(16, "big")
    shared = frozenset(draw(st.sets(st.sampled_from(every), min_size=1)))
    members = {}
    for number in range(draw(st.integers(1, 8))):
        subscription = shared if equal else frozenset(draw(st.sets(st.sampled_from([*every, unknown]))))
        claims = draw(st.dictionaries(st.sampled_from([*every, unknown]), st.frozensets(st.integers(0, 9), max_size=6)))
        instance_id = draw(st.one_of(st.none(), st.just(f"instance-{draw(st.integers(0, 99))}-{number}")))
        rack_id = draw(st.one_of(st.none(), st.sampled_from(RACKS))) if racks else None
        members[f"member-{draw(st.integers(0, 99))}-{number}"] = MemberSpec(instance_id, rack_id, subscription, claims)
    return Question(members, topics)


@st.composite
def shapes(draw: st.DrawFn, number: int, *, racks: bool) -> TopicShape:
    partitions = draw(st.integers(0, 9))
    known = racks and draw(st.booleans())
    of_partition = st.frozensets(st.sampled_from(RACKS), max_size=2)
    return topic(number, partitions, tuple(draw(of_partition) for _ in range(partitions)) if known else ())
