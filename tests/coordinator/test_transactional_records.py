"""Records that are part of a producer's transaction, the markers that end it, and effects beyond the log."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.coordinator.machine import Outcome, ProducerStamp
from penstock.protocol.errors import ErrorCode
from penstock.storage.aborted import Marker
from tests.coordinator.engine import TOPIC, Answer, Engine
from tests.fakes import CountingMachine, eventually, number, turns, until

PRODUCER = ProducerStamp(7, 0)
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


def admit(engine: Engine, producer: ProducerStamp = PRODUCER) -> None:
    """As the handler does when the coordinator of the transaction knows of the partition."""
    partition = engine.held.get(TOPIC)
    partition.admission.verified(*producer, partition.admission.begin(producer.producer_id))


def add(engine: Engine, machine: CountingMachine, *values: int, producer: ProducerStamp = PRODUCER) -> Answer:
    def decide(command: Any, now_ms: int) -> Outcome:
        return Outcome([number(value) for value in values], [(command[0], "pending")], producer=producer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "decide", decide)
        return engine.ask("in a transaction")


def end(engine: Engine, marker: Marker, producer: ProducerStamp = PRODUCER) -> list[Any]:
    done: list[Any] = []
    engine.runtime.end_transaction(0, producer, marker, lambda error: done.append(error.code if error else None))
    return done


# ---- records in a transaction


@pytest.mark.parametrize(("marker", "total"), [(COMMIT, 5), (ABORT, 0)])
async def test_records_of_a_transaction_count_when_it_is_committed(engine: Engine, marker: Marker, total: int) -> None:
    machine = await engine.loaded()
    admit(engine)
    answer = add(engine, machine, 2, 3)
    engine.commit()
    assert (answer.value, machine.total) == ("pending", 0)
    done = end(engine, marker)
    assert (machine.total, done) == (total, []), "told when the marker is committed"
    engine.write()
    assert done == []
    engine.held.committer.end_all()
    assert done == [None]
    for cleanly in (True, False):
        engine.start_again(cleanly=cleanly)
        assert await engine.total() == total


async def test_a_transaction_that_is_open_is_found_again_and_can_be_ended(engine: Engine) -> None:
    machine = await engine.loaded()
    admit(engine)
    add(engine, machine, 4)
    engine.ask(100)
    engine.commit()
    engine.start_again(cleanly=False)
    assert await engine.total() == 100
    end(engine, COMMIT)
    engine.commit()
    assert await engine.total() == 104


async def test_in_the_log_they_are_a_batch_of_the_producer_without_a_sequence(engine: Engine) -> None:
    machine = await engine.loaded()
    admit(engine)
    add(engine, machine, 1, 2)
    engine.commit()
    partition = engine.held.get(TOPIC)
    (batch,) = partition.log.segments[0].batches(0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count) == (7, 0, -1, 2)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 2)
    end(engine, COMMIT)
    engine.commit()
    assert partition.last_stable_offset == partition.high_watermark == 3


async def test_many_commands_may_add_to_one_transaction(engine: Engine) -> None:
    machine = await engine.loaded()
    admit(engine)
    answers = [add(engine, machine, value) for value in (1, 20, 300)]
    engine.commit()
    assert [answer.value for answer in answers] == ["pending"] * 3
    end(engine, COMMIT)
    engine.commit()
    assert await engine.total() == 321


async def test_a_producer_that_was_not_let_in_is_refused_and_harms_nobody(engine: Engine) -> None:
    machine = await engine.loaded()
    waiting = engine.ask(1)
    assert add(engine, machine, 5).value is ErrorCode.INVALID_TXN_STATE
    engine.commit()
    assert waiting.value == 1
    assert len(engine.machines) == 1, "nothing is wrong with the machine"
    assert engine.held.get(TOPIC).log.end_offset == 1


async def test_a_zombie_is_refused_and_harms_nobody(engine: Engine) -> None:
    machine = await engine.loaded()
    newer = ProducerStamp(7, 3)
    admit(engine, newer)
    add(engine, machine, 5, producer=newer)
    assert add(engine, machine, 6).value is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(engine, COMMIT) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    end(engine, COMMIT, newer)
    engine.commit()
    assert await engine.total() == 5
    assert len(engine.machines) == 1


async def test_behind_its_marker_a_producer_must_be_let_in_again(engine: Engine) -> None:
    machine = await engine.loaded()
    admit(engine)
    add(engine, machine, 5)
    end(engine, COMMIT)
    assert add(engine, machine, 6).value is ErrorCode.INVALID_TXN_STATE
    engine.commit()
    assert await engine.total() == 5


# ---- markers


async def test_a_marker_waits_for_the_load_in_its_place(engine: Engine) -> None:
    machine = await engine.loaded()
    admit(engine)
    add(engine, machine, 5)
    engine.commit()
    engine.start_again()
    before, done, after = engine.ask("read"), end(engine, COMMIT), engine.ask("read")
    assert done == []
    await engine.loaded()
    engine.commit()
    assert (before.value, done, after.value) == (0, [None], 5)


async def test_a_marker_that_is_lost_is_reported_and_the_transaction_is_open_again(engine: Engine) -> None:
    machine = await engine.loaded()
    admit(engine)
    add(engine, machine, 5)
    engine.commit()
    engine.disk.fail_write = 0
    done = end(engine, COMMIT)
    engine.write()
    engine.disk.heal()
    assert done == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await engine.total() == 0
    assert engine.held.get(TOPIC).last_stable_offset == 0
    done = end(engine, COMMIT)
    engine.commit()
    assert done == [None]
    assert await engine.total() == 5


async def test_a_marker_for_a_partition_that_is_not_there_is_refused(engine: Engine) -> None:
    done: list[Any] = []
    engine.runtime.end_transaction(99, PRODUCER, COMMIT, done.append)
    assert [error.code for error in done] == [ErrorCode.NOT_COORDINATOR]


async def test_markers_of_producers_that_hold_nothing_here_change_nothing(engine: Engine) -> None:
    await engine.loaded()
    engine.ask(3)
    end(engine, ABORT, ProducerStamp(9, 9))
    engine.commit()
    engine.start_again(cleanly=False)
    assert await engine.total() == 3


# ---- effects


async def test_an_effect_is_carried_out_when_its_records_are_committed(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.on_decide = lambda command, _: Outcome([number(1)], [(command[0], "ok")], effects=["ring"])
    answer = engine.ask("anything")
    engine.write()
    assert (engine.effects, answer.value) == ([], None)
    engine.held.committer.end_all()
    assert (engine.effects, answer.value) == ([(0, "ring")], "ok")


async def test_an_effect_of_records_that_are_lost_is_not_carried_out(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.on_decide = lambda command, _: Outcome([number(1)], [(command[0], "ok")], effects=["ring"])
    answer = engine.ask("anything")
    engine.disk.fail_write = 0
    engine.write()
    engine.disk.heal()
    await turns()
    assert (engine.effects, answer.value) == ([], ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_what_a_machine_finds_to_do_when_it_is_loaded_is_done(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(self: CountingMachine, now_ms: int) -> Outcome:
        self.is_loaded = True
        return Outcome(effects=[f"again, at {self.total}"])

    await engine.loaded()
    engine.ask(5)
    engine.commit()
    monkeypatch.setattr(CountingMachine, "loaded", loaded)
    engine.start_again()
    await engine.loaded()
    assert engine.effects == [(0, "again, at 5")]


# ---- commands that had to wait for records


def hold_until(engine: Engine, machine: CountingMachine, asked: int) -> Answer:
    """A command that is decided again, as a question for the sum, when another has been."""
    held = engine.ask("hold")
    ticket = machine.held.pop()

    def decide(command: Any, outcome: Outcome) -> Outcome:
        if command[1] == asked:
            outcome.again.append((ticket, "read"))
        return outcome

    machine.on_decide = decide
    return held


async def test_commands_are_decided_again_behind_the_records_that_they_waited_for(engine: Engine) -> None:
    machine = await engine.loaded()
    held = hold_until(engine, machine, 5)
    answer = engine.ask(5)
    assert machine.trace[-3:] == ["decide 5", "apply 5", "decide read"]
    engine.commit()
    assert (answer.value, held.value) == (5, 5)


async def test_what_is_decided_again_is_told_if_the_records_are_lost(engine: Engine) -> None:
    machine = await engine.loaded()
    held = hold_until(engine, machine, 5)
    answer = engine.ask(5)
    engine.disk.fail_write = 0
    engine.write()
    engine.disk.heal()
    assert answer.value is held.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await engine.total() == 0


# ---- a machine that was dropped


async def test_a_machine_that_was_dropped_comes_back_without_being_asked(engine: Engine) -> None:
    """It has deadlines to keep, and decisions to carry out, whether anyone asks or not."""
    await engine.loaded()
    engine.ask(100)
    engine.commit()
    engine.ask(1)
    engine.disk.fail_write = 0
    engine.write()
    engine.disk.heal()
    await eventually(lambda: len(engine.machines) > 1 and engine.machines[-1].is_loaded)
    assert engine.machines[-1].total == 100
    await until(lambda: engine.runtime.shard(0).machine is engine.machines[-1])
