"""The engine of a coordinator over a real log, whose turns and syncs end when the test says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.coordinator.runtime import Runtime
from penstock.protocol.errors import ApiError
from penstock.replication.partition import Partition
from tests.fakes import CountingMachine, FakeClock, until
from tests.replication.holding import Holding
from tests.storage.disks import FailingDisk

TOPIC = "__sums"
PARTITIONS = 4


class Engine:
    """A runtime over a real log, whose turns and syncs end when the test says so."""

    def __init__(self, folder: Path, disk: FailingDisk | None = None) -> None:
        self.disk = disk or FailingDisk()
        self.clock = FakeClock()
        self.held = Holding(folder, self.disk)
        topic = self.held.create(TOPIC, PARTITIONS, internal_segment_bytes="100000")
        self.held.image.put_topic(replace(topic, internal=True))
        self.machines: list[CountingMachine] = []
        self.effects: list[Any] = []
        self.start()

    def start(self) -> None:
        def note(partition: Partition, effect: Any) -> None:
            self.effects.append((partition.index, effect))

        self.runtime = Runtime(TOPIC, lambda: CountingMachine(self.machines), self.held.partitions, self.clock, note)

    def start_again(self, *, cleanly: bool = True) -> None:
        self.runtime.close()
        self.held.start_again(cleanly=cleanly)
        self.start()

    def ask(self, asked: Any, index: int = 0) -> Answer:
        answer = Answer()
        self.runtime.submit(index, lambda ticket: (ticket, asked), answer.set)
        return answer

    async def loaded(self, index: int = 0) -> CountingMachine:
        shard = self.runtime.shard(index)
        await until(shard.loading.done)
        assert isinstance(shard.machine, CountingMachine)
        return shard.machine

    def write(self) -> None:
        self.held.turn.flush()

    def commit(self) -> None:
        self.held.turn.flush()
        self.held.committer.end_all()

    async def total(self, index: int = 0) -> Any:
        """As a client would find it."""
        answer = self.ask("read", index)
        await until(lambda: self.runtime.shard(index).loading.done())
        self.commit()
        return answer.value


class Answer:
    value: Any = None

    def set(self, value: Any) -> None:
        assert self.value is None, "answered twice"
        self.value = value.code if isinstance(value, ApiError) else value
