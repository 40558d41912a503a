from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS
from tests.machine import slowness

from .groups import Question, answered, by_id, check_complete, loads, member, near, questions, topic

UNIFORM = ASSIGNORS["uniform"]


@given(questions())
def test_every_partition_has_one_reader(question: Question) -> None:
    check_complete(question, UNIFORM.assign(*question))


@given(questions())
def test_no_partition_could_go_to_a_member_that_has_two_fewer(question: Question) -> None:
    assignment = UNIFORM.assign(*question)
    load = loads(assignment)
    for giver, taker in itertools.permutations(question.members, 2):
        if load[giver] >= load[taker] + 2:
            assert question.members[taker].topic_ids.isdisjoint(assignment[giver])


@given(questions(equal=True))
def test_members_with_equal_subscriptions_differ_by_one_at_most(question: Question) -> None:
    load = loads(UNIFORM.assign(*question)).values()
    assert max(load) - min(load) <= 1


@given(questions())
def test_what_is_balanced_already_does_not_change(question: Question) -> None:
    assignment = UNIFORM.assign(*question)
    assert UNIFORM.assign(*answered(question, assignment)) == assignment


def test_what_was_shared_out_by_racks_is_level_too() -> None:
    """The member in a rack has its fellow take other topics, of which one that reads less has none so far."""
    topics = [topic(0, 2), topic(1, 1), topic(2, 4), topic(3, 9)]
    members = {
        "member-0-1": member(*topics, owned={topics[2].topic_id: frozenset({0, 1, 2})}),
        "member-0-3": member(*topics, rack="east"),
        "member-0-4": member(topics[1], topics[2]),
        "member-1-0": member(topics[0], topics[1], topics[3]),
    }
    question = Question(members, by_id(*topics))
    assignment = UNIFORM.assign(*question)
    assert UNIFORM.assign(*answered(question, assignment)) == assignment


@given(questions())
def test_the_order_in_which_members_and_topics_are_given_does_not_matter(question: Question) -> None:
    members = dict(reversed(question.members.items()))
    topics = dict(reversed(question.topics.items()))
    assert UNIFORM.assign(members, topics) == UNIFORM.assign(*question)


@given(questions(equal=True), st.data())
def test_no_more_moves_than_balance_needs_when_a_member_goes(question: Question, data: st.DataObject) -> None:
    before = UNIFORM.assign(*question)
    group = answered(question, before)
    gone = data.draw(st.sampled_from(sorted(group.members)))
    rest = {member_id: spec for member_id, spec in group.members.items() if member_id != gone}
    after = UNIFORM.assign(rest, question.topics)
    for member_id in rest:
        for topic_id, partitions in before[member_id].items():
            assert partitions <= after[member_id][topic_id], "what was read by those who stay, they go on reading"


@given(questions(equal=True))
def test_no_more_moves_than_balance_needs_when_a_member_comes(question: Question) -> None:
    before = UNIFORM.assign(*question)
    group = answered(question, before)
    someone = next(iter(question.members.values()))
    members = {**group.members, "newcomer": someone._replace(instance_id=None, owned={})}
    after = UNIFORM.assign(members, question.topics)
    kept = sum(
        len(partitions & after[member_id].get(topic_id, frozenset()))
        for member_id, share in before.items()
        for topic_id, partitions in share.items()
    )
    assert kept == sum(loads(before).values()) - loads(after)["newcomer"]


def test_partitions_are_read_in_the_rack_that_has_them() -> None:
    orders = topic(1, 6, tuple(frozenset({rack}) for rack in ("a", "b", "b", "a", "a", "b")))
    members = {name: member(orders, rack=rack) for name, rack in (("m1", "a"), ("m2", "a"), ("m3", "b"), ("m4", "b"))}
    question = Question(members, by_id(orders))
    assignment = UNIFORM.assign(*question)
    assert near(question, assignment) == 6
    assert sorted(loads(assignment).values()) == [1, 1, 2, 2]


def test_balance_goes_before_racks() -> None:
    orders = topic(1, 4, (frozenset({"a"}),) * 4)
    question = Question({"m1": member(orders, rack="a"), "m2": member(orders, rack="b")}, by_id(orders))
    assert loads(UNIFORM.assign(*question)) == {"m1": 2, "m2": 2}


def test_what_moves_moves_to_its_rack_and_the_rest_stays() -> None:
    orders = topic(1, 4, (frozenset({"a"}), frozenset({"b"}), frozenset({"a"}), frozenset({"b"})))
    everything = {orders.topic_id: frozenset(range(4))}
    members = {"m1": member(orders, owned=everything, rack="a"), "m2": member(orders, rack="b")}
    assert UNIFORM.assign(members, by_id(orders)) == {
        "m1": {orders.topic_id: frozenset({0, 2})},
        "m2": {orders.topic_id: frozenset({1, 3})},
    }


@given(questions(equal=True))
def test_no_two_new_partitions_could_be_exchanged_to_be_nearer_both(question: Question) -> None:
    assignment = UNIFORM.assign(*question)
    new = [
        (member_id, topic_id, partition)
        for member_id, share in assignment.items()
        for topic_id, partitions in share.items()
        for partition in partitions - question.members[member_id].owned.get(topic_id, frozenset())
    ]

    def is_near(member_id: str, topic_id: bytes, partition: int) -> bool:
        racks = question.topics[topic_id].racks
        return partition < len(racks) and question.members[member_id].rack_id in racks[partition]

    for (one, *first), (other, *second) in itertools.combinations(new, 2):
        now = is_near(one, *first), is_near(other, *second)
        exchanged = is_near(one, *second), is_near(other, *first)
        assert not (now == (False, False) and exchanged == (True, True))


def test_a_thousand_members_of_two_thousand_partitions_take_well_under_a_second() -> None:
    topics = [topic(number, 100) for number in range(20)]
    members = {f"m{number}": member(*topics) for number in range(1000)}
    began = time.thread_time()
    first = UNIFORM.assign(members, by_id(*topics))
    again = UNIFORM.assign(*answered(Question(members, by_id(*topics)), first))
    assert time.thread_time() - began < 1 * slowness()
    assert again == first
