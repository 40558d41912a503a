"""Drives one state machine per partition of an internal topic: those that this broker leads.

The coordinator of a group or a transactional id is the leader of its partition. When the broker begins to lead one, its
machine is loaded; when it leads no more, or in another epoch, the machine goes, and who asks is told NOT_COORDINATOR.
How one machine is driven is in `shard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.cluster.model import TopicState
from penstock.coordinator.machine import Machine, ProducerStamp
from penstock.coordinator.shard import Done, MakeCommand, Reply, Shard
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.aborted import Marker

RELOAD_S_FIRST = 0.5
RELOAD_S_MAX = 60.0
COMMIT_TIMEOUT_MS = 5_000  # as Kafka's offsets.commit.timeout.ms

OnEffect = Callable[[Partition, Any], None]


class Runtime:
    def __init__(
        self,
        topic: str,
        new_machine: Callable[[], Machine],
        partitions: Partitions,
        now_ms: Callable[[], int],
        on_effect: OnEffect | None = None,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
    ) -> None:
        self.topic = topic
        self.on_effect: OnEffect = on_effect or _no_effect
        self.new_machine = new_machine
        self.now_ms = now_ms
        self.commit_timeout_ms = commit_timeout_ms
        self._partitions = partitions
        self._shards: dict[int, Shard] = {}
        self._reloads: dict[int, asyncio.TimerHandle] = {}
        self._drops: dict[int, int] = {}  # in a row
        self._closed = False

    def shard(self, index: int) -> Shard:
        shard = self._shards.get(index)
        if shard is not None:
            if shard.leads:
                return shard
            shard.drop()
        partition = self._partitions.get(self.topic, index)
        if partition is None or not partition.leads:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if partition.error is not None or self._closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards[index] = Shard(self, partition)
        return shard

    def machines(self) -> list[Machine]:
        """Of the partitions that are led here."""
        return [shard.machine for shard in self._shards.values()]

    # ---- who leads

    def topic_created(self, topic: TopicState) -> None:
        self.leadership_changed(topic)

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        self.leadership_changed(after)

    def topic_deleted(self, topic: TopicState) -> None:
        if topic.name == self.topic:
            for shard in list(self._shards.values()):
                shard.drop()

    def topic_lost(self, topic: TopicState) -> None:
        self.topic_deleted(topic)

    def lost_topic_deleted(self, topic: TopicState) -> None: ...

    def leadership_changed(self, topic: TopicState) -> None:
        """Told behind the partitions, which know their roles by now."""
        if topic.name != self.topic or self._closed:
            return
        for index, shard in list(self._shards.items()):
            if not shard.leads or self._partitions.get(self.topic, index) is not shard.partition:
                shard.drop()
        self.load_all(len(topic.partitions))

    def load_all(self, count: int) -> None:
        """The machines of partitions that hold something, so that time-outs run on, and decisions are carried out."""
        for index in range(count):
            partition = self._partitions.get(self.topic, index)
            if partition is not None and partition.log.next_offset > partition.log.start_offset:
                self._load(partition)

    def _load(self, partition: Partition) -> None:
        if partition.leads and partition.error is None:
            self.shard(partition.index)

    # ---- commands

    def submit(self, index: int, make: MakeCommand, reply: Reply) -> None:
        """Asks the machine of a partition; `make` turns a ticket into the command."""
        try:
            shard = self.shard(index)
        except ApiError as error:
            reply(error)
            return
        shard.submit(make, reply)

    def end_transaction(
        self, index: int, producer: ProducerStamp, marker: Marker, done: Done, *, bumped: bool = False
    ) -> None:
        """In a partition of this runtime's topic, where the machine must learn of it."""
        try:
            shard = self.shard(index)
        except ApiError as error:
            done(error)
            return
        shard.end_transaction(producer, marker, done, bumped=bumped)

    async def ask(self, index: int, make: MakeCommand) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(reply: Any) -> None:
            if future.done():
                return
            if isinstance(reply, ApiError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        self.submit(index, make, answered)
        return await future

    async def ask_all(self, count: int, make: MakeCommand) -> list[Any]:
        """The answers of every machine of this broker. What others coordinate is left out."""
        asked = (self.ask(index, make) for index in range(count))
        answers = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, ApiError) and answer.code == ErrorCode.NOT_COORDINATOR:
                continue
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        return answers

    def broadcast(self, make: MakeCommand) -> None:
        """To every machine that there is; nobody waits for the replies."""
        for shard in list(self._shards.values()):
            if shard.leads:
                shard.submit(make, lambda reply: None)

    # ---- shards that come and go

    def load_later(self, partition: Partition) -> None:
        """After a machine was dropped. A partition that has stopped for good, or that others lead, is left alone."""
        index = partition.index
        if self._closed or index in self._reloads or partition.error is not None or not partition.leads:
            return
        drops = self._drops[index] = self._drops.get(index, 0) + 1

        def load() -> None:
            del self._reloads[index]
            if not self._closed and self._partitions.get(self.topic, index) is partition:
                self._load(partition)

        delay_s = min(RELOAD_S_FIRST * 2 ** min(drops - 1, 10), RELOAD_S_MAX)
        self._reloads[index] = asyncio.get_running_loop().call_later(delay_s, load)

    def was_loaded(self, shard: Shard) -> None:
        self._drops.pop(shard.partition.index, None)

    def forget(self, shard: Shard) -> None:
        if self._shards.get(shard.partition.index) is shard:
            del self._shards[shard.partition.index]

    def close(self) -> None:
        self._closed = True
        for reload in self._reloads.values():
            reload.cancel()
        for shard in list(self._shards.values()):
            shard.close()
        self._shards.clear()


def _no_effect(partition: Partition, effect: Any) -> None:
    raise AssertionError(f"nobody carries out {effect}")
