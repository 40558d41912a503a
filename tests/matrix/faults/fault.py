"""What a fault is: something begins, is so for a while, and ends. Whom it hits is found out when it begins."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.matrix.cluster import SESSION_MS, Cluster
from tests.matrix.crowd import Crowd
from tests.matrix.member import Member
from tests.matrix.network import Network, why_not

SESSION_S = SESSION_MS / 1000
BEYOND_A_SESSION_S = 2 * SESSION_S
PAUSE_S_MAX = 15.0


@dataclass(slots=True)
class Scene:
    """The cluster, who uses it, and chance. `victims` are those that the fault has hit."""

    cluster: Cluster
    crowd: Crowd
    chance: random.Random
    victims: list[int] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return self.crowd.topic

    @property
    def members(self) -> dict[int, Member]:
        return self.cluster.members

    @property
    def network(self) -> Network:
        assert self.cluster.network is not None
        return self.cluster.network

    def strike(self, victim: Victim) -> Member:
        node_id = victim(self)
        self.victims.append(node_id)
        return self.members[node_id]

    def struck(self) -> list[Member]:
        return [self.members[node_id] for node_id in self.victims]


Victim = Callable[[Scene], int]


def leader(scene: Scene) -> int:
    return scene.cluster.truth.leader(scene.topic)


def follower(scene: Scene) -> int:
    """Of the first partition, and preferably not the controller as well."""
    truth = scene.cluster.truth
    others = scene.cluster.others(truth.leader(scene.topic))
    controller = truth.controller()
    return next((node_id for node_id in others if node_id != controller), others[0])


def controller(scene: Scene) -> int:
    return scene.cluster.truth.controller()


def group_coordinator(scene: Scene) -> int:
    return scene.cluster.truth.group_coordinator(scene.crowd.group)


def transaction_coordinator(scene: Scene) -> int:
    return scene.cluster.truth.transaction_coordinator(scene.crowd.transactional_id)


VICTIMS: dict[str, Victim] = {
    "leader": leader,
    "follower": follower,
    "controller": controller,
    "group coordinator": group_coordinator,
    "transaction coordinator": transaction_coordinator,
}


class Fault(ABC):
    """`pause_s_max` is how long a partition may go without an acknowledgement, from before the fault to after it."""

    name: str
    hold_s: float = BEYOND_A_SESSION_S
    pause_s_max: float = PAUSE_S_MAX
    topic_settings: Mapping[str, object] = {}

    def why_not(self, cluster: Cluster) -> str | None:
        """Why it can't be made here; None if it can."""
        return None

    def prepare(self, scene: Scene) -> None:
        """What takes a while and is no fault yet. For most there is no such thing."""
        return

    @abstractmethod
    def begin(self, scene: Scene) -> None: ...

    def hold(self, scene: Scene) -> None:
        time.sleep(self.hold_s)

    @abstractmethod
    def end(self, scene: Scene) -> None: ...

    def __str__(self) -> str:
        return self.name


class NetworkFault(Fault):
    def why_not(self, cluster: Cluster) -> str | None:
        return None if cluster.network is not None else f"no network can be cut here: {why_not()}"

    def end(self, scene: Scene) -> None:
        for node_id in scene.members:
            scene.network.heal(node_id)
