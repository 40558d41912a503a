"""A broker that has answered looks for the next request for a while before it sleeps, unless others are at work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from penstock.transport.turn import Turn
from tests.fakes import FakeLoop

MICROSECONDS = 50


class Loop(FakeLoop):
    """Goes round as often as something is due, and says how often that was."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self._due.append(lambda: callback(*arguments))

    def rounds(self, each: Callable[[], None] = lambda: None) -> int:
        count = 0
        while self._due:
            due, self._due = self._due, []
            for callback in due:
                callback()
            each()
            count += 1
        return count


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def pass_10_us(self) -> None:
        self.now_ns += 10_000


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def turn(loop: Loop) -> Turn:
    return Turn(loop)  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock.now_ns)
    return clock


def test_it_sleeps_at_once_unless_told(loop: Loop, turn: Turn) -> None:
    turn.schedule()
    assert loop.rounds() == 1


def test_it_looks_again_until_the_time_is_over(loop: Loop, turn: Turn, clock: Clock) -> None:
    turn.stay_awake(MICROSECONDS, lambda: False)
    turn.schedule()
    assert loop.rounds(clock.pass_10_us) == 6
    turn.schedule()
    assert loop.rounds(clock.pass_10_us) == 6


def test_the_next_request_begins_the_time_anew_and_nothing_runs_twice(loop: Loop, turn: Turn, clock: Clock) -> None:
    turn.stay_awake(MICROSECONDS, lambda: False)
    asked: list[int] = []

    def ask_once() -> None:
        clock.pass_10_us()
        asked.append(clock.now_ns)
        if len(asked) == 4:
            turn.schedule()

    turn.schedule()
    assert loop.rounds(ask_once) == 10
    assert clock.now_ns == 100_000


def test_it_sleeps_while_another_thread_works(loop: Loop, turn: Turn, clock: Clock) -> None:
    busy = [False, False, True]
    turn.stay_awake(MICROSECONDS, lambda: busy.pop(0))
    turn.schedule()
    assert loop.rounds(clock.pass_10_us) == 4
    assert busy == []


@pytest.mark.parametrize(("gives_way", "looks"), [(True, 4), (False, 0)])
def test_where_others_need_the_core_each_look_gives_it_to_them(
    loop: Loop, turn: Turn, clock: Clock, monkeypatch: pytest.MonkeyPatch, gives_way: bool, looks: int
) -> None:
    given: list[int] = []
    monkeypatch.setattr(os, "sched_yield", lambda: given.append(clock.now_ns))
    turn.stay_awake(MICROSECONDS, lambda: False, gives_way=gives_way)
    turn.schedule()
    loop.rounds(clock.pass_10_us)
    assert len(given) == looks
