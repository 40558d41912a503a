"""`python -m bench.simulated NODE_ID CONNECT`: a broker without logs and clients, for clusters with many partitions.

What it has of a broker is what the size of a cluster burdens: it announces itself, follows everything, and may become
the controller. Its port is open, so that others notice when it is closed. It prints a line of JSON when something
happens that is worth a time; times are of the clock that all processes of this machine share.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import uvloop

from penstock.broker.watchman import Watchman
from penstock.cluster.catalog import Catalog
from penstock.cluster.controller import Controller
from penstock.cluster.membership import Membership
from penstock.cluster.model import NO_LEADER, ClusterImage, Endpoint, TopicState
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.transport.peer import Address

LISTENER = "PLAINTEXT"
TELL_S = 0.1  # once for many topics


def tell(what: str, **more: object) -> None:
    print(json.dumps({"what": what, "at": time.monotonic(), **more}), flush=True)


def memory_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


class WatchedController(Controller):
    """Says when it has looked at every topic of the cluster since it became the controller."""

    _looked: set[str] | None = None

    def settled(self, topic: TopicState) -> TopicState:
        after = super().settled(topic)
        if self.term is not None:
            self._looked = set() if self._looked is None else self._looked
            before = len(self._looked)
            self._looked.add(topic.name)
            if before < len(self._looked) == len(self._image.topics):
                tell("settled", epoch=self.term.epoch)
        return after


class Leaderships:
    """How many partitions each broker leads in this image, kept in step with every change."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._count = Counter(state.leader for topic in image.topics.values() for state in topic.partitions)
        self._living = set(image.brokers)
        self._gone: set[int] = set()  # those that lead something still
        self._controller = NO_LEADER
        self._telling = False

    def topic_created(self, topic: TopicState) -> None:
        self._count.update(state.leader for state in topic.partitions)
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_later(TELL_S, self._tell_how_many)

    def _tell_how_many(self) -> None:
        self._telling = False
        tell("knows", partitions=self._count.total())

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        self._count.subtract(state.leader for state in before.partitions)
        self._count.update(state.leader for state in after.partitions)
        self._look()

    def topic_deleted(self, topic: TopicState) -> None:
        self._count.subtract(state.leader for state in topic.partitions)

    def cluster_changed(self) -> None:
        living = set(self._image.brokers)
        for node_id in self._living - living:
            tell("gone", node_id=node_id, led=self._count[node_id])
        self._gone = (self._gone | self._living) - living
        self._living = living
        if self._image.controller_id != self._controller:
            self._controller = self._image.controller_id
            tell("controller", node_id=self._controller)
        self._look()

    def _look(self) -> None:
        for node_id in [each for each in self._gone if not self._count[each]]:
            self._gone.discard(node_id)
            tell("replaced", node_id=node_id)


async def serve(node_id: int, connect: str) -> None:
    began, empty_mb = time.monotonic(), memory_mb()
    settings = BrokerSettings({})
    image = ClusterImage(cluster_id="", controller_id=NO_LEADER)
    store = await ZooKeeperStore.open(connect, settings.get("zookeeper.session.timeout.ms"))
    catalog = Catalog(store, image, settings, node_id)
    await catalog.load(os.urandom)
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    tell("loaded", seconds=time.monotonic() - began, partitions=partitions, memory_mb=memory_mb(), empty_mb=empty_mb)

    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    membership = Membership(store, node_id, f"simulated-{node_id}", os.urandom)
    broker = await membership.join((Endpoint(LISTENER, "127.0.0.1", port),), None)
    image.brokers[node_id] = broker
    leaderships = Leaderships(image)
    controller = WatchedController(catalog, store, image, settings, node_id)
    catalog.subscribe(leaderships)
    catalog.on_cluster(leaderships.cluster_changed)

    def address_of(other: int) -> Address | None:
        found = image.brokers.get(other)
        return Address(found.endpoints[0].host, found.endpoints[0].port) if found else None

    watchman = Watchman(node_id, image, store, address_of)
    catalog.on_cluster(watchman.look)
    await controller.start()
    leaderships.cluster_changed()
    watchman.look()
    gc.freeze()  # as a broker does
    tell("joined", seconds=time.monotonic() - began, memory_mb=memory_mb())
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
