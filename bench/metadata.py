"""How a cluster bears many partitions: the metadata of up to 200,000, real; the brokers, simulated.

For each size there is a new cluster, whose controller leads nothing. A broker joins it; then the controller is killed,
then a broker that leads a tenth of the partitions, and then the new controller, which leads as many. What is timed is
until the last of the others knows, since only then is every client told right.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.peers import BrokerFailed, die_with_parent, free_port
from bench.results import Measure
from penstock.cli.cluster.zookeeper import LocalZooKeeper
from penstock.cli.problem import Problem
from penstock.cluster.administration import Administration, NewTopic
from penstock.cluster.catalog import Catalog
from penstock.cluster.model import NO_LEADER, ClusterImage
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.protocol.errors import ApiError

SIZES, QUICK_SIZES = (10_000, 50_000, 100_000, 200_000), (2_000, 10_000)
PARTITIONS = 100  # of a topic
BROKERS, REPLICAS = 10, 3
CONTROLLER, JOINING = BROKERS + 1, BROKERS + 2  # neither holds a replica
ZOOKEEPER = 0  # where it is listed among brokers
TOPICS_AT_ONCE = 50
WAIT_S_MAX = 180.0
LOOK_S = 0.01
CALM_S = 1.0
ATTEMPTS = 20
CONTROLLER_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True)
class Size:
    """One point of the curve; seconds, unless the name says otherwise."""

    partitions: int
    created_s: float
    created_known_s: float  # until every broker knows them
    loaded_s: float  # until a broker that joins has the whole image
    controller_known_s: float  # from the death of a controller until every broker knows the next
    controller_settled_s: float  # until that has looked at every topic
    noticed_s: float  # from a broker's death until every broker knows of it
    leaders_s: float  # until every broker knows new leaders for all that it led
    both_s: float  # the same for a broker that was the controller
    learning_cpu_s: (
        float  # processor time that this took each of the brokers: what it would wait for on its own machine
    )
    deciding_cpu_s: float  # and the controller
    zookeeper_cpu_s: float
    moved: int  # leaderships of the broker that died
    flaps: int  # brokers that lost their session before any was killed: the machine had no time for them
    image_mb: float  # what a broker's memory grows by
    broker_mb: float
    zookeeper_mb: float


class Told(NamedTuple):
    what: str
    at: float
    figures: Mapping[str, float]


class Simulated:
    """A broker's process, and what it has told."""

    def __init__(self, node_id: int, connect: str, log: Path) -> None:
        self.node_id = node_id
        self.told: list[Told] = []
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.simulated", str(node_id), connect],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        self._log = log
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            figures = json.loads(line)
            self.told.append(Told(figures.pop("what"), figures.pop("at"), figures))

    def find(self, what: str, since: float = 0.0, **like: float) -> Told | None:
        for each in self.told:
            if each.what == what and each.at >= since and like.items() <= each.figures.items():
                return each
        return None

    def wait(self, what: str, since: float = 0.0, **like: float) -> Told:
        deadline = time.monotonic() + WAIT_S_MAX
        while (found := self.find(what, since, **like)) is None:
            if self.process.poll() is not None:
                tail = "\n".join(self._log.read_text().splitlines()[-5:])
                raise BrokerFailed(f"simulated broker {self.node_id} ended. The end of its log:\n{tail}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"simulated broker {self.node_id} did not say {what!r} in {WAIT_S_MAX:.0f} s")
            time.sleep(LOOK_S)
        return found

    def kill(self) -> float:
        """When."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        self._thread.join(1)
        return at


class SimulatedCluster:
    def __init__(self, connect: str, folder: Path) -> None:
        self.connect = connect
        self._folder = folder
        self.brokers: dict[int, Simulated] = {}

    def start(self, node_ids: Sequence[int]) -> None:
        for node_id in node_ids:
            self.brokers[node_id] = Simulated(node_id, self.connect, self._folder / f"simulated-{node_id}.log")
        for node_id in node_ids:
            self.brokers[node_id].wait("joined")

    def kill(self, node_id: int) -> float:
        return self.brokers.pop(node_id).kill()

    def until_all(self, what: str, since: float, **like: float) -> float:
        """When the last of them said so."""
        return max(broker.wait(what, since, **like).at for broker in self.brokers.values())

    def lost_sessions(self, since: float) -> int:
        """Of brokers that were there again later, as the one that saw most of them saw it."""
        return max(
            sum(each.what == "gone" and each.at >= since for each in broker.told) for broker in self.brokers.values()
        )

    def until_controller(self, since: float) -> tuple[int, float]:
        """Who is the next, and when the last of them knew."""
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            named = [self._named_by(broker, since) for broker in self.brokers.values()]
            known = [each for each in named if each is not None]
            if len(known) == len(named) and len({each.figures["node_id"] for each in known}) == 1:
                return int(known[0].figures["node_id"]), max(each.at for each in known)
            time.sleep(LOOK_S)
        raise BrokerFailed(f"no controller in {WAIT_S_MAX:.0f} s")

    def _named_by(self, broker: Simulated, since: float) -> Told | None:
        """The last that it named, if it is one."""
        found = [each for each in broker.told if each.what == "controller" and each.at >= since]
        return found[-1] if found and found[-1].figures["node_id"] != NO_LEADER else None

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


# ---- one size


async def _create(connect: str, partitions: int) -> float:
    """As a broker that was asked for them would; the seconds it took."""
    settings = BrokerSettings({})
    store = await ZooKeeperStore.open(connect)
    try:
        image = ClusterImage(cluster_id="", controller_id=NO_LEADER)
        catalog = Catalog(store, image, settings, node_id=0)
        await catalog.load(os.urandom)
        administration = Administration(catalog, image, settings, 0, os.urandom)
        topics = [_topic(number) for number in range(partitions // PARTITIONS)]
        began = time.monotonic()
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            await _create_some(administration, topics[start : start + TOPICS_AT_ONCE])
        took_s = time.monotonic() - began
        await administration.close()
        return took_s
    finally:
        await store.close()


async def _create_some(administration: Administration, topics: Sequence[NewTopic]) -> None:
    """Again, if a broker was away that is to hold them: one that has nothing to run on loses its session."""
    refusal = ""
    for _ in range(ATTEMPTS):
        outcomes = await administration.create_topics(topics)
        refused = [(topic, each) for topic, each in zip(topics, outcomes) if isinstance(each, ApiError)]
        if not refused:
            return
        topics, refusal = [topic for topic, _ in refused], str(refused[0][1])
        await asyncio.sleep(CALM_S)
    raise BrokerFailed(f"a topic was not created: {refusal}")


def _topic(number: int) -> NewTopic:
    """Leaders are spread evenly, and so are those who stand in for each of them."""
    replicas = []
    for index in range(PARTITIONS):
        first, step = index % BROKERS, 1 + (index // BROKERS + number) % (BROKERS // 2 - 1)
        replicas.append((index, [1 + (first + copy * step) % BROKERS for copy in range(REPLICAS)]))
    return NewTopic(f"topic-{number:05}", assignments=replicas)


def measure(work: Path, zookeeper: LocalZooKeeper, partitions: int) -> Size:
    with contextlib.closing(SimulatedCluster(f"{zookeeper.connect}/scale-{partitions}", work)) as cluster:
        cluster.start([CONTROLLER])
        cluster.start(range(1, BROKERS + 1))
        began = time.monotonic()
        created_s = asyncio.run(_create(cluster.connect, partitions))
        known_s = cluster.until_all("knows", began, partitions=partitions) - began
        flaps = cluster.lost_sessions(began)
        cluster.start([JOINING])
        loaded = cluster.brokers[JOINING].wait("loaded").figures
        if loaded["partitions"] != partitions:
            raise BrokerFailed(f"{loaded['partitions']:.0f} of {partitions} partitions were loaded")
        memory_mb = cluster.brokers[JOINING].wait("joined").figures["memory_mb"]
        zookeeper_mb = _resident_mb(zookeeper.pid)

        cluster.kill(JOINING)
        time.sleep(CALM_S)

        killed = cluster.kill(CONTROLLER)
        controller, known = cluster.until_controller(killed)
        settled = cluster.brokers[controller].wait("settled", killed).at

        victim = next(node_id for node_id in cluster.brokers if node_id != controller)
        pids = {node_id: broker.process.pid for node_id, broker in cluster.brokers.items()} | {ZOOKEEPER: zookeeper.pid}
        used = {node_id: _cpu_s(pid) for node_id, pid in pids.items()}
        died = cluster.kill(victim)
        noticed = cluster.until_all("gone", died, node_id=victim)
        replaced = cluster.until_all("replaced", died, node_id=victim)
        moved = cluster.brokers[controller].wait("gone", died, node_id=victim).figures["led"]
        spent = {node_id: _cpu_s(pid) - used[node_id] for node_id, pid in pids.items() if node_id != victim}
        learning = [seconds for node_id, seconds in spent.items() if node_id not in (ZOOKEEPER, controller)]

        ended = cluster.kill(controller)
        both = cluster.until_all("replaced", ended, node_id=controller)
        return Size(
            partitions=partitions, created_s=created_s, created_known_s=known_s, loaded_s=loaded["seconds"],
            controller_known_s=known - killed, controller_settled_s=settled - killed, noticed_s=noticed - died,
            leaders_s=replaced - died, both_s=both - ended, learning_cpu_s=statistics.median(learning),
            deciding_cpu_s=spent[controller], zookeeper_cpu_s=spent[ZOOKEEPER], moved=int(moved), flaps=flaps,
            image_mb=loaded["memory_mb"] - loaded["empty_mb"], broker_mb=memory_mb, zookeeper_mb=zookeeper_mb,
        )  # fmt: skip


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


# ---- the curve


def curve(work: Path, sizes: Sequence[int], file: Path | None) -> Iterator[Measure]:
    """One ZooKeeper for all sizes, each below a path of its own. Into `file` goes what the page is made of."""
    load_before = os.getloadavg()[0]
    folder = work / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    zookeeper = LocalZooKeeper(folder / "zookeeper", free_port(), preexec=die_with_parent)
    found: list[Size] = []
    try:
        zookeeper.start()
        for partitions in sizes:
            found.append(measure(folder, zookeeper, partitions))
            print(f"    {found[-1]}", flush=True)
            yield from _measures(found[-1])
        if file is not None:
            write(found, file, load_before)
    except Problem as problem:
        raise BrokerFailed(problem.message) from problem
    finally:
        zookeeper.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _measures(size: Size) -> Iterator[Measure]:
    many, name = f"{size.partitions:,} partitions", f"metadata-{size.partitions}"
    yield Measure(f"{name}-joins", f"a broker loads the image, {many}", size.loaded_s, "s")
    title, note = f"controller killed, the next has settled, {many}", f"known after {size.controller_known_s:.2f} s"
    yield Measure(f"{name}-controller", title, size.controller_settled_s, "s", CONTROLLER_LIMIT_S, note)
    title = f"broker killed, all know new leaders of {size.moved:,}, {many}"
    note = f"noticed after {size.noticed_s:.2f} s; {size.learning_cpu_s:.2f} s of a processor in each"
    if size.flaps:
        note += f"; {size.flaps} sessions were lost before: too busy a machine"
    yield Measure(f"{name}-leaders", title, size.leaders_s, "s", note=note)
    note = f"the image {size.image_mb:.0f} MB; ZooKeeper {size.zookeeper_mb:.0f} MB"
    yield Measure(f"{name}-memory", f"resident in a broker without logs, {many}", size.broker_mb, "MB", note=note)


def write(sizes: Sequence[Size], file: Path, load_before: float) -> None:
    """For `scale_page`. `load_before` is what the machine had to do before all of this began."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": report.machine(), "load_before": load_before, "sizes": [asdict(size) for size in sizes]}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
