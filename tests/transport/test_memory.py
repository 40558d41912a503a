"""The budget by itself: who gets memory, who waits, and who is called when some comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.memory import MemoryBudget


class FakeAsker:
    def __init__(self) -> None:
        self.called = 0

    def memory_returned(self) -> None:
        self.called += 1


def test_what_fits_is_taken_and_what_does_not_waits() -> None:
    budget, first, second = MemoryBudget(100), FakeAsker(), FakeAsker()
    assert budget.take(60, first)
    assert not budget.take(41, second)
    assert (budget.used, list(budget.waiting)) == (60, [second])
    budget.give_back(60)
    assert (budget.used, second.called) == (0, 1)
    assert budget.take(41, second)
    assert not budget.waiting


def test_more_than_the_limit_passes_when_nothing_else_is_in_flight() -> None:
    budget, asker = MemoryBudget(100), FakeAsker()
    assert budget.take(1000, asker)
    assert not budget.take(1, FakeAsker())


def test_nobody_passes_those_who_wait() -> None:
    budget, holder, patient, late = MemoryBudget(100), FakeAsker(), FakeAsker(), FakeAsker()
    assert budget.take(50, holder)
    assert not budget.take(60, patient)
    assert not budget.take(10, late)  # there is room for it, but not before the other
    budget.give_back(50)
    assert (patient.called, late.called) == (1, 0)
    assert not budget.take(10, late)
    assert budget.take(60, patient)
    assert late.called == 1
    assert budget.take(10, late)


def test_the_first_in_line_stays_the_first_if_there_is_still_no_room_for_it() -> None:
    budget, holder, patient, late = MemoryBudget(100), FakeAsker(), FakeAsker(), FakeAsker()
    assert budget.take(100, holder)
    assert not budget.take(90, patient)
    assert not budget.take(5, late)
    budget.give_back(20)
    assert not budget.take(90, patient)
    assert list(budget.waiting) == [patient, late]


def test_a_frame_that_holds_memory_goes_before_those_that_begin() -> None:
    budget, holder, growing, new = MemoryBudget(100), FakeAsker(), FakeAsker(), FakeAsker()
    assert budget.take(80, holder)
    assert budget.take(20, growing)
    assert not budget.take(20, new)
    budget.finishing = holder
    assert not budget.take_more(50, growing)
    assert list(budget.waiting) == [growing, new]
    budget.give_back(40)
    assert (growing.called, new.called) == (1, 0)


def test_one_frame_at_a_time_may_go_beyond_the_limit() -> None:
    budget, first, second = MemoryBudget(100), FakeAsker(), FakeAsker()
    assert budget.take(50, first)
    assert budget.take(50, second)
    assert budget.take_more(200, first)
    assert not budget.take_more(200, second)
    assert budget.take_more(300, first)
    budget.finished(second)
    assert not budget.take_more(200, second)
    called = second.called
    budget.finished(first)
    assert second.called == called + 1
    assert budget.take_more(200, second)


def test_who_leaves_the_line_lets_the_next_one_ask() -> None:
    budget, holder, gone, next_one = MemoryBudget(100), FakeAsker(), FakeAsker(), FakeAsker()
    assert budget.take(80, holder)
    assert not budget.take(90, gone)
    assert not budget.take(10, next_one)
    budget.leave(gone)
    assert next_one.called == 1
    assert budget.take(10, next_one)


def test_a_shortage_is_told_of_each_time() -> None:
    budget, told = MemoryBudget(100), []
    budget.on_shortage = lambda: told.append(1)
    budget.take(100, FakeAsker())
    budget.take(1, FakeAsker())
    budget.take_more(1, FakeAsker())  # may go beyond
    budget.take_more(1, FakeAsker())
    assert len(told) == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), max_size=60))
def test_a_frame_may_be_read_to_its_end_whatever_others_hold(script: list[tuple[int, int]]) -> None:
    """Six frames grow by turns. When all that can happen has happened, nobody waits, and nothing is left over."""
    budget = MemoryBudget(100)
    askers = [FakeAsker() for _ in range(6)]
    held = dict.fromkeys(range(6), 0)
    wanted: dict[int, int] = {}

    def ask(slot: int) -> None:
        take = budget.take_more if held[slot] else budget.take
        if take(wanted[slot], askers[slot]):
            held[slot] += wanted.pop(slot)

    def finish(slot: int) -> None:
        budget.finished(askers[slot])
        size, held[slot] = held[slot], 0
        budget.give_back(size)

    def ask_again_while_called() -> None:
        while ready := [s for s in list(wanted) if askers[s].called]:
            for slot in ready:
                askers[slot].called = 0
                ask(slot)

    for slot, size in script:
        if slot not in wanted:
            wanted[slot] = size
            ask(slot)
        ask_again_while_called()
        over = [s for s in range(6) if budget.finishing is askers[s]]
        others = sum(size for s, size in held.items() if s not in over)
        assert others <= 100 or len([s for s in held if held[s]]) == 1
    for _ in range(20):
        for slot in range(6):
            if held[slot] and slot not in wanted:
                finish(slot)
                ask_again_while_called()
    assert not wanted, "somebody waits for ever"
    assert not budget.waiting
    assert budget.used == sum(held.values()) == 0
