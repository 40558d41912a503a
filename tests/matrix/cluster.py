"""Three brokers and a ZooKeeper, each a process, which are all gone at the end, also when the test has failed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.cli.cluster.zookeeper import LocalZooKeeper
from tests.history.replicas import Comparison, replicas_identical
from tests.matrix.member import Member, until
from tests.matrix.network import Network, why_not
from tests.matrix.places import Loopback, Places
from tests.matrix.truth import Truth

BROKERS = 3
SESSION_MS = 2000
WHOLE_S_MAX = 60.0
SMALL_DISK = 3  # the broker whose data is on a file system that can be made too small
ROOMY = 1 << 30
FILL_ATTEMPTS = 20
CHROOT = "/matrix"
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 2000,
    "leader.imbalance.check.interval.seconds": 3,
    "group.min.session.timeout.ms": 1000,
}


class SmallDisk:
    """A file system in memory whose size can be changed; where nothing can be mounted, a folder like any other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True)
        self.why_not = done.stderr.strip() if done.returncode != 0 else None

    def fill(self) -> None:
        """Leaves room for nothing but what is there, which may be more at every look."""
        for _ in range(FILL_ATTEMPTS):
            found = os.statvfs(self.folder)
            try:
                self._resize((found.f_blocks - found.f_bfree) * found.f_frsize)
                return
            except subprocess.CalledProcessError:
                continue  # a file system can't be made smaller than what it holds
        raise AssertionError("the disk grows faster than it can be made smaller")

    def free(self) -> None:
        self._resize(ROOMY)

    def _resize(self, size: int) -> None:
        subprocess.run(
            ["mount", "-o", f"remount,size={size}", str(self.folder)], check=True, capture_output=True, timeout=20
        )

    def close(self) -> None:
        if self.why_not is None:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class Cluster:
    def __init__(self, folder: Path, settings: Mapping[str, object] = SETTINGS) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._things = contextlib.ExitStack()
        try:
            self._build(settings)
        except BaseException:
            self._things.close()
            raise

    def _build(self, settings: Mapping[str, object]) -> None:
        self.network = Network(BROKERS) if why_not() is None else None
        places: Places = self.network or Loopback()
        self._things.callback(places.close)
        place = places.of_zookeeper()
        self.zookeeper = LocalZooKeeper(self.folder / "zookeeper", place.port, host=place.host, force_sync=False)
        self._things.callback(self.zookeeper.kill)
        self.small_disk = SmallDisk(self.folder / "small-disk")
        self._things.callback(self.small_disk.close)
        connect = f"{self.zookeeper.connect}{CHROOT}"
        self.truth = Truth(connect)
        self._things.callback(self.truth.close)
        self.members: dict[int, Member] = {}
        for node_id in range(1, BROKERS + 1):
            data = self.folder / f"data-{node_id}" if node_id != SMALL_DISK else self.small_disk.folder / "data"
            member = Member(self.folder, node_id, places.of_broker(node_id), connect, settings, data)
            self._things.callback(member.kill)
            self.members[node_id] = member
        self.bootstrap = ",".join(member.address for member in self.members.values())

    def __enter__(self) -> Cluster:
        try:
            self.zookeeper.start()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Everything ends, at once and whatever state it is in."""
        self._things.close()

    def start(self) -> None:
        for member in self.members.values():
            if not member.runs:
                member.start()
        self.wait_whole()

    def stop(self) -> None:
        """All at once, politely. The last ones find nobody to hand over to, and stop all the same."""
        for member in self.members.values():
            member.stop()

    def wait_whole(self, timeout_s: float = WHOLE_S_MAX) -> float:
        """Until every broker lives and every replica is in sync; how long that took."""
        why: list[str | None] = [None]

        def whole() -> bool:
            for member in self.members.values():
                assert member.runs, f"broker {member.node_id} has ended by itself:\n{member.last_words()}"
            why[0] = self.truth.why_not_whole({node_id: each.pid for node_id, each in self.members.items()})
            return why[0] is None

        try:
            return until(whole, timeout_s, "a whole cluster")
        except AssertionError as late:
            raise AssertionError(f"{late}: {why[0]}\n{self.last_words()}") from None

    def create_topic(self, name: str, partitions: int, **settings: object) -> None:
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        (made,) = admin.create_topics([NewTopic(name, partitions, BROKERS, config=config)]).values()
        made.result(30)

    def others(self, *node_ids: int) -> list[int]:
        return [node_id for node_id in self.members if node_id not in node_ids]

    def compare(self, topic: str | None = None) -> Comparison:
        """The replicas of a topic that nobody writes to, or of everything, once the brokers are stopped."""
        folders = [member.data for member in self.members.values()]
        if topic is None:
            return replicas_identical(folders)
        with tempfile.TemporaryDirectory() as view:
            views = [Path(view) / str(node_id) for node_id in self.members]
            for data, folder in zip(folders, views, strict=True):
                folder.mkdir()
                for partition in data.glob(f"{topic}-*"):
                    (folder / partition.name).symlink_to(partition)
            return replicas_identical(views)

    def last_words(self) -> str:
        return "\n".join(f"==== broker {node_id}\n{each.last_words()}" for node_id, each in self.members.items())
