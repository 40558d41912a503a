"""ZooKeeper that dies, stands still, or can't be reached. Producers and consumers are not to notice."""

from __future__ import annotations

from tests.matrix.faults.fault import BEYOND_A_SESSION_S, VICTIMS, Fault, NetworkFault, Scene

UNNOTICED_S_MAX = 8.0


class ZooKeeperKilled(Fault):
    name = "ZooKeeper killed"
    hold_s = BEYOND_A_SESSION_S
    pause_s_max = UNNOTICED_S_MAX

    def begin(self, scene: Scene) -> None:
        scene.cluster.zookeeper.kill()

    def end(self, scene: Scene) -> None:
        scene.cluster.zookeeper.start()


class ZooKeeperPaused(Fault):
    """Longer than all sessions, which it declares expired when it goes on."""

    name = "ZooKeeper paused"
    hold_s = BEYOND_A_SESSION_S
    pause_s_max = UNNOTICED_S_MAX

    def begin(self, scene: Scene) -> None:
        scene.cluster.zookeeper.pause()

    def end(self, scene: Scene) -> None:
        scene.cluster.zookeeper.resume()


class ZooKeeperRestarted(Fault):
    name = "ZooKeeper restarted"
    hold_s = 0.5
    pause_s_max = UNNOTICED_S_MAX

    def begin(self, scene: Scene) -> None:
        scene.cluster.zookeeper.stop()

    def end(self, scene: Scene) -> None:
        scene.cluster.zookeeper.start()


class BrokerDiesWithoutZooKeeper(Fault):
    """Nobody can be elected in its place until ZooKeeper is back; then someone is."""

    name = "leader killed while ZooKeeper is away"
    hold_s = 2.0

    def begin(self, scene: Scene) -> None:
        member = scene.strike(VICTIMS["leader"])
        scene.cluster.zookeeper.kill()
        member.kill()

    def end(self, scene: Scene) -> None:
        scene.cluster.zookeeper.start()
        for member in scene.struck():
            member.start()


class SessionExpired(NetworkFault):
    """Only ZooKeeper is out of its reach, until its session is over and others have taken its place."""

    def __init__(self, who: str) -> None:
        self.name = f"no way between the {who} and ZooKeeper"
        self._victim = VICTIMS[who]

    def begin(self, scene: Scene) -> None:
        member = scene.strike(self._victim)
        scene.network.cut(member.node_id, [scene.network.zookeeper_host])


COORDINATION: tuple[Fault, ...] = (
    ZooKeeperKilled(),
    ZooKeeperPaused(),
    ZooKeeperRestarted(),
    BrokerDiesWithoutZooKeeper(),
    SessionExpired("leader"),
    SessionExpired("controller"),
)
