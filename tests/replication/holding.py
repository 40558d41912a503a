"""All partitions of a broker in one folder, without the broker."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from penstock.cluster.model import ClusterImage, PartitionState, TopicState
from penstock.cluster.settings import BrokerSettings
from penstock.protocol.record_batch import read_batches, read_records
from penstock.replication import copying
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.disk import Disk
from penstock.transport.turn import Turn
from tests.fakes import FakeCommitter, FakeLoop
from tests.storage.logs import NOW_MS, batch_at

_ids = itertools.count(1)


def topic_state(name: str, partitions: int = 1, **config: str) -> TopicState:
    """A topic with an id of its own; dots in settings are written as underscores."""
    state = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    named = {key.replace("_", "."): value for key, value in config.items()}
    return TopicState(name, next(_ids).to_bytes(16, "big"), (state,) * partitions, named)


class Holding:
    def __init__(self, folder: Path, disk: Disk | None = None, **settings: str) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.folder = folder
        self.disk = disk or Disk()
        self.settings = BrokerSettings(named)
        self.image = ClusterImage("", 1)
        self._open()

    def _open(self) -> None:
        self.turn = Turn(cast(Any, FakeLoop()))
        self.committer = FakeCommitter()
        self.partitions = Partitions(
            self.disk, self.folder, self.image, self.settings, self.turn, cast(Any, self.committer), 1
        )
        self.partitions.load()
        self.settings.subscribe(self.partitions.settings_changed)

    def start_again(self, disk: Disk | None = None, *, cleanly: bool = True) -> None:
        """On the same folder and with the same topics."""
        if cleanly:
            self.partitions.close()
        self.disk = disk or self.disk
        self._open()

    def create(self, name: str, partitions: int = 1, **config: str) -> TopicState:
        topic = topic_state(name, partitions, **config)
        self.image.put_topic(topic)
        self.partitions.topic_created(topic)
        return topic

    def create_followed(self, name: str, **config: str) -> TopicState:
        """Another broker leads it, and this one is in sync."""
        state = PartitionState(leader=2, leader_epoch=0, replicas=(1, 2), isr=(1, 2))
        topic = replace(topic_state(name, **config), partitions=(state,))
        self.image.put_topic(topic)
        return topic

    def copy(self, name: str, *batches: bytes) -> None:
        """From its leader, by whom they are committed."""
        partition = self.get(name)
        for batch in batches:
            copying.copy(partition, memoryview(batch), NOW_MS)
        self.turn.flush()
        self.committer.end_all()
        partition.leader_committed(partition.log.end_offset)

    def save_high_watermarks(self) -> None:
        if (save := self.partitions.high_watermarks_to_save()) is not None:
            save()

    def change(self, name: str, **config: str) -> None:
        before = self.image.topics[name]
        named = {key.replace("_", "."): value for key, value in config.items()}
        after = TopicState(name, before.topic_id, before.partitions, named)
        self.image.put_topic(after)
        self.partitions.topic_changed(before, after)

    def delete(self, name: str) -> TopicState:
        topic = self.image.topics[name]
        self.image.drop_topic(name)
        self.partitions.topic_deleted(topic)
        return topic

    def lose(self, name: str) -> TopicState:
        """As if its node were gone, and nobody had deleted it."""
        topic = self.image.topics[name]
        self.image.drop_topic(name)
        self.partitions.topic_lost(topic)
        return topic

    def find(self, topic: TopicState) -> None:
        self.image.put_topic(topic)
        self.partitions.topic_created(topic)

    def get(self, name: str, index: int = 0) -> Partition:
        partition = self.partitions.get(name, index)
        assert partition is not None
        return partition

    def write(self, name: str, index: int = 0, count: int = 1, **options: Any) -> int:
        """Until it is committed; the offset."""
        batch = memoryview(bytearray(batch_at(0, count, epoch=-1, **options)))
        base_offset, _, _ = self.get(name, index).append(batch, NOW_MS)
        self.turn.flush()
        self.committer.end_all()
        return base_offset

    def read(self, name: str, index: int = 0) -> list[int]:
        """The offsets that a consumer sees."""
        partition = self.get(name, index)
        offset = partition.log.start_offset
        found: list[int] = []
        while (piece := partition.log.read(offset, 1 << 20, partition.committed)) is not None:
            for header, data in read_batches(piece.read()):
                found += [record.offset for record in read_records(data, 1 << 20, check_crc=True)]
                offset = header.last_offset + 1
        return found
