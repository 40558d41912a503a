import pytest

from penstock.groups.states import TRANSITIONS, Event, State, after


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_only_what_the_table_holds_may_happen() -> None:
    for state in State:
        for event in Event:
            if event in TRANSITIONS[state]:
                assert after(state, event) is TRANSITIONS[state][event]
            else:
                with pytest.raises(AssertionError, match=event.name):
                    after(state, event)


def test_nothing_leads_out_of_dead() -> None:
    assert TRANSITIONS[State.DEAD] == {}


def test_every_other_state_can_reach_every_state() -> None:
    for start in set(State) - {State.DEAD}:
        reached, frontier = {start}, [start]
        while frontier:
            for to in TRANSITIONS[frontier.pop()].values():
                if to not in reached:
                    reached.add(to)
                    frontier.append(to)
        assert reached == set(State)


def test_a_rebalance_goes_round_from_stable_to_stable() -> None:
    state = State.STABLE
    for event in (Event.REBALANCE, Event.MEMBERS_JOINED, Event.ASSIGNMENT_STORED):
        state = after(state, event)
    assert state is State.STABLE
