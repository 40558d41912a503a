"""Partitions that move to other replicas while those who move them die."""

from __future__ import annotations

import time

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.clients.wire import Wire
from tests.matrix.crowd import PARTITIONS
from tests.matrix.faults.fault import VICTIMS, Fault, Scene
from tests.matrix.member import until

MOVED_S_MAX = 30.0


class Reassignment(Fault):
    """Each partition leaves one broker and comes back to it, with another order of replicas; at each step the leader of
    the first partition dies."""

    name = "reassignment while leaders die"
    pause_s_max = 30.0

    def begin(self, scene: Scene) -> None:
        pass

    def hold(self, scene: Scene) -> None:
        before = [state.replicas for state in scene.cluster.truth.topic(scene.topic).partitions]
        fewer = [replicas[1:] for replicas in before]
        turned = [(*replicas[1:], replicas[0]) for replicas in before]
        for target in (fewer, turned):
            reassign(scene, target)
            time.sleep(0.1)
            victim = scene.strike(VICTIMS["leader"])
            victim.kill()
            time.sleep(1.0)
            victim.start()
            _wait_for(scene, victim.node_id, target)

    def end(self, scene: Scene) -> None:
        pass


def reassign(scene: Scene, target: list[tuple[int, ...]]) -> None:
    moves = [ReassignablePartition(partition_index=n, replicas=list(replicas)) for n, replicas in enumerate(target)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=scene.topic, partitions=moves)])
    with Wire(scene.members[VICTIMS["controller"](scene)].address) as wire:
        response: AlterPartitionReassignmentsResponse = wire.ask(request)
    codes = [ErrorCode(each.error_code) for topic in response.responses for each in topic.partitions]
    assert codes == [ErrorCode.NONE] * PARTITIONS, f"not reassigned: {response}"


def _wait_for(scene: Scene, node_id: int, target: list[tuple[int, ...]]) -> None:
    """The broker is back, and the partitions are where they shall be."""
    pid = scene.members[node_id].pid
    until(lambda: scene.cluster.truth.brokers().get(node_id) == pid, MOVED_S_MAX, f"broker {node_id} is back")
    until(lambda: _is_done(scene, target), MOVED_S_MAX, f"the reassignment to {target}")


def _is_done(scene: Scene, target: list[tuple[int, ...]]) -> bool:
    partitions = scene.cluster.truth.topic(scene.topic).partitions
    return all(
        state.replicas == replicas and not state.adding and not state.removing
        for state, replicas in zip(partitions, target, strict=True)
    )


MOVES: tuple[Fault, ...] = (Reassignment(),)
