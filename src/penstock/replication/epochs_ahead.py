"""Partitions whose leader epochs are ahead of the cluster's, which has gone back: to an older copy of ZooKeeper's data.

An epoch that is given out again would number other records than it did before, and nobody could tell where two logs
part. So nobody leads or follows in such a partition until the cluster has an epoch that no replica can know.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from penstock.cluster.elections import vacate
from penstock.cluster.model import NO_LEADER, ClusterImage, PartitionState
from penstock.cluster.partition_changes import PartitionChanges
from penstock.replication.partition import Partition

log = logging.getLogger("penstock.replication")

SKIPPED = 1000  # epochs: replicas that are down may have come further than this one
EPOCH_MAX = 2**30  # as far as numbers are believed: what comes behind must have room

Key = tuple[str, int]


class EpochsAhead:
    def __init__(self, image: ClusterImage, changes: PartitionChanges) -> None:
        self._image = image
        self._changes = changes
        self._ahead: dict[Key, Partition] = {}
        self._asked: set[Key] = set()

    def is_ahead(self, partition: Partition, state: PartitionState) -> bool:
        """If so, the cluster is given a later epoch, and tells of it when it has one."""
        if state.leader_epoch >= partition.leader_epoch:
            return False
        key = (partition.topic, partition.index)
        if self._ahead.get(key) is not partition:
            self._ahead[key] = partition
            facts = {"partition": partition.name, "epoch": state.leader_epoch, "known": partition.leader_epoch}
            log.error(
                "ZooKeeper has gone back to an older leader epoch than this replica knows: acknowledged records may be "
                "lost, unless one leads that has them",
                extra=facts,
            )
            self._raise(key, partition)
        return True

    def look(self) -> None:
        """Now and then: what could not be written is tried again."""
        for key, partition in list(self._ahead.items()):
            topic = self._image.topics.get(key[0])
            is_gone = partition.deleted or topic is None or key[1] >= len(topic.partitions)
            if is_gone or self._image.topics[key[0]].partitions[key[1]].leader_epoch >= partition.leader_epoch:
                del self._ahead[key]
            else:
                self._raise(key, partition)

    def _raise(self, key: Key, partition: Partition) -> None:
        if key in self._asked or partition.leader_epoch > EPOCH_MAX:
            return
        known = partition.leader_epoch

        def change(state: PartitionState) -> PartitionState | None:
            if state.leader_epoch >= known:
                return None
            without = state if state.leader == NO_LEADER else vacate(state, state.leader)
            return replace(without, leader_epoch=known + SKIPPED)

        self._asked.add(key)
        self._changes.ask(*key, change, lambda made: self._asked.discard(key))
