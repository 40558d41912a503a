"""Several brokers for a test, which replicate and take over from each other, coordinated within this process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from penstock.cluster.model import NO_LEADER
from penstock.testing.arguments import BadArgument, check_int, check_number
from penstock.testing.kit import WAIT_S_MAX, Kit
from penstock.testing.running import BETWEEN_BROKERS, End, RunningBroker

BROKERS_MAX = 9


class ClusterBroker:
    """One of a cluster, as a test sees it."""

    def __init__(self, running: RunningBroker) -> None:
        self._running = running

    @property
    def number(self) -> int:
        return self._running.number

    @property
    def bootstrap(self) -> str:
        return self._running.address

    @property
    def is_up(self) -> bool:
        return self._running.is_up

    def __repr__(self) -> str:
        return f"<broker {self.number} at {self.bootstrap}, {'up' if self.is_up else 'down'}>"


class PenstockCluster(Kit):
    """Real brokers in this process, numbered from 1, each with a thread and a port of its own.

    with PenstockCluster() as cluster:
        cluster.topic("orders")
        cluster.kill(cluster.leader("orders"))
    """

    def __init__(self, brokers: int = 3, **settings: object) -> None:
        """`settings` are those of every broker, with underscores for dots."""
        if check_int(brokers, "brokers", least=0) not in range(1, BROKERS_MAX + 1):
            raise BadArgument(f"a cluster in one process has 1 to {BROKERS_MAX} brokers, not {brokers}")
        super().__init__(range(1, brokers + 1), settings)

    def _own_settings(self, number: int, folder: Path) -> dict[str, str]:
        return {
            "node.id": str(number), "data": str(folder / f"broker-{number}"), "zookeeper.connect": "in-process:0",
            "listeners": f"CLIENTS://127.0.0.1:0,{BETWEEN_BROKERS}://127.0.0.1:0",
            "inter.broker.listener.name": BETWEEN_BROKERS,
        }  # fmt: skip

    def open(self) -> PenstockCluster:
        super().open()
        self._until("all brokers know each other", self._all_known)
        return self

    def _all_known(self) -> bool:
        up = {each.number for each in self._up()}
        return all(set(each.broker.image.brokers) == up for each in self._up())

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        """By number, those that are down too."""
        return MappingProxyType({number: ClusterBroker(each) for number, each in self._running.items()})

    # ---- brokers that come and go

    def kill(self, number: int) -> None:
        """As with SIGKILL. The others notice at once."""
        self._known(number).end(End.KILL)

    def stop(self, number: int) -> None:
        """As with SIGTERM: others take over what it leads first."""
        self._known(number).end(End.STOP)

    def start(self, number: int) -> None:
        """Again, with what it has on disk and on the same port. Returns when it answers; `wait_until_in_sync` when its
        replicas are complete."""
        broker = self._known(number)
        if broker.is_up:
            raise RuntimeError(f"broker {number} is running: stop or kill it first")
        broker.start()
        self._until("all brokers know each other", self._all_known)

    def _known(self, number: int) -> RunningBroker:
        if isinstance(number, bool) or not isinstance(number, int) or number not in self._running:
            raise BadArgument(f"there is no broker {number!r}: there are {', '.join(map(str, self._running))}")
        return self._running[number]

    # ---- who leads

    def leader(self, topic: str, partition: int = 0) -> int:
        """The number of the broker that leads; waited for while an election is under way."""
        self._check_partition(topic, partition)
        return self._leader(topic, partition).number

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The numbers of the in-sync replicas, as the leader knows them."""
        self._check_partition(topic, partition)
        state = self._leader(topic, partition).broker.image.topics[topic].partitions[partition]
        return sorted(state.isr)

    def wait_until_in_sync(self, timeout_s: float = WAIT_S_MAX) -> None:
        """Until every partition has a leader, and every replica on a broker that runs is in sync."""
        self._until("all replicas are in sync", self._is_whole, check_number(timeout_s, "timeout_s"))

    def _is_whole(self) -> bool:
        up = {each.number for each in self._up()}
        return all(
            state.leader != NO_LEADER and up & set(state.replicas) <= set(state.isr)
            for each in self._up()
            for topic in list(each.broker.image.topics.values())
            for state in topic.partitions
        )

    def advance(
        self, by: timedelta | float | None = None, *, seconds: float = 0, minutes: float = 0, hours: float = 0,
        days: float = 0, heartbeats: bool = False,
    ) -> None:  # fmt: skip
        """As with one broker. Replicas that were in sync may seem to lag after such a leap: they are waited for."""
        was_whole = self._is_whole()
        super().advance(by, seconds=seconds, minutes=minutes, hours=hours, days=days, heartbeats=heartbeats)
        if was_whole:
            self.wait_until_in_sync()
