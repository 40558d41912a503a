"""Clusters of three brokers, ours and Kafka's, whose members can be killed, stopped and started again.

Every broker of a cluster is like the others: with Kafka that means three processes, each broker and controller (KRaft).
Ours come with a ZooKeeper of their own, in a process beside them.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from bench import jars
from bench.peers import (
    ADMIN_TIMEOUT_S,
    JAVA_OPTIONS,
    KAFKA_PROPERTIES,
    START_TIMEOUT_S,
    BrokerFailed,
    Peer,
    answers,
    die_with_parent,
    free_port,
)
from penstock.cli.cluster.zookeeper import LocalZooKeeper
from penstock.cli.problem import Problem
from penstock.cli.raw import ask
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

MEMBERS = 3
LOOK_S = 0.02
IN_SYNC_WITHIN_S = 120.0
# Settings of internal topics that only a node which is alone needs.
FOR_ONE_NODE = (".replication.factor", ".min.isr")


@dataclass
class Leader(Peer):
    """The broker that leads all of a topic, seen with those that follow it: memory is that of all of them."""

    fellows: Sequence[Peer] = ()

    def tree(self) -> list[int]:
        return [*super().tree(), *(pid for fellow in self.fellows for pid in fellow.tree())]

    def create_topics(self, names: Iterable[str], partitions: int, config: Mapping[str, str] | None = None) -> None:
        for name in names:
            self.place_topic(name, [range(1, 2 + len(self.fellows))] * partitions, config)

    def place_topic(
        self, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        placed = [list(each) for each in replicas]
        topic = NewTopic(name, len(placed), replica_assignment=placed, config=dict(config or {}))
        self._wait(self.admin.create_topics([topic], operation_timeout=ADMIN_TIMEOUT_S).values())


class Member:
    """One number, one port and one folder, whatever happens to the process between."""

    def __init__(self, name: str, node_id: int, port: int, folder: Path, command: Sequence[str]) -> None:
        self.name = f"{name}, broker {node_id}"
        self.node_id = node_id
        self.port = port
        self._folder = folder
        self._command = list(command)
        self._peer: Peer | None = None

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def peer(self) -> Peer:
        assert self._peer is not None, "it was never started"
        return self._peer

    @property
    def lives(self) -> bool:
        return self._peer is not None and self._peer.process.poll() is None

    def launch(self) -> None:
        assert not self.lives
        log = self._folder.parent / f"{self._folder.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=die_with_parent
            )
        self._peer = Peer(self.name, self.port, self._folder, process, log)

    def wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(self.port):
            if not self.lives or time.monotonic() > deadline:
                tail = "\n".join(self.peer.log.read_text(errors="replace").splitlines()[-5:])
                raise BrokerFailed(f"{self.name} did not start. The end of its log:\n{tail}")
            time.sleep(LOOK_S)

    def start(self) -> None:
        self.launch()
        self.wait()

    def kill(self) -> None:
        if self.lives:
            self.peer.kill()

    def stop(self) -> None:
        self.peer.stop()


class Fleet:
    def __init__(self, name: str, members: Iterable[Member], zookeeper: LocalZooKeeper | None = None) -> None:
        self.name = name
        self.members = {member.node_id: member for member in members}
        self.zookeeper = zookeeper

    def start(self) -> None:
        try:
            if self.zookeeper is not None:
                self.zookeeper.start()
        except Problem as problem:
            raise BrokerFailed(f"{problem.message} {problem.hint or ''}") from problem
        for member in self.members.values():
            member.launch()
        for member in self.members.values():
            member.wait()
        self.until(
            lambda: all(self.known_to(each) == self.members.keys() for each in self.living()), "to find each other"
        )

    def close(self) -> None:
        for member in self.members.values():
            member.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()

    def living(self) -> list[Member]:
        return [member for member in self.members.values() if member.lives]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members.values())

    def leader(self) -> Leader:
        """The first broker, with the others behind it."""
        first, *others = (member.peer for member in self.members.values())
        return Leader(self.name, first.port, first.data, first.process, first.log, fellows=others)

    def zookeeper_mb(self) -> float:
        if self.zookeeper is None:
            return 0.0
        lines = Path(f"/proc/{self.zookeeper.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    # ---- what its members say

    def described_by(self, member: Member) -> DescribeClusterResponse | None:
        try:
            return ask(member.address, DescribeClusterRequest(), 0, DescribeClusterResponse)
        except Problem:
            return None

    def known_to(self, member: Member) -> set[int]:
        answer = self.described_by(member)
        return {broker.broker_id for broker in answer.brokers} if answer else set()

    def partitions(self, topic: str) -> list[MetadataResponsePartition]:
        """As one of those that live sees them; none while nobody knows."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        for member in self.living():
            try:
                answer = ask(member.address, request, 9, MetadataResponse)
            except Problem:
                continue
            if answer.topics and not answer.topics[0].error_code:
                return sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
        return []

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        self.leader().place_topic(name, replicas)
        self.until_in_sync([name])

    def in_sync(self, topics: Iterable[str]) -> bool:
        for topic in topics:
            found = self.partitions(topic)
            if not found or any(each.leader_id < 0 or set(each.isr_nodes) != set(each.replica_nodes) for each in found):
                return False
        return True

    def until_in_sync(self, topics: Sequence[str]) -> None:
        self.until(lambda: self.in_sync(topics), "to be in sync")

    def until(self, true: Callable[[], bool], what: str, within_s: float = IN_SYNC_WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{self.name} took more than {within_s:.0f} s {what}")
            time.sleep(LOOK_S)


# ---- ours and theirs


@contextmanager
def penstock_cluster(folder: Path, settings: Mapping[str, str] = {}, *, name: str = "penstock") -> Iterator[Fleet]:
    zookeeper = LocalZooKeeper(folder / "zookeeper", free_port(), preexec=die_with_parent)
    members = []
    for node_id, port in enumerate(_ports(MEMBERS), start=1):
        data = folder / str(node_id)
        command = [
            sys.executable, "-m", "penstock", "start", "--quiet", "--node-id", str(node_id),
            "--zookeeper", f"{zookeeper.connect}/bench", "--listen", f"127.0.0.1:{port}", "--data", str(data),
        ]  # fmt: skip
        for setting, value in settings.items():
            command += ["--set", f"{setting}={value}"]
        members.append(Member(name, node_id, port, data, command))
    with _running(Fleet(name, members, zookeeper), folder) as fleet:
        yield fleet


@contextmanager
def kafka_cluster(folder: Path, settings: Mapping[str, str] = {}, *, name: str = "kafka") -> Iterator[Fleet]:
    java = ["java", *JAVA_OPTIONS, "-cp", jars.classpath()]
    ports, controller_ports = _ports(MEMBERS), _ports(MEMBERS)
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controller_ports, start=1))
    cluster = base64.urlsafe_b64encode(b"P" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    members = []
    for node_id, (port, controller_port) in enumerate(zip(ports, controller_ports), start=1):
        data = folder / str(node_id)
        data.mkdir(parents=True)
        properties = {
            **{key: value for key, value in KAFKA_PROPERTIES.items() if not key.endswith(FOR_ONE_NODE)},
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": voters,
            "log.dirs": str(data / "data"),
            **settings,
        }
        file = data / "server.properties"
        file.write_text("".join(f"{setting}={value}\n" for setting, value in properties.items()))
        form = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
        done = subprocess.run(form, capture_output=True, text=True, timeout=START_TIMEOUT_S)
        if done.returncode:
            raise BrokerFailed(f"Kafka's storage tool: {done.stderr.strip() or done.stdout.strip()}")
        members.append(Member(name, node_id, port, data, [*java, "kafka.Kafka", str(file)]))
    with _running(Fleet(name, members), folder) as fleet:
        yield fleet


@contextmanager
def _running(fleet: Fleet, folder: Path) -> Iterator[Fleet]:
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


def _ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return sorted(found)
