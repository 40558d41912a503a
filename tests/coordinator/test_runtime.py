"""The engine: a machine's records are appended, applied, committed, and only then its replies are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.coordinator import loading, shard
from penstock.coordinator.machine import LogRecord, Outcome
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import Record, build_batch
from tests.coordinator.engine import PARTITIONS, TOPIC, Engine
from tests.fakes import number, turns, until

# ---- commands


async def test_a_command_is_decided_appended_applied_committed_and_then_answered(engine: Engine) -> None:
    machine = await engine.loaded()
    answer = engine.ask(5)
    assert machine.trace == ["decide 5", "apply 5"]
    partition = engine.held.get(TOPIC)
    assert (partition.log.next_offset, partition.log.end_offset) == (1, 0)
    engine.write()
    assert (partition.log.end_offset, answer.value) == (1, None)
    engine.held.committer.end_all()
    assert answer.value == 5


async def test_the_records_of_one_command_are_one_batch(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.on_decide = lambda command, _: Outcome([number(1), number(2), number(3)], [(command[0], "done")])
    answer = engine.ask("anything")
    engine.commit()
    assert answer.value == "done"
    assert machine.total == 6
    assert [batch.record_count for batch in engine.held.get(TOPIC).log.segments[0].batches(0)] == [3]


async def test_commands_overlap_and_are_answered_in_order(engine: Engine) -> None:
    await engine.loaded()
    answers: list[Any] = []
    for value in (1, 2, 3):
        engine.runtime.submit(0, lambda ticket, value=value: (ticket, value), answers.append)
    engine.write()
    engine.runtime.submit(0, lambda ticket: (ticket, 4), answers.append)
    engine.write()
    assert answers == []
    engine.held.committer.end_one()
    assert answers == [1, 3, 6]
    engine.commit()
    assert answers == [1, 3, 6, 10]


async def test_a_read_waits_for_the_writes_before_it_and_for_no_others(engine: Engine) -> None:
    await engine.loaded()
    assert engine.ask("read").value == 0
    engine.ask(5)
    engine.write()
    read = engine.ask("read")
    engine.ask(7)
    engine.write()
    assert read.value is None
    engine.held.committer.end_one()
    assert read.value == 5


async def test_a_refusal_is_answered_at_once_and_appends_nothing(engine: Engine) -> None:
    await engine.loaded()
    assert engine.ask("refuse").value is ErrorCode.INVALID_GROUP_ID
    assert engine.held.get(TOPIC).log.next_offset == 0


async def test_a_reply_may_answer_an_earlier_command(engine: Engine) -> None:
    await engine.loaded()
    first, second = engine.ask("hold"), engine.ask("hold")
    engine.commit()
    assert first.value is second.value is None
    third = engine.ask(9)
    engine.commit()
    assert (first.value, second.value, third.value) == (9, 9, 9)


async def test_a_machine_that_fails_in_a_way_nobody_foresaw_harms_no_other_command(engine: Engine) -> None:
    await engine.loaded()
    before = engine.ask(1)
    with pytest.raises(ZeroDivisionError):
        engine.ask("fail")
    after = engine.ask(2)
    engine.commit()
    assert (before.value, after.value) == (1, 3)


async def test_partitions_have_machines_of_their_own(engine: Engine) -> None:
    for index in range(PARTITIONS):
        await engine.loaded(index)
        engine.ask(index + 1, index)
    engine.commit()
    assert [await engine.total(index) for index in range(PARTITIONS)] == [1, 2, 3, 4]


@pytest.mark.parametrize("index", [-1, PARTITIONS])
async def test_a_partition_that_is_not_there_has_no_coordinator(engine: Engine, index: int) -> None:
    assert engine.ask(1, index).value is ErrorCode.NOT_COORDINATOR


async def test_asking_and_waiting_in_one(engine: Engine) -> None:
    asked = asyncio.ensure_future(engine.runtime.ask(0, lambda ticket: (ticket, 3)))
    await engine.loaded()
    await asyncio.sleep(0)
    engine.commit()
    assert await asked == 3
    with pytest.raises(ApiError):
        await engine.runtime.ask(0, lambda ticket: (ticket, "refuse"))


async def test_who_stopped_waiting_is_not_told(engine: Engine) -> None:
    await engine.loaded()
    asked = asyncio.ensure_future(engine.runtime.ask(0, lambda ticket: (ticket, 3)))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.sleep(0)
    engine.commit()
    assert await engine.total() == 3


# ---- loading


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_machine_is_loaded_from_its_log(engine: Engine, cleanly: bool) -> None:
    await engine.loaded()
    for value in (1, 20, 300):
        engine.ask(value)
    engine.commit()
    engine.start_again(cleanly=cleanly)
    assert await engine.total() == 321


async def test_commands_wait_for_the_load_in_their_order(engine: Engine) -> None:
    await engine.loaded()
    engine.ask(100)
    engine.commit()
    engine.start_again()
    answers: list[Any] = []
    for asked in (1, "read", 2):
        engine.runtime.submit(0, lambda ticket, asked=asked: (ticket, asked), answers.append)
    assert not engine.machines[-1].is_loaded
    machine = await engine.loaded()
    assert machine.trace == ["apply 100", "decide 1", "apply 1", "decide read", "decide 2", "apply 2"]
    engine.commit()
    assert answers == [101, 101, 103]


async def test_commands_that_wait_for_the_load_are_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "WAITING_FOR_LOAD_MAX", 2)
    answers = [engine.ask(1) for _ in range(3)]
    assert [answer.value for answer in answers] == [None, None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    await engine.loaded()
    engine.commit()
    assert [answer.value for answer in answers[:2]] == [1, 2]


async def test_a_long_log_is_loaded_in_pieces_while_the_loop_goes_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOAD_CHUNK_BYTES", 200)
    await engine.loaded()
    for _ in range(50):
        engine.ask(1)
    engine.commit()
    engine.start_again()
    engine.runtime.shard(0)
    rounds = 0
    while not engine.machines[-1].is_loaded:
        await asyncio.sleep(0)
        rounds += 1
    assert rounds > 5
    assert await engine.total() == 50


async def test_on_start_only_partitions_that_hold_something_are_loaded(engine: Engine) -> None:
    await engine.loaded(2)
    engine.ask(7, 2)
    engine.commit()
    engine.start_again()
    before = len(engine.machines)
    engine.runtime.load_all(PARTITIONS)
    assert len(engine.machines) == before + 1
    assert await engine.total(2) == 7


async def test_what_is_not_committed_yet_is_loaded_too(engine: Engine) -> None:
    """The machine is dropped while a batch is on its way to the device: it is in the log, so it counts."""
    await engine.loaded()
    lost = engine.ask(1)
    engine.write()  # its sync is under way
    engine.disk.fail_write = 0
    assert engine.ask(10).value is None
    engine.write()
    engine.disk.heal()
    assert lost.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    read = engine.ask("read")
    await turns()
    assert read.value is None
    engine.commit()
    await until(lambda: read.value is not None)
    assert read.value == 1
    engine.start_again(cleanly=False)
    assert await engine.total() == 1


async def corrupt_log(engine: Engine, data: bytes) -> None:
    """Bytes in the log that no machine wrote, as if the disk had changed them."""
    await engine.loaded()
    engine.ask(1)
    engine.commit()
    partition = engine.held.get(TOPIC)
    segment = partition.log.segments[0]
    size = segment.size
    engine.runtime.close()
    with segment.path("log").open("r+b") as file:
        file.write(data.ljust(size, b"\0")[:size])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="zeros"),
        pytest.param(b"\xff" * 40, id="no header"),
        pytest.param(build_batch([Record(0, 0, b"number", b"1" * 500)]), id="a batch that runs past the end"),
        pytest.param(build_batch([Record(0, 0, b"number", b"x" * 4)])[:-1] + b"\x09", id="a record too long"),
    ],
)  # fmt: skip
async def test_a_log_that_can_not_be_read_is_no_coordinator_and_nobody_waits_for_ever(
    engine: Engine, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await corrupt_log(engine, data)
    engine.start()
    answers = [engine.ask("read"), engine.ask(5)]
    await until(lambda: all(answer.value is not None for answer in answers))
    assert [answer.value for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert "load failed" in caplog.text
    again = engine.ask("read")  # it is tried again, and no harm done
    await until(lambda: again.value is not None)
    assert await engine.total(1) == 0


async def test_a_record_that_the_machine_does_not_understand_is_no_coordinator(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    batch = build_batch([Record(0, engine.clock.now, b"number", b"not a number")])
    engine.held.get(TOPIC).append(memoryview(bytearray(batch)), engine.clock.now)
    engine.commit()
    answer = engine.ask("read")
    await until(lambda: answer.value is not None)
    assert answer.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "load failed" in caplog.text


# ---- what fails


async def test_when_an_append_fails_everyone_who_waits_is_told_and_the_machine_is_loaded_anew(engine: Engine) -> None:
    await engine.loaded()
    engine.ask(100)
    engine.commit()
    held, waiting = engine.ask("hold"), engine.ask(1)
    engine.disk.fail_write = 0
    engine.write()
    assert held.value is waiting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    engine.disk.heal()
    assert await engine.total() == 100
    assert len(engine.machines) == 2


async def test_when_the_append_is_refused_at_once_the_machine_is_loaded_anew(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.loaded()
    held = engine.ask("hold")
    partition = engine.held.get(TOPIC)

    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patch:
        patch.setattr(type(partition), "append", refuse)
        answer = engine.ask(5)
    assert answer.value is held.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await engine.total() == 0
    assert engine.machines[0].trace == ["decide hold", "decide 5"], "it applied what was not appended"


async def test_a_failed_sync_is_the_end_until_the_broker_is_started_again(engine: Engine) -> None:
    await engine.loaded()
    answer, read = engine.ask(5), engine.ask("read")
    engine.write()
    engine.held.committer.end_one(OSError(5, "Input/output error"))
    assert answer.value is read.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert engine.ask("read").value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await engine.total(1) == 0


async def test_parked_commands_are_told_when_one_before_them_fails(engine: Engine) -> None:
    """They came while the log was read. The first one drops the machine; the others must not wait for ever."""
    partition = engine.held.get(TOPIC)
    answers = [engine.ask(1), engine.ask(2), engine.ask("read")]
    original = type(partition).append
    failing = [True]

    def append(self: Any, *arguments: Any) -> Any:
        if failing:
            failing.pop()
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(partition), "append", append)
        await until(lambda: engine.machines[0].is_loaded)
        await turns()
    assert [answer.value for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert await engine.total() == 0


async def test_a_parked_command_that_fails_in_a_way_nobody_foresaw_harms_no_other(engine: Engine) -> None:
    answers = [engine.ask(1), engine.ask("fail"), engine.ask(2)]
    await engine.loaded()
    engine.commit()
    assert [answer.value for answer in answers] == [1, ErrorCode.UNKNOWN_SERVER_ERROR, 3]


# ---- timers


async def test_a_timer_calls_the_machine_when_it_is_due(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now + 15
    machine.on_tick = lambda now_ms: Outcome([number(7)])
    engine.ask("read")
    began = asyncio.get_running_loop().time()
    await until(lambda: "tick" in machine.trace)
    assert asyncio.get_running_loop().time() - began >= 0.014
    assert machine.trace[-2:] == ["tick", "apply 7"]
    engine.commit()
    engine.start_again()
    assert await engine.total() == 7


async def test_a_timer_may_answer_commands(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now
    machine.on_tick = lambda now_ms: Outcome([], [(machine.held.pop(), "timed out")])
    held = engine.ask("hold")
    await until(lambda: held.value is not None)
    assert held.value == "timed out"


async def test_a_timer_that_is_moved_calls_once_and_one_that_is_taken_back_never(engine: Engine) -> None:
    machine = await engine.loaded()
    for delay_ms in (5000, 20, 11):
        machine.deadline_ms = engine.clock.now + delay_ms
        engine.ask("read")
    await until(lambda: "tick" in machine.trace)
    await asyncio.sleep(0.03)
    assert machine.trace.count("tick") == 1
    machine.deadline_ms = engine.clock.now + 10
    engine.ask("read")
    machine.deadline_ms = None
    engine.ask("read")
    await asyncio.sleep(0.03)
    assert machine.trace.count("tick") == 1


async def test_when_what_a_timer_wrote_is_lost_the_machine_is_loaded_anew(engine: Engine) -> None:
    """Nobody waits for it, yet the machine must not remember what is not stored."""
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now
    machine.on_tick = lambda now_ms: Outcome([number(7)])
    engine.ask("read")
    await until(lambda: "tick" in machine.trace)
    engine.disk.fail_write = 0
    engine.write()
    engine.disk.heal()
    assert await engine.total() == 0


async def test_a_machine_that_was_dropped_is_never_called_again(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now + 20
    engine.ask(1)
    engine.disk.fail_write = 0
    engine.write()
    engine.disk.heal()
    trace = list(machine.trace)
    await asyncio.sleep(0.04)
    assert machine.trace == trace


async def test_a_machine_that_was_dropped_while_it_was_loaded_sets_no_timer(engine: Engine) -> None:
    partition = engine.held.get(TOPIC)
    engine.ask(1)
    machine = engine.machines[0]
    machine.deadline_ms = engine.clock.now

    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(partition), "append", refuse)
        await until(lambda: machine.is_loaded)
        await asyncio.sleep(0.03)
    assert "tick" not in machine.trace


async def test_closing_tells_everyone_and_leaves_nothing_behind(engine: Engine) -> None:
    machine = await engine.loaded()
    machine.deadline_ms = engine.clock.now + 10
    waiting, parked = engine.ask(1), engine.ask(1, 1)
    engine.runtime.close()
    assert waiting.value is parked.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await asyncio.sleep(0.03)
    assert "tick" not in machine.trace
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "_load" in repr(task)]


async def test_when_the_topic_is_deleted_its_machines_go_with_it(engine: Engine) -> None:
    await engine.loaded()
    engine.ask(5)
    engine.commit()
    waiting = engine.ask(6)
    engine.held.delete(TOPIC)
    engine.commit()
    assert waiting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert engine.ask("read").value is ErrorCode.NOT_COORDINATOR
    engine.held.create(TOPIC, PARTITIONS)
    assert await engine.total() == 0


def test_a_record_without_a_value_is_a_tombstone() -> None:
    assert LogRecord(b"key", None).value is None
