"""Brokers as processes: started as a user starts them, watched through /proc, and gone when the block ends.

A broker dies with the process that started it, however that ends. Its data is removed unless the caller keeps it.
"""

from __future__ import annotations

import base64
import ctypes
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import jars

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ADMIN_TIMEOUT_S = 120.0
POLL_S = 0.002
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)

# As Kafka's own start script sets them.
JAVA_OPTIONS = shlex.split(
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
)
# What one node cannot do without: its defaults want three brokers for the internal topics.
KAFKA_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerFailed(Exception):
    """A broker that did not start, did not stop, or refused what it was asked."""


def die_with_parent() -> None:
    """For `preexec_fn`: nothing that was started outlives the thread that started it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_on_sigterm() -> None:
    """An end from outside is an end like any other: brokers are stopped and folders removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a broker there answers a first request."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(API_VERSIONS_V0)
            return len(connection.recv(4096)) > 4
    except OSError:
        return False


@dataclass
class Peer:
    name: str
    port: int
    data: Path
    process: subprocess.Popen[bytes]
    log: Path
    answered_s: float = 0.0  # from the command to the first answer
    _admin: AdminClient | None = field(default=None, repr=False)
    _making: threading.Lock = field(default_factory=threading.Lock, repr=False)  # checks run side by side

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    # ---- what it uses

    def tree(self) -> list[int]:
        """The process and its descendants."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                found.append(pid)
            except OSError:
                continue
        return found

    def memory_mb(self) -> float:
        total_kb = 0
        for pid in self.tree():
            for line in _lines(f"/proc/{pid}/status"):
                if line.startswith("VmRSS:"):
                    total_kb += int(line.split()[1])
        return total_kb / 1024

    def cpu_s(self) -> float:
        """Of the broker's own process: what a worker does beside it is not part of a request."""
        return _cpu_s(self.process.pid)

    def workers_cpu_s(self) -> float:
        """Of the processes that the broker started."""
        return sum(_cpu_s(pid) for pid in self.tree() if pid != self.process.pid)

    # ---- topics

    @property
    def admin(self) -> AdminClient:
        with self._making:
            if self._admin is None:
                self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})
            return self._admin

    def create_topics(self, names: Iterable[str], partitions: int, config: Mapping[str, str] | None = None) -> None:
        topics = [NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]
        self._wait(self.admin.create_topics(topics, operation_timeout=ADMIN_TIMEOUT_S).values())

    def delete_topics(self, names: Iterable[str]) -> None:
        self._wait(self.admin.delete_topics(list(names), operation_timeout=ADMIN_TIMEOUT_S).values())

    def _wait(self, futures: Iterable[object]) -> None:
        try:
            for future in futures:
                future.result(ADMIN_TIMEOUT_S)  # type: ignore[attr-defined]
        except KafkaException as failure:
            raise BrokerFailed(f"{self.name}: {failure}") from failure

    # ---- its end

    def stop(self) -> float:
        """A clean stop; the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"{self.name} did not stop in {STOP_TIMEOUT_S:.0f} s") from None
        return time.monotonic() - began

    def kill(self) -> None:
        for pid in reversed(self.tree()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _cpu_s(pid: int) -> float:
    fields = "".join(_lines(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


@contextmanager
def penstock(
    folder: Path, settings: Mapping[str, str] = {}, *, name: str = "penstock", keep: bool = False
) -> Iterator[Peer]:
    """A Penstock broker with its data in `folder`, which is removed afterwards unless it is to be kept."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "penstock",
        "start",
        "--quiet",
        "--listen",
        f"127.0.0.1:{port}",
        "--data",
        str(folder),
    ]
    for setting, value in settings.items():
        command += ["--set", f"{setting}={value}"]
    with _running(name, command, port, folder, keep, answers) as peer:
        yield peer


@contextmanager
def kafka(folder: Path, settings: Mapping[str, str] = {}, *, name: str = "kafka") -> Iterator[Peer]:
    """Apache Kafka: one KRaft node as it comes, in the memory its start script gives it."""
    port, controller_port = free_port(), free_port()
    folder.mkdir(parents=True)
    properties = {
        **KAFKA_PROPERTIES,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(folder / "data"),
        **settings,
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{setting}={value}\n" for setting, value in properties.items()))
    java = ["java", *JAVA_OPTIONS, "-cp", jars.classpath()]
    cluster = base64.urlsafe_b64encode(b"P" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    form = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
    done = subprocess.run(form, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    if done.returncode:
        raise BrokerFailed(f"Kafka's storage tool: {done.stderr.strip() or done.stdout.strip()}")
    with _running(name, [*java, "kafka.Kafka", str(file)], port, folder, False, answers) as peer:
        yield peer


@contextmanager
def _running(
    name: str, command: list[str], port: int, folder: Path, keep: bool, ready: Callable[[int], bool]
) -> Iterator[Peer]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    with log.open("ab") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=die_with_parent
        )
    peer = Peer(name, port, folder, process, log)
    try:
        while not ready(port):
            if process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                tail = "\n".join(_lines(str(log))[-5:])
                raise BrokerFailed(f"{name} did not start. The end of its log:\n{tail}")
            time.sleep(POLL_S)
        peer.answered_s = time.monotonic() - began
        yield peer
    finally:
        peer.kill()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
