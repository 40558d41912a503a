"""Networks that lose everything, one direction, or the way between two; and one that is slow."""

from __future__ import annotations

from collections.abc import Sequence

from tests.matrix.faults.fault import VICTIMS, Fault, NetworkFault, Scene
from tests.matrix.network import COMING, LEAVING

SLOW_KILOBITS = 400


class Cut(NetworkFault):
    """A leader that nobody reaches: neither brokers, nor ZooKeeper, nor clients."""

    def __init__(self, name: str, directions: Sequence[str]) -> None:
        self.name = name
        self._directions = directions

    def begin(self, scene: Scene) -> None:
        scene.network.cut(scene.strike(VICTIMS["leader"]).node_id, None, self._directions)


class CutBetweenTwo(NetworkFault):
    """Both reach ZooKeeper, the third broker and all clients, but not each other."""

    name = "network cut between two brokers"

    def begin(self, scene: Scene) -> None:
        leader = scene.strike(VICTIMS["leader"]).node_id
        other = scene.strike(VICTIMS["follower"]).node_id
        scene.network.cut(leader, [scene.network.host(other)])


class CutFromBrokers(NetworkFault):
    """A leader that reaches ZooKeeper and its clients, but no broker: it can't commit, and must not."""

    name = "network cut between the leader and all brokers"

    def begin(self, scene: Scene) -> None:
        leader = scene.strike(VICTIMS["leader"]).node_id
        scene.network.cut(leader, [scene.network.host(node_id) for node_id in scene.cluster.others(leader)])


class SlowFollower(NetworkFault):
    """It sends slower than it should: its fetches are late, and so is what it leads itself."""

    name = "slow link of a follower"

    def begin(self, scene: Scene) -> None:
        scene.network.slow(scene.strike(VICTIMS["follower"]).node_id, SLOW_KILOBITS)


NETWORKS: tuple[Fault, ...] = (
    Cut("network of the leader cut whole", (COMING, LEAVING)),
    Cut("network of the leader cut one way: it hears nothing", (COMING,)),
    Cut("network of the leader cut one way: nobody hears it", (LEAVING,)),
    CutBetweenTwo(),
    CutFromBrokers(),
    SlowFollower(),
)
