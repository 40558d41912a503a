"""The engine of a coordinator over a real log, whose turns and syncs end when the test says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.cluster.model import PartitionState
from penstock.coordinator.machine import Ticket
from penstock.coordinator.runtime import Runtime
from penstock.protocol.errors import ApiError
from penstock.protocol.record_batch import Record, build_batch
from penstock.replication.partition import Partition
from tests.fakes import CountingMachine, FakeClock, number, until
from tests.replication.holding import Holding
from tests.storage.disks import FailingDisk

TOPIC = "__sums"
PARTITIONS = 4


class Counting(CountingMachine):
    def appends(self, command: tuple[Ticket, Any]) -> bool:
        return isinstance(command[1], int)


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

        self.runtime = Runtime(TOPIC, lambda: Counting(self.machines), self.held.partitions, self.clock, note)

    def start_again(self, *, cleanly: bool = True) -> None:
        self.runtime.close()
        self.held.start_again(cleanly=cleanly)
        self.start()

    # ---- among other replicas

    def elect(self, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2), index: int = 0) -> None:
        """As the catalog tells it: brokers 1 (this one) and 2 hold the partition."""
        before = self.held.image.topics[TOPIC]
        state = PartitionState(leader, epoch, (1, 2), isr)
        partitions = (*before.partitions[:index], state, *before.partitions[index + 1 :])
        after = replace(before, partitions=partitions)
        self.held.image.put_topic(after)
        self.held.partitions.topic_changed(before, after)
        self.runtime.topic_changed(before, after)

    def follower_fetches(self, offset: int | None = None) -> None:
        """Broker 2 has all of the log, or all before the offset."""
        self.commit()
        partition = self.held.get(TOPIC)
        assert partition.fetched(2, partition.log.end_offset if offset is None else offset, self.clock.now)

    def other_leader_writes(self, *values: int, epoch: int) -> None:
        """What this broker would have copied from broker 2: batches that no machine here has made."""
        partition = self.held.get(TOPIC)
        assert not partition.leads
        for value in values:
            record, offset = number(value), partition.log.next_offset
            batch = bytearray(
                build_batch(
                    [Record(offset, self.clock.now, record.key, record.value)], base_offset=offset,
                    partition_leader_epoch=epoch,
                )
            )  # fmt: skip
            size = len(batch)
            partition.stage_copy(memoryview(batch), size, offset, offset, self.clock.now, epoch, self.clock.now)
            self.commit()
        partition.leader_committed(partition.log.end_offset)

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
