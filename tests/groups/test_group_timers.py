from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.timers import SLACK, Kind, Timer, Timers


def test_nothing_is_due_when_nothing_runs() -> None:
    timers = Timers()
    assert timers.next_deadline_ms() is None
    assert timers.pop_due(10**9) is None


def test_timers_come_due_in_the_order_of_their_deadlines() -> None:
    timers, first, second = Timers(), Timer(Kind.JOIN), Timer(Kind.SYNC)
    timers.start(second, 20)
    timers.start(first, 10)
    assert timers.next_deadline_ms() == 10
    assert timers.pop_due(9) is None
    assert timers.pop_due(20) is first
    assert timers.pop_due(20) is second
    assert timers.pop_due(20) is None


def test_a_deadline_moves_later_and_earlier() -> None:
    timers, timer = Timers(), Timer(Kind.SESSION)
    timers.start(timer, 10)
    timers.start(timer, 30)
    assert timers.next_deadline_ms() == 30
    timers.start(timer, 20)
    assert timers.next_deadline_ms() == 20
    assert timers.pop_due(20) is timer
    assert timers.next_deadline_ms() is None


def test_a_cancelled_timer_is_never_due() -> None:
    timers, timer = Timers(), Timer(Kind.SESSION)
    timers.start(timer, 10)
    timers.cancel(timer)
    timers.cancel(timer)
    assert timers.next_deadline_ms() is None


def test_moving_a_deadline_later_does_not_touch_the_heap() -> None:
    timers, timer = Timers(), Timer(Kind.SESSION)
    for deadline_ms in range(10_000):
        timers.start(timer, deadline_ms)
    assert len(timers._heap) == 1


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for n in range(10_000):
        timer = Timer(Kind.SESSION, member_id=str(n))
        timers.start(timer, 1_000_000 + n)
        timers.cancel(timer)
    assert len(timers._heap) <= SLACK + 2


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("start"), st.integers(0, 5), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("advance"), st.just(0), st.integers(0, 20)),
        ),
        max_size=200,
    )
)
def test_the_heap_agrees_with_a_plain_table(steps: list[tuple[str, int, int]]) -> None:
    timers, all_timers = Timers(), [Timer(Kind.SESSION, member_id=str(n)) for n in range(6)]
    deadlines: dict[int, int] = {}
    now_ms = 0
    for step, which, by_ms in steps:
        if step == "start":
            deadlines[which] = now_ms + by_ms
            timers.start(all_timers[which], now_ms + by_ms)
        elif step == "cancel":
            deadlines.pop(which, None)
            timers.cancel(all_timers[which])
        else:
            now_ms += by_ms
            due = set()
            while (timer := timers.pop_due(now_ms)) is not None:
                due.add(int(timer.member_id))
            assert due == {n for n, deadline_ms in deadlines.items() if deadline_ms <= now_ms}
            deadlines = {n: deadline_ms for n, deadline_ms in deadlines.items() if deadline_ms > now_ms}
        assert timers.next_deadline_ms() == min(deadlines.values(), default=None)
