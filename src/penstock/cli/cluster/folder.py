"""The folder of a cluster on one machine: which brokers it has, and where they and their ZooKeeper are reached.

penstock-cluster/
  .lock             held by the `penstock cluster start` that runs on it
  cluster.json      what was started last; a process named there may be gone, and its number another's
  broker-1/         the data folder of broker 1
  broker-1.log      what it logs
  zookeeper/        that of ZooKeeper, if it is one of ours
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.cli.naming import reachable
from penstock.cli.parser import BOOTSTRAP_VARIABLE, DEFAULT_CLUSTER
from penstock.cli.problem import Problem

FILE_NAME = "cluster.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Member:
    node_id: int
    listen: str
    pid: int
    drained: bool = False  # it holds nothing any more, and may be gone for good


@dataclass(frozen=True, slots=True)
class Record:
    """Without a process, ZooKeeper is not one of ours: it ran already."""

    connect: str
    zookeeper_pid: int | None
    members: tuple[Member, ...]

    def encode(self) -> str:
        brokers = [
            {"id": each.node_id, "listen": each.listen, "pid": each.pid} | ({"drained": True} if each.drained else {})
            for each in self.members
        ]
        zookeeper = {"connect": self.connect, "pid": self.zookeeper_pid}
        return json.dumps({"format": FORMAT, "zookeeper": zookeeper, "brokers": brokers}, indent=2) + "\n"

    @classmethod
    def decode(cls, text: str) -> Record:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        members = [
            Member(int(each["id"]), str(each["listen"]), int(each["pid"]), bool(each.get("drained", False)))
            for each in content["brokers"]
        ]
        zookeeper = content["zookeeper"]
        return cls(str(zookeeper["connect"]), zookeeper["pid"], tuple(members))

    def with_member(self, member: Member) -> Record:
        others = [each for each in self.members if each.node_id != member.node_id]
        return replace(self, members=tuple(sorted([*others, member], key=lambda each: each.node_id)))

    def with_drained(self, node_ids: Collection[int]) -> Record:
        members = (replace(each, drained=True) if each.node_id in node_ids else each for each in self.members)
        return replace(self, members=tuple(members))

    @property
    def expected(self) -> list[int]:
        """The brokers that should be there."""
        return [each.node_id for each in self.members if not each.drained]

    @property
    def bootstrap(self) -> str:
        return ",".join(reachable(each.listen) for each in self.members)


class ClusterFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.zookeeper = self.path / "zookeeper"

    @property
    def option(self) -> str:
        """What a 'penstock cluster' command that is run here needs to find it, with a space before it; mostly ''."""
        is_found = self.path == Path(DEFAULT_CLUSTER).absolute() and not os.environ.get(BOOTSTRAP_VARIABLE)
        return "" if is_found else f" --data {shlex.quote(str(self.path))}"

    def broker(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}"

    def log(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}.log"

    def node_ids(self) -> list[int]:
        """Of the brokers that have a data folder here."""
        found = (re.fullmatch(r"broker-(\d+)", each.name) for each in self.path.glob("broker-*") if each.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Problem(f"can't use the folder {self.path}: {error.strerror}.") from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else starts this cluster meanwhile."""
        self.make()
        file = _locked(self.path / ".lock", wait=False)
        if file is None:
            raise Problem(
                f"the cluster in {self.path} runs already.",
                f"'penstock cluster status{self.option}' shows it. Choose another folder with --data.",
            )
        try:
            yield
        finally:
            os.close(file)

    def is_held(self) -> bool:
        """Whether a 'penstock cluster start' runs on it."""
        return _is_locked(self.path / ".lock")

    def runs(self, node_id: int) -> bool:
        """Whether a broker, started by whomever, uses the data folder."""
        return _is_locked(self.broker(node_id) / ".lock")

    def read(self) -> Record | None:
        """None where no cluster was ever started."""
        file = self.path / FILE_NAME
        try:
            return Record.decode(file.read_text())
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise Problem(f"{self.path} is not a folder.") from None
        except (OSError, KeyError, TypeError, ValueError) as error:
            hint = (
                "If no broker runs, remove it: 'penstock cluster start' writes it anew.\n"
                "Until then, name a broker with --bootstrap HOST:PORT."
            )
            raise Problem(f"{file} can't be read ({error}).", hint) from None

    def write(self, record: Record) -> None:
        temporary = self.path / f"{FILE_NAME}.{os.getpid()}"
        temporary.write_text(record.encode())
        temporary.replace(self.path / FILE_NAME)

    def add(self, member: Member) -> None:
        self._change(lambda record: record.with_member(member))

    def drained(self, node_ids: Collection[int]) -> None:
        """Until they are started again, nobody misses them."""
        self._change(lambda record: record.with_drained(node_ids))

    def _change(self, change: Callable[[Record], Record]) -> None:
        """Several may do so at once."""
        file = _locked(self.path / ".record-lock", wait=True)
        assert file is not None
        try:
            record = self.read()
            assert record is not None, "who changes it has found where ZooKeeper is"
            self.write(change(record))
        finally:
            os.close(file)


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    file = _locked(path, wait=False)
    if file is not None:
        os.close(file)
    return file is None


def _locked(path: Path, *, wait: bool) -> int | None:
    """The open file that holds the lock; None if another has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return file
    except BlockingIOError:
        os.close(file)
        return None
