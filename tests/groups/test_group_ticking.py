"""Many things are due at once, in one group or in many."""

from group_engine import REBALANCE_MS, SESSION_MS, GroupEngine

from penstock.groups.config import GroupConfig
from penstock.groups.states import State
from penstock.protocol.messages.leave_group import MemberIdentity


def test_what_is_due_in_a_group_whose_record_is_not_applied_yet_is_put_off() -> None:
    engine = GroupEngine()
    engine.stable_group("a", session_ms=REBALANCE_MS * 2)
    came, _ = engine.enter("b")
    engine.leave(MemberIdentity(member_id=came))
    assert engine.state is State.PREPARING_REBALANCE
    engine.advance(REBALANCE_MS - SESSION_MS)
    engine.join(client="c")
    engine.advance(SESSION_MS)  # the join phase ends with nobody, and the pending member's session with it
    assert engine.state is State.EMPTY
    assert not engine.group.pending
    assert engine.group.generation_id == 2


def test_many_groups_that_empty_at_once_are_written_in_as_many_appends_as_it_takes() -> None:
    engine = GroupEngine(GroupConfig(initial_rebalance_delay_ms=0, append_max_bytes=2**18))
    names = [f"{n:02}" + "g" * 30_000 for n in range(20)]
    for name in names:
        member, _ = engine.enter("a", group=name)
        engine.advance()
        engine.sync(member, 1, group=name)
    engine.advance(SESSION_MS)
    assert {engine.machine.groups[name].state for name in names} == {State.EMPTY}


def test_a_late_tick_does_all_that_was_due() -> None:
    engine = GroupEngine()
    engine.stable_group("a", "b", "c")
    engine.join(client="d")
    engine.now_ms += 100 * REBALANCE_MS
    engine.advance()
    assert engine.state is State.EMPTY
    assert not engine.group.members


def test_an_idle_machine_waits_for_nothing_but_the_expiry_check() -> None:
    engine = GroupEngine()
    assert engine.machine.next_deadline_ms() == engine.config.offsets_retention_check_interval_ms


def test_a_tick_too_early_does_nothing() -> None:
    engine = GroupEngine()
    engine.stable_group("a")
    outcome = engine.machine.tick(engine.now_ms)
    assert (outcome.records, outcome.replies) == ([], [])
