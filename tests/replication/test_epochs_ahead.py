"""Epochs that this broker's replicas know and the cluster does not: who leads then, and what is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.cluster.model import NO_LEADER, PartitionState, TopicState
from penstock.cluster.partition_changes import Change, Done
from penstock.replication.epochs_ahead import EPOCH_MAX, SKIPPED, EpochsAhead
from tests.replication.holding import Holding
from tests.storage.logs import batch_at

LATEST = 7


class FakeChanges:
    def __init__(self) -> None:
        self.asked: list[tuple[Change, Done]] = []

    def ask(self, topic: str, index: int, change: Change, done: Done) -> None:
        self.asked.append((change, done))


class Replica:
    """Of a partition whose log has an epoch that the cluster does not know."""

    def __init__(self, folder: Path, state: PartitionState) -> None:
        held = Holding(folder)
        self.topic: TopicState = held.create_followed("t")
        self.held = held
        self.tell(PartitionState(leader=2, leader_epoch=LATEST, replicas=(1, 2), isr=(1, 2)))
        held.copy("t", batch_at(0, 1, epoch=LATEST))
        held.start_again()
        self.changes = FakeChanges()
        self.ahead = EpochsAhead(held.image, cast(Any, self.changes))
        self.tell(state)
        self.partition = held.get("t")

    def tell(self, state: PartitionState) -> None:
        before, self.topic = self.topic, replace(self.topic, partitions=(state,))
        self.held.image.put_topic(self.topic)
        self.held.partitions.topic_changed(before, self.topic)

    def is_ahead(self) -> bool:
        return self.ahead.is_ahead(self.partition, self.topic.partitions[0])


@pytest.mark.parametrize("leader", [1, 2, NO_LEADER])
def test_nobody_leads_or_follows_before_there_is_an_epoch_that_no_replica_knows(leader: int, tmp_path: Path) -> None:
    state = PartitionState(leader=leader, leader_epoch=3, replicas=(1, 2), isr=(1, 2), last_leader=2)
    replica = Replica(tmp_path, state)
    assert not replica.partition.leads
    assert replica.is_ahead()
    ((change, done),) = replica.changes.asked
    after = change(state)
    assert after is not None
    assert (after.leader, after.leader_epoch, after.isr) == (NO_LEADER, LATEST + SKIPPED, (1, 2))
    assert after.last_leader == (2 if leader == NO_LEADER else leader)
    done(True)
    replica.tell(replace(after, leader=1, leader_epoch=after.leader_epoch + 1))
    assert not replica.is_ahead()
    assert replica.partition.leads
    replica.ahead.look()
    assert len(replica.changes.asked) == 1


def test_what_was_not_written_is_tried_again_unless_others_were_faster(tmp_path: Path) -> None:
    state = PartitionState(leader=2, leader_epoch=3, replicas=(1, 2), isr=(1, 2))
    replica = Replica(tmp_path, state)
    for _ in range(2):
        assert replica.is_ahead()
        replica.ahead.look()
    ((change, done),) = replica.changes.asked
    assert change(replace(state, leader_epoch=LATEST)) is None
    done(False)
    replica.ahead.look()
    assert len(replica.changes.asked) == 2


def test_an_epoch_that_leaves_no_room_for_later_ones_is_not_believed(tmp_path: Path) -> None:
    replica = Replica(tmp_path, PartitionState(leader=2, leader_epoch=3, replicas=(1, 2), isr=(1, 2)))
    replica.partition.leader_epoch = EPOCH_MAX + 1
    assert replica.is_ahead()
    assert replica.changes.asked == []
