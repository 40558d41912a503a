"""A machine lives as long as its broker leads the partition in one epoch; what it says is true on all replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.coordinator import loading, shard
from penstock.coordinator.machine import Outcome, ProducerStamp
from penstock.protocol.errors import ErrorCode
from penstock.storage.aborted import Marker
from penstock.storage.truncation import truncate_to
from tests.coordinator.engine import TOPIC, Engine
from tests.fakes import CountingMachine, eventually, number, turns, until

AWAY = ErrorCode.NOT_COORDINATOR
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def set_min_insync(engine: Engine, count: int) -> None:
    engine.held.settings.set_dynamic(cluster={"min.insync.replicas": str(count)}, broker={})


# ---- leading


async def test_a_partition_that_another_broker_leads_is_coordinated_there(engine: Engine) -> None:
    engine.elect(leader=2, epoch=1)
    assert engine.ask(1).value is AWAY
    assert engine.machines == []


async def test_a_partition_that_nobody_leads_is_coordinated_by_nobody(engine: Engine) -> None:
    engine.elect(leader=-1, epoch=1)
    assert engine.ask("read").value is AWAY


async def test_a_partition_without_a_replica_here_is_coordinated_elsewhere(engine: Engine) -> None:
    engine.held.image.drop_topic(TOPIC)
    assert engine.ask("read").value is AWAY


async def test_a_broker_that_begins_to_lead_loads_what_the_leader_before_has_written(engine: Engine) -> None:
    engine.elect(leader=2, epoch=1)
    engine.other_leader_writes(5, 6, epoch=1)
    engine.elect(leader=1, epoch=2)
    await until(lambda: len(engine.machines) == 1 and engine.machines[0].is_loaded)
    assert engine.machines[0].total == 11


async def test_a_partition_that_holds_nothing_is_loaded_when_it_is_asked(engine: Engine) -> None:
    engine.elect(leader=2, epoch=1)
    engine.elect(leader=1, epoch=2)
    await turns()
    assert engine.machines == []
    assert await engine.total() == 0


async def test_a_change_that_leaves_the_leader_leaves_the_machine(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    held = engine.ask("hold")
    engine.elect(leader=1, epoch=1, isr=(1,))
    assert held.value is None
    assert engine.runtime.shard(0).machine is machine


async def test_the_same_leader_in_another_epoch_begins_anew(engine: Engine) -> None:
    """In between another broker may have led, and this one has not heard of it."""
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    held = engine.ask("hold")
    engine.elect(leader=1, epoch=3)
    assert held.value is AWAY
    assert engine.runtime.shard(0).machine is not machine


# ---- losing the leadership


async def test_everyone_who_waits_is_sent_to_the_next_coordinator(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now + 20
    held = engine.ask("hold")
    appended, read = engine.ask(5), engine.ask("read")
    engine.elect(leader=2, epoch=2)
    assert held.value is appended.value is read.value is AWAY
    assert engine.ask("read").value is AWAY
    trace = list(machine.trace)
    await turns(50)
    assert (machine.trace, len(engine.machines)) == (trace, 1), "it has no timers, and is not loaded again"


async def test_leadership_that_is_lost_while_the_machine_decides_refuses_the_command(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()

    def decide(command: Any, outcome: Outcome) -> Outcome:
        engine.held.get(TOPIC).follow(2)
        return outcome

    machine.on_decide = decide
    assert engine.ask(5).value is AWAY
    assert "apply 5" not in machine.trace


async def test_a_leader_that_was_shown_a_later_epoch_is_no_coordinator_even_before_it_is_told(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    held = engine.ask("hold")
    engine.held.get(TOPIC).follow(1)
    assert engine.ask("read").value is AWAY
    assert held.value is AWAY
    assert machine.trace == ["decide hold"]


async def test_a_timer_of_a_leader_that_has_stepped_down_does_nothing(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now + 10
    held = engine.ask("hold")
    engine.held.get(TOPIC).follow(1)
    await eventually(lambda: held.value is not None)
    assert (held.value, machine.trace) == (AWAY, ["decide hold"])


async def test_a_load_ends_with_the_leadership_while_it_waits_for_other_replicas(engine: Engine) -> None:
    engine.elect(leader=2, epoch=1)
    engine.other_leader_writes(5, epoch=1)
    partition = engine.held.get(TOPIC)
    partition.high_watermark = 0
    engine.elect(leader=1, epoch=2)
    waiting = engine.ask("read")
    await turns()
    assert waiting.value is None
    task = engine.runtime.shard(0).loading
    engine.elect(leader=2, epoch=3)
    assert waiting.value is AWAY
    await until(task.done)
    assert not engine.machines[0].is_loaded


async def test_a_load_ends_with_the_leadership_in_the_middle_of_the_log(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOAD_CHUNK_BYTES", 200)
    engine.elect(leader=2, epoch=1)
    engine.other_leader_writes(*range(50), epoch=1)
    engine.elect(leader=1, epoch=2)
    engine.follower_fetches()
    waiting = engine.ask("read")
    (machine,) = engine.machines
    await until(lambda: len(machine.trace) > 5)
    engine.elect(leader=2, epoch=3)
    assert waiting.value is AWAY
    read = len(machine.trace)
    await turns()
    assert (len(machine.trace), machine.is_loaded) == (read, False)
    assert read < 50


async def test_a_load_notices_that_its_broker_has_stepped_down(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later epoch was shown to it, and it has not been told yet who leads."""
    monkeypatch.setattr(loading, "LOAD_CHUNK_BYTES", 200)
    engine.elect(leader=2, epoch=1)
    engine.other_leader_writes(*range(50), epoch=1)
    engine.elect(leader=1, epoch=2)
    engine.follower_fetches()
    waiting = engine.ask("read")
    (machine,) = engine.machines
    await until(lambda: len(machine.trace) > 5)
    engine.held.get(TOPIC).follow(2)
    await until(lambda: waiting.value is not None)
    assert (waiting.value, machine.is_loaded) == (AWAY, False)


async def test_a_commit_that_the_other_replicas_never_saw_is_not_confirmed_and_not_remembered(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    answer = engine.ask(5)
    engine.commit()
    assert (answer.value, machine.total) == (None, 5)
    engine.elect(leader=2, epoch=2)
    assert answer.value is AWAY
    truncate_to(engine.held.get(TOPIC).log, 0)
    engine.held.get(TOPIC).was_cut()
    engine.other_leader_writes(100, epoch=2)
    engine.elect(leader=1, epoch=3)
    engine.follower_fetches()
    assert await engine.total() == 100


async def test_a_commit_counts_when_the_follower_has_it(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    await engine.loaded()
    answer, read = engine.ask(5), engine.ask("read")
    engine.commit()
    assert answer.value is read.value is None, "only this broker has it"
    engine.follower_fetches()
    assert answer.value == read.value == 5


async def test_what_is_loaded_is_what_the_other_replicas_have(engine: Engine) -> None:
    """The log may end with what was never committed: until the others have it too, nobody may act on it."""
    engine.elect(leader=1, epoch=1)
    await engine.loaded()
    engine.ask(5)
    engine.commit()
    engine.elect(leader=1, epoch=2)
    read = engine.ask("read")
    await turns()
    assert read.value is None
    engine.follower_fetches()
    await until(lambda: read.value is not None)
    assert read.value == 5


async def test_the_topic_is_deleted_and_those_who_wait_for_others_are_told(engine: Engine) -> None:
    machine = await engine.loaded()
    held = engine.ask("hold")
    topic = engine.held.delete(TOPIC)
    engine.runtime.topic_deleted(topic)
    assert held.value is not None
    assert machine.trace == ["decide hold"]


# ---- too few, or too slow


async def test_a_commit_that_takes_long_is_given_up_by_who_waits_and_the_machine_goes_on(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    engine.runtime.commit_timeout_ms = 30
    machine = await engine.loaded()
    first = engine.ask(5)
    engine.commit()
    await eventually(lambda: first.value is not None)
    assert first.value is UNAVAILABLE
    second = engine.ask(6)
    engine.follower_fetches()
    assert second.value == 11, "the records were in the log, and are committed with all that follows"
    assert engine.runtime.shard(0).machine is machine


async def test_an_effect_waits_for_the_commit_however_long_it_takes(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    engine.runtime.commit_timeout_ms = 20
    machine = await engine.loaded()
    machine.on_decide = lambda command, _: Outcome([number(1)], [(command[0], "ok")], effects=["ring"])
    answer = engine.ask("anything")
    engine.commit()
    await eventually(lambda: answer.value is not None)
    assert (answer.value, engine.effects) == (UNAVAILABLE, [])
    engine.follower_fetches()
    assert engine.effects == [(0, "ring")]


async def test_with_too_few_replicas_what_appends_is_refused_and_nothing_is_lost(engine: Engine) -> None:
    set_min_insync(engine, 2)
    engine.elect(leader=1, epoch=1)
    machine = await engine.loaded()
    answer = engine.ask(5)
    engine.follower_fetches()
    assert answer.value == 5
    held = engine.ask("hold")
    engine.elect(leader=1, epoch=1, isr=(1,))
    assert engine.ask(6).value is UNAVAILABLE
    assert (engine.held.get(TOPIC).log.next_offset, held.value) == (1, None)
    assert engine.runtime.shard(0).machine is machine
    engine.elect(leader=1, epoch=1, isr=(1, 2))
    after = engine.ask(7)
    engine.follower_fetches()
    assert (after.value, held.value) == (12, 12)


async def test_with_too_few_replicas_time_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "TICK_AGAIN_S", 0.01)
    set_min_insync(engine, 2)
    engine.elect(leader=1, epoch=1, isr=(1,))
    machine = await engine.loaded()
    machine.on_tick = lambda now_ms: Outcome([number(7)])
    machine.deadline_ms = engine.clock.now
    engine.ask("read")
    await turns(50)
    assert "tick" not in machine.trace
    engine.elect(leader=1, epoch=1, isr=(1, 2))
    await eventually(lambda: "tick" in machine.trace)
    engine.follower_fetches()
    assert await engine.total() == 7


async def test_with_too_few_replicas_what_appends_unexpectedly_costs_the_machine(engine: Engine) -> None:
    set_min_insync(engine, 2)
    engine.elect(leader=1, epoch=1, isr=(1,))
    machine = await engine.loaded()
    machine.on_decide = lambda command, _: Outcome([number(1)], [(command[0], "ok")])
    assert engine.ask("anything").value is UNAVAILABLE
    assert "apply 1" not in machine.trace
    assert await engine.total() == 0


async def test_who_waits_for_a_load_that_takes_long_is_told_to_come_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "WAIT_FOR_LOAD_S_MAX", 0.02)
    engine.elect(leader=1, epoch=1)
    await engine.loaded()
    engine.ask(5)
    engine.commit()
    engine.elect(leader=1, epoch=2)
    early = engine.ask("read")
    await eventually(lambda: early.value is not None)
    assert early.value is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    late = engine.ask("read")
    engine.follower_fetches()
    await until(lambda: late.value is not None)
    assert late.value == 5


# ---- markers


def end(engine: Engine, epoch: int = 1, *, bumped: bool = False) -> list[Any]:
    done: list[Any] = []
    engine.runtime.end_transaction(
        0, ProducerStamp(7, epoch), Marker(True, 0), lambda error: done.append(error.code if error else None),
        bumped=bumped,
    )  # fmt: skip
    return done


def begin(engine: Engine, epoch: int, value: int = 5) -> Any:
    """A producer's records, which it was let in for."""
    partition = engine.held.get(TOPIC)
    partition.admission.verified(7, epoch, partition.admission.begin(7))
    machine = engine.machines[-1]
    original: Callable[..., Outcome] = machine.on_decide
    machine.on_decide = lambda command, _: Outcome(
        [number(value)], [(command[0], "pending")], producer=ProducerStamp(7, epoch)
    )
    answer = engine.ask("anything")
    machine.on_decide = original
    return answer


async def test_a_marker_is_there_when_the_follower_has_it(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    await engine.loaded()
    begin(engine, 0)
    done = end(engine)
    engine.commit()
    assert done == []
    engine.follower_fetches()
    assert done == [None]


async def test_a_marker_that_is_lost_with_the_leadership_is_reported_as_that(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    await engine.loaded()
    begin(engine, 0)
    done = end(engine)
    engine.commit()
    engine.elect(leader=2, epoch=2)
    assert done == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert end(engine) == [AWAY]


async def test_with_too_few_replicas_a_marker_is_refused(engine: Engine) -> None:
    set_min_insync(engine, 2)
    engine.elect(leader=1, epoch=1)
    await engine.loaded()
    begin(engine, 0)
    engine.follower_fetches()
    engine.elect(leader=1, epoch=1, isr=(1,))
    assert end(engine) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert engine.held.get(TOPIC).log.next_offset == 1


async def test_a_marker_that_comes_twice_does_not_end_the_next_transaction(engine: Engine) -> None:
    """With transactions of version 2 the next one has the epoch that the marker of this one carries (KIP-890)."""
    await engine.loaded()
    begin(engine, 0, 5)
    done = end(engine, 1, bumped=True)
    engine.commit()
    assert done == [None]
    again = end(engine, 1, bumped=True)
    engine.commit()
    assert again == [None], "nothing is open: it is written again, and means nothing"
    begin(engine, 1, 60)
    assert end(engine, 1, bumped=True) == [ErrorCode.INVALID_PRODUCER_EPOCH], "not even before that is written"
    engine.commit()
    assert end(engine, 1, bumped=True) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await engine.total() == 5
    end(engine, 2, bumped=True)
    engine.commit()
    assert await engine.total() == 65


async def test_a_marker_that_was_lost_can_be_written_again(engine: Engine) -> None:
    """The producer is known by the marker's epoch from then on, and its transaction is open all the same."""
    await engine.loaded()
    begin(engine, 0, 5)
    engine.commit()
    engine.disk.fail_write = 0
    lost = end(engine, 1, bumped=True)
    engine.write()
    engine.disk.heal()
    assert lost == [ErrorCode.KAFKA_STORAGE_ERROR]
    await engine.loaded()
    done = end(engine, 1, bumped=True)
    engine.commit()
    assert done == [None]
    assert await engine.total() == 5


# ---- what needs a proof


def prove(machine: CountingMachine) -> None:
    """From now on whatever is asked for as "anything" is answered with the total, behind a proof."""
    machine.on_decide = lambda command, outcome: replace(outcome, proof=number(0))


async def test_an_answer_that_needs_a_proof_waits_for_the_other_replicas(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    prove(await engine.loaded())
    answer = engine.ask("anything")
    engine.commit()
    assert answer.value is None, "another may lead by now"
    engine.follower_fetches()
    assert answer.value == 0
    assert engine.held.get(TOPIC).log.end_offset == 1


async def test_a_leader_that_was_replaced_gives_no_answer_that_needs_a_proof(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    engine.runtime.commit_timeout_ms = 20
    prove(await engine.loaded())
    unheard, answer = engine.ask("anything"), engine.ask("anything")
    await eventually(lambda: answer.value is not None)
    assert unheard.value is answer.value is UNAVAILABLE
    last = engine.ask("anything")
    engine.elect(leader=2, epoch=2)
    assert last.value is AWAY


async def test_what_is_appended_with_an_answer_is_its_proof(engine: Engine) -> None:
    engine.elect(leader=1, epoch=1)
    prove(await engine.loaded())
    answer = engine.ask(5)
    engine.follower_fetches()
    assert answer.value == 5
    assert engine.held.get(TOPIC).log.end_offset == 1


async def test_with_too_few_replicas_nothing_can_be_proven_and_the_machine_goes_on(engine: Engine) -> None:
    set_min_insync(engine, 2)
    engine.elect(leader=1, epoch=1, isr=(1,))
    machine = await engine.loaded()
    prove(machine)
    assert engine.ask("anything").value is UNAVAILABLE
    assert engine.held.get(TOPIC).log.end_offset == 0
    assert engine.runtime.shard(0).machine is machine


async def test_the_only_replica_needs_no_proof(engine: Engine) -> None:
    prove(await engine.loaded())
    assert engine.ask("anything").value == 0
    assert engine.held.get(TOPIC).log.next_offset == 0
