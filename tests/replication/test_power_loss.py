"""The promise: what was acknowledged with acks=all under flush=commit is there after the power failed.

The disk forgets whatever was not synced: bytes of files, and names of files and folders. It fails at every single step
of a scenario, and at random ones of random scenarios.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.protocol.record_batch import read_batches, read_records
from tests.replication.holding import Holding
from tests.storage.disks import ForgetfulDisk, PowerFailure
from tests.storage.logs import NOW_MS, batch_at

SMALL_SEGMENTS = {"internal_segment_bytes": "400", "index_interval_bytes": "100"}
Place = tuple[bytes, int]  # topic id and partition


class Producing:
    """A producer with acks=all that remembers what it was told is stored."""

    def __init__(self, folder: Path, seed: int = 0, flush: str = "commit") -> None:
        folder.mkdir(exist_ok=True)
        self.disk = ForgetfulDisk(folder, seed)
        self.held = Holding(folder, self.disk, flush=flush)
        self.acknowledged: dict[Place, dict[int, str]] = {}
        self.sequences: dict[Place, int] = {}
        self._number = 0

    def append(self, topic: str, index: int = 0, count: int = 1) -> None:
        """Answered later, when turn and sync have ended."""
        place = (self.held.image.topics[topic].topic_id, index)
        partition = self.held.get(topic, index)
        sequence = self.sequences.get(place, 0)
        values = []
        for _ in range(count):
            self._number += 1
            values.append(f"{place[0].hex()}/{index}/{self._number}")
        data = batch_at(0, count, epoch=-1, values=values, producer=(7, 0, sequence))
        base_offset, next_offset, _ = partition.append(memoryview(bytearray(data)), NOW_MS)
        self.sequences[place] = sequence + count

        def answer() -> None:
            if partition.high_watermark >= next_offset:
                known = self.acknowledged.setdefault(place, {})
                known.update(enumerate(values, start=base_offset))

        partition.when_committed(next_offset, answer)

    def end_turn(self) -> None:
        self.held.turn.flush()

    def sync(self) -> None:
        """One of those that are under way ends."""
        if self.held.committer.under_way:
            self.held.committer.end_one()

    def write(self, topic: str, index: int = 0, count: int = 1) -> None:
        self.append(topic, index, count)
        self.end_turn()
        self.held.committer.end_all()

    def crash(self, keep_names: float = 0.0) -> None:
        self.disk.crash(keep_names)
        self.held.start_again(cleanly=False)
        self.sequences.clear()

    def check(self) -> None:
        """Everything that was acknowledged is in its place; nothing is seen that belongs elsewhere or came twice."""
        for topic in self.held.image.topics.values():
            for index in range(len(topic.partitions)):
                place = (topic.topic_id, index)
                found = self.stored(topic.name, index)
                assert list(found) == list(range(len(found))), "a gap"
                assert len(set(found.values())) == len(found), "a duplicate"
                assert all(value.startswith(f"{topic.topic_id.hex()}/{index}/") for value in found.values())
                for offset, value in self.acknowledged.get(place, {}).items():
                    assert found.get(offset) == value, f"{topic.name}-{index} has lost offset {offset}"
                self._go_on(place, len(found))

    def _go_on(self, place: Place, end: int) -> None:
        """As an idempotent producer does: every record had a sequence of its own, and there was just one producer."""
        self.sequences[place] = end

    def stored(self, topic: str, index: int = 0) -> dict[int, str]:
        partition = self.held.get(topic, index)
        offset, found = partition.log.start_offset, {}
        while (piece := partition.log.read(offset, 1 << 20, partition.committed)) is not None:
            for header, data in read_batches(piece.read()):
                for record in read_records(data, 1 << 20, check_crc=True):
                    assert record.value is not None
                    found[record.offset] = record.value.decode()
                offset = header.last_offset + 1
        return found


def scenario(producing: Producing) -> None:
    """First batches of new topics, several segments in one turn, a topic deleted and made again, a sync shared."""
    producing.held.create("a", 2, **SMALL_SEGMENTS)
    producing.write("a", 0)
    producing.append("a", 1)
    producing.append("a", 0, 2)
    producing.end_turn()
    producing.held.committer.end_all()
    for _ in range(3):
        producing.append("a", 0, 2)
    producing.end_turn()  # rolls
    producing.append("a", 0)
    producing.end_turn()
    producing.sync()
    producing.write("a", 0, 3)
    producing.held.create("b", 1, **SMALL_SEGMENTS)
    producing.write("b")
    producing.write("b", 0, 4)
    producing.held.delete("b")
    producing.held.create("b", 1, **SMALL_SEGMENTS)
    producing.write("b")
    producing.write("a", 1, 2)
    producing.write("b", 0, 2)


def run(work: Callable[[], None]) -> None:
    async def main() -> None:
        work()

    asyncio.run(main())


def steps_of(folder: Path) -> int:
    whole = Producing(folder)
    run(lambda: scenario(whole))
    whole.check()
    assert sum(map(len, whole.acknowledged.values())) == 24
    return whole.disk.steps


@pytest.mark.parametrize("keep_names", [0.0, 0.5, 1.0])
def test_nothing_acknowledged_is_lost_wherever_the_power_fails(tmp_path: Path, keep_names: float) -> None:
    steps = steps_of(tmp_path / "whole")
    assert steps > 50
    for step in range(steps):
        producing = Producing(tmp_path / f"{step}", seed=step)
        producing.disk.stop_after(step)

        def work(producing: Producing = producing) -> None:
            with pytest.raises(PowerFailure):
                scenario(producing)
            producing.crash(keep_names)
            producing.check()
            for topic in producing.held.image.topics.values():  # and it goes on
                for index in range(len(topic.partitions)):
                    producing.write(topic.name, index)
            producing.check()
            producing.crash(keep_names)
            producing.check()

        run(work)


step = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("again"), st.sampled_from("ab")),
    st.tuples(st.just("crash"), st.sampled_from([0.0, 0.5, 1.0])),
    st.tuples(st.just("stop")),
)


@given(script=st.lists(step, max_size=40), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_acknowledged_is_lost_in_random_scenarios(
    tmp_path_factory: pytest.TempPathFactory,
    script: list[tuple],
    seed: int,
) -> None:
    producing = Producing(tmp_path_factory.mktemp("random"), seed)

    def work() -> None:
        for name in "ab":
            producing.held.create(name, 2, **SMALL_SEGMENTS)
        for what, *arguments in script:
            if what == "append":
                producing.append(*arguments)
            elif what == "turn":
                producing.end_turn()
            elif what == "sync":
                producing.sync()
            elif what == "again":
                producing.end_turn()
                producing.held.delete(arguments[0])
                producing.held.create(arguments[0], 2, **SMALL_SEGMENTS)
            elif what == "crash":
                producing.crash(arguments[0])
                producing.check()
            elif what == "stop":
                producing.end_turn()
                producing.held.committer.end_all()
                producing.held.start_again()
                producing.check()
        producing.crash(random.Random(seed).random())
        producing.check()

    run(work)


def test_under_flush_os_the_same_scenario_does_lose_what_was_acknowledged(tmp_path: Path) -> None:
    """Or the tests above would prove nothing."""
    for seed in range(5):
        producing = Producing(tmp_path / str(seed), seed, flush="os")

        def work(producing: Producing = producing) -> None:
            scenario(producing)
            producing.crash()
            producing.check()

        with pytest.raises(AssertionError, match="has lost offset"):
            run(work)


def test_the_epoch_of_what_was_committed_is_known_after_the_power_failed(tmp_path: Path) -> None:
    """Else the log would be taken for one of the epoch before, and a follower would not find where they part."""
    producing = Producing(tmp_path / "data")
    producing.held.create("t")
    producing.write("t")
    producing.held.get("t").lead(4, None)
    producing.write("t")
    producing.crash()
    epochs = producing.held.get("t").log.epochs
    assert (epochs.epochs, epochs.starts) == ([0, 4], [0, 1])
