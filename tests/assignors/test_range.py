from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS
from tests.machine import slowness

from .groups import Question, answered, by_id, check_complete, member, questions, topic

RANGE = ASSIGNORS["range"]


@given(questions())
def test_every_partition_has_one_reader(question: Question) -> None:
    check_complete(question, RANGE.assign(*question))


@given(questions())
def test_of_a_topic_everyone_has_a_run_and_runs_differ_by_one_at_most(question: Question) -> None:
    assignment = RANGE.assign(*question)
    for topic_id in question.topics:
        readers = [each for each, spec in question.members.items() if topic_id in spec.topic_ids]
        runs = [sorted(assignment[each].get(topic_id, ())) for each in readers]
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)
        sizes = [len(run) for run in runs]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(questions(equal=True))
def test_topics_with_as_many_partitions_line_up(question: Question) -> None:
    assignment = RANGE.assign(*question)
    for share in assignment.values():
        for one, partitions in share.items():
            for other, shape in question.topics.items():
                read = all(other in spec.topic_ids for spec in question.members.values())
                if read and shape.partitions == question.topics[one].partitions:
                    assert share[other] == partitions


@given(questions())
def test_what_is_assigned_so_already_does_not_change(question: Question) -> None:
    assignment = RANGE.assign(*question)
    assert RANGE.assign(*answered(question, assignment)) == assignment


@given(questions())
def test_the_order_in_which_members_and_topics_are_given_does_not_matter(question: Question) -> None:
    members = dict(reversed(question.members.items()))
    topics = dict(reversed(question.topics.items()))
    assert RANGE.assign(members, topics) == RANGE.assign(*question)


@given(questions(equal=True), st.data())
def test_who_takes_the_place_of_a_member_takes_its_partitions(question: Question, data: st.DataObject) -> None:
    before = RANGE.assign(*question)
    group = answered(question, before)
    gone = data.draw(st.sampled_from(sorted(group.members)))
    spec = group.members.pop(gone)
    group.members["newcomer"] = spec._replace(instance_id=None, rack_id=None, owned={})
    after = RANGE.assign(*group)
    for member_id in before.keys() - {gone}:
        if before[member_id]:  # one that had nothing may find the place as well
            assert after[member_id] == before[member_id]


def test_a_new_group_is_seated_by_instance_id_and_then_by_member_id() -> None:
    orders = topic(1, 5)
    plain = member(orders)
    members = {
        "c": plain._replace(instance_id="i2"),
        "d": plain._replace(instance_id="i1"),
        "b": plain,
        "a": plain,
    }
    assignment = RANGE.assign(members, by_id(orders))
    assert {each: sorted(share[orders.topic_id]) for each, share in assignment.items()} == {
        "d": [0, 1],
        "c": [2],
        "a": [3],
        "b": [4],
    }


def test_members_are_seated_in_the_rack_that_has_the_partitions() -> None:
    orders = topic(1, 4, tuple(frozenset({rack}) for rack in "bbaa"))
    members = {"m1": member(orders, rack="a"), "m2": member(orders, rack="b")}
    assert RANGE.assign(members, by_id(orders)) == {
        "m1": {orders.topic_id: frozenset({2, 3})},
        "m2": {orders.topic_id: frozenset({0, 1})},
    }


def test_a_thousand_members_of_two_thousand_partitions_take_well_under_a_second() -> None:
    topics = [topic(number, 100) for number in range(20)]
    members = {f"m{number}": member(*topics) for number in range(1000)}
    began = time.thread_time()
    first = RANGE.assign(members, by_id(*topics))
    again = RANGE.assign(*answered(Question(members, by_id(*topics)), first))
    assert time.thread_time() - began < 1 * slowness()
    assert again == first
