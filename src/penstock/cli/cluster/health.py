"""What is known of a cluster at one moment, and what of it is not as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.cli.cluster import processes
from penstock.cli.cluster.reaching import Broker, Cluster, Key, Moving, Partition, Snapshot, broker_setting
from penstock.cli.cluster.zookeeper import ask as ask_zookeeper
from penstock.cli.holds import Hold
from penstock.cli.output import plural
from penstock.cli.problem import Problem
from penstock.cli.raw import Address

DEFAULT_ZOOKEEPER_PORT = 2181
TOPICS_TOLD_MAX = 5
HELD_TOO_LONG = "what the group has not committed is deleted"


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: int
    answers: bool
    pid: int | None


@dataclass(frozen=True, slots=True)
class ZooKeeper:
    connect: str
    servers: list[Server]


@dataclass(frozen=True, slots=True)
class Lag:
    """A replica that holds less than its leader. What was written between two questions looks like it, too."""

    key: Key
    node_id: int
    in_sync: bool
    behind_bytes: int


@dataclass(slots=True)
class Health:
    snapshot: Snapshot
    moving: dict[Key, Moving]
    sizes: dict[int, dict[Key, int]]
    pids: dict[Address, int]
    zookeeper: ZooKeeper | None
    missing: list[int]  # brokers that hold replicas, or were started here, and are not there
    under_replicated: list[Partition] = field(default_factory=list)
    under_min_isr: list[Partition] = field(default_factory=list)
    offline: list[Partition] = field(default_factory=list)
    lagging: list[Lag] = field(default_factory=list)
    retention_holds: dict[Key, Hold] = field(default_factory=dict)  # what leaders keep for groups
    cut_off: list[int] = field(default_factory=list)  # brokers that answer, and do not reach ZooKeeper
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what may be as it was meant to be
    _leads: Counter[int] = field(default_factory=Counter)
    _holds: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._leads.update(each.leader for each in self.snapshot.partitions)
        self._holds.update(replica for each in self.snapshot.partitions for replica in each.replicas)

    def leads(self, node_id: int) -> int:
        return self._leads[node_id]

    def holds(self, node_id: int) -> int:
        return self._holds[node_id]

    def size_bytes(self, node_id: int) -> int | None:
        return sum(self.sizes[node_id].values()) if node_id in self.sizes else None

    def behind_bytes(self, node_id: int) -> int | None:
        if node_id not in self.sizes:
            return None
        return sum(each.behind_bytes for each in self.lagging if each.node_id == node_id)


def examine(cluster: Cluster) -> Health:
    snapshot = cluster.snapshot()
    brokers = snapshot.brokers.values()
    moving = _moving(cluster)
    zookeeper = _zookeeper(brokers)
    stored = cluster.stored(brokers)
    sizes = {node_id: {key: each.size_bytes for key, each in held.items()} for node_id, held in stored.items()}
    health = Health(snapshot, moving, sizes, _pids(cluster, brokers), zookeeper, _missing(cluster, snapshot))
    for each in snapshot.partitions:
        led = stored.get(each.leader, {}).get(each.key)
        if led is not None and led.hold is not None:
            health.retention_holds[each.key] = led.hold
        settled = set(each.replicas) - set(moving[each.key].adding if each.key in moving else ())
        if each.leader < 0:
            health.offline.append(each)
        if not settled <= set(each.isr):
            health.under_replicated.append(each)
    needed = cluster.topic_settings("min.insync.replicas", {each.topic for each in health.under_replicated})
    for each in health.under_replicated:
        if len(each.isr) < min(int(needed.get(each.topic) or 1), len(each.replicas)):
            health.under_min_isr.append(each)
    health.lagging = _lagging(health)
    if zookeeper is not None:
        answering = [each for each in brokers if each.node_id in sizes]
        health.cut_off = [each.node_id for each in answering if _is_cut_off(each)]
        health.notes = _few_replicas(health, _default_factor(answering), cluster.bootstrap.options)
    health.problems = _problems(health)
    return health


def _moving(cluster: Cluster) -> dict[Key, Moving]:
    """A broker of another kind may not serve the question."""
    try:
        return cluster.moving()
    except Problem:
        return {}


def _missing(cluster: Cluster, snapshot: Snapshot) -> list[int]:
    wanted = {replica for each in snapshot.partitions for replica in each.replicas}
    if cluster.record is not None:
        wanted.update(cluster.record.expected)
    return sorted(wanted - snapshot.brokers.keys())


def _pids(cluster: Cluster, brokers: Collection[Broker]) -> dict[Address, int]:
    """Where the kernel does not tell, what was written down is believed if such a process runs."""
    pids = processes.listeners([broker.address for broker in brokers])
    written = {member.node_id: member.pid for member in (cluster.record.members if cluster.record else ())}
    for broker in brokers:
        pid = written.get(broker.node_id)
        if broker.address not in pids and pid is not None and processes.runs(pid, "penstock"):
            pids[broker.address] = pid
    return pids


def _zookeeper(brokers: Collection[Broker]) -> ZooKeeper | None:
    """As the brokers were told where it is. None for a broker that stands alone."""
    connect = None
    for broker in brokers:
        try:
            found = broker_setting(broker, "zookeeper.connect")
        except Problem:
            continue
        connect = found.value if found else None
        break
    if not connect:
        return None
    addresses: list[Address] = []
    for text in connect.partition("/")[0].split(","):
        host, separator, port = text.strip().rpartition(":")
        addresses.append((host, int(port)) if separator and port.isdecimal() else (text, DEFAULT_ZOOKEEPER_PORT))
    pids = processes.listeners(addresses)
    servers = [
        Server(host, port, "Mode: " in ask_zookeeper(host, port, "srvr"), pids.get((host, port)))
        for host, port in addresses
    ]
    return ZooKeeper(connect, servers)


def _is_cut_off(broker: Broker) -> bool:
    """ZooKeeper may answer this command and not the broker: only the broker knows. One that is older does not say."""
    try:
        found = broker_setting(broker, "zookeeper.connected")
    except Problem:
        return False
    return found is not None and found.value == "false"


def _default_factor(brokers: Collection[Broker]) -> int:
    """The most that any broker gives a topic which asks for no number."""
    factors = [0]
    for broker in brokers:
        with suppress(Problem):
            found = broker_setting(broker, "default.replication.factor")
            factors.append(int(found.value or 0) if found else 0)
    return max(factors)


def _few_replicas(health: Health, factor: int, options: str) -> list[str]:
    """No problem: nobody knows any more whether a person asked for so few, or brokers were away at that time."""
    counts: dict[str, int] = {}
    for each in health.snapshot.partitions:
        adding = health.moving[each.key].adding if each.key in health.moving else ()
        counts[each.topic] = min(counts.get(each.topic, factor), len({*each.replicas, *adding}))
    few = sorted(topic for topic, count in counts.items() if count < factor)
    if not few:
        return []
    names = ", ".join(few[:TOPICS_TOLD_MAX]) + (" and others" if len(few) > TOPICS_TOLD_MAX else "")
    need = "" if len(health.snapshot.brokers) >= factor else f" Once {factor} brokers are there:"
    return [
        f"{plural(len(few), 'topic')} with fewer replicas than default.replication.factor={factor}: {names}.{need} "
        f"'penstock cluster rebalance --replicas {factor}{options}' gives more."
    ]


def _lagging(health: Health) -> list[Lag]:
    found = []
    for each in health.snapshot.partitions:
        whole = health.sizes.get(each.leader, {}).get(each.key)
        for replica in each.replicas:
            if whole is not None and replica != each.leader and replica in health.sizes:
                behind = max(0, whole - health.sizes[replica].get(each.key, 0))
                if behind or replica not in each.isr:
                    found.append(Lag(each.key, replica, replica in each.isr, behind))
    return found


def _problems(health: Health) -> list[str]:
    snapshot, zookeeper = health.snapshot, health.zookeeper
    problems = [f"broker {node_id} is down." for node_id in health.missing]
    silent = [each for each in snapshot.brokers if each not in health.sizes]
    problems += [f"broker {node_id} does not answer." for node_id in silent]
    if snapshot.controller < 0:
        problems.append("there is no controller.")
    if zookeeper is not None:
        away = [each for each in zookeeper.servers if not each.answers]
        problems += [f"ZooKeeper does not answer at {each.host}:{each.port}." for each in away]
    problems += [f"broker {node_id} does not reach ZooKeeper." for node_id in health.cut_off]
    for found, what in (
        (health.offline, "without a leader"),
        (health.under_min_isr, "with fewer in-sync replicas than min.insync.replicas"),
        (health.under_replicated, "under-replicated"),
    ):
        if found:
            problems.append(f"{plural(len(found), 'partition')} {what}.")
    if over := [each for each in health.retention_holds.values() if each.over_limit]:
        problems.append(f"{plural(len(over), 'partition')} over retention.hold.max.bytes: {HELD_TOO_LONG}.")
    return problems
