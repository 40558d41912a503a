"""A ZooKeeper on this machine, as a process of its own, from the jars that come with PySpark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from penstock.cli.problem import Problem

START_S_MAX = 30.0
STOP_S_MAX = 5.0
POLL_S = 0.05
ANSWER_BYTES_MAX = 65_536
HEAP_MB = 256
JARS = ("zookeeper-*", "slf4j-api-*", "log4j-*", "netty-*", "metrics-core-*", "snappy-java-*", "commons-*")
INSTEAD = "Or use a ZooKeeper that runs already: --zookeeper HOST:PORT."

SETTINGS = """\
tickTime=500
initLimit=20
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

LOGGING = """\
status=error
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1} %m%n
"""


class Peer(NamedTuple):
    """A member of an ensemble: the ports at which clients, followers and voters find it."""

    client_port: int
    follower_port: int
    election_port: int


class LocalZooKeeper:
    """One folder and one port, whatever happens to the process between."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        host: str = "127.0.0.1",
        peers: Mapping[int, Peer] | None = None,
        server_id: int = 0,
        force_sync: bool = True,
        preexec: Callable[[], None] | None = None,
    ) -> None:
        """`force_sync=False` is for tests: a write is then acknowledged before it is on the disk. `preexec` is run by
        the new process before it becomes ZooKeeper."""
        self.folder = folder.absolute()
        self.host = host
        self.port = port
        self.connect = f"{host}:{port}"
        self.log = self.folder / "zookeeper.log"
        self._peers = peers or {}
        self._server_id = server_id
        self._force_sync = force_sync
        self._preexec = preexec
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def ensemble(cls, folder: Path, peers: Sequence[Peer], *, force_sync: bool = True) -> list[Self]:
        """Not started: `launch` all of them, then `wait` for each, since none answers before it has a majority."""
        numbered = dict(enumerate(peers, start=1))
        return [
            cls(folder / str(number), peer.client_port, peers=numbered, server_id=number, force_sync=force_sync)
            for number, peer in numbered.items()
        ]

    def start(self) -> Self:
        self.launch()
        self.wait()
        return self

    def launch(self) -> None:
        assert not self.running, "it runs already"
        command = self._command()  # first: it finds out what is missing
        self._check_port()
        self._write_settings()
        with self.log.open("ab") as log:
            # A session of its own, so that Ctrl-C reaches the brokers and not what they need to stop in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=self._preexec,
            )  # fmt: skip

    def wait(self, timeout_s: float = START_S_MAX) -> None:
        """Until it serves. Raises, and leaves no process behind, if it does not."""
        deadline = time.monotonic() + timeout_s
        while not self.serves():
            if not self.running:
                raise Problem(f"ZooKeeper on {self.connect} did not start.", self._last_words())
            if time.monotonic() > deadline:
                self.kill()
                raise Problem(f"ZooKeeper on {self.connect} does not answer.", self._last_words())
            time.sleep(POLL_S)

    def serves(self) -> bool:
        return self.running and "Mode: " in ask(self.host, self.port, "srvr")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    def stop(self) -> None:
        """Politely at first. To stop what does not run is no mistake."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: nothing is closed or flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S_MAX)

    def pause(self) -> None:
        """SIGSTOP: its connections stay, and nobody answers on them."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _command(self) -> list[str]:
        main = "quorum.QuorumPeerMain" if self._peers else "ZooKeeperServerMain"
        return [
            find_java(),
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # it starts faster, and is never the bottleneck
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            "-Dzookeeper.preAllocSize=4096",
            f"-Dzookeeper.forceSync={'yes' if self._force_sync else 'no'}",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(str(jar) for jar in find_jars()),
            f"org.apache.zookeeper.server.{main}",
            str(self.folder / "zoo.cfg"),
        ]

    def _write_settings(self) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [SETTINGS + f"dataDir={data}", f"clientPortAddress={self.host}", f"clientPort={self.port}"]
        for number, peer in self._peers.items():
            lines.append(f"server.{number}={self.host}:{peer.follower_port}:{peer.election_port}")
        if self._peers:
            (data / "myid").write_text(f"{self._server_id}\n")
        (self.folder / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (self.folder / "log4j2.properties").write_text(LOGGING)

    def _check_port(self) -> None:
        """Another ZooKeeper there would answer for ours, until ours finds the port taken and ends."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                hint = f"Is something else running there? {INSTEAD}"
                raise Problem(f"ZooKeeper can't listen on {self.connect}: {error.strerror}.", hint) from None

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-8:] if self.log.exists() else []
        return "\n".join([*lines, f"Its log: {self.log}"])


def ask(host: str, port: int, word: str, timeout_s: float = 1.0) -> str:
    """What ZooKeeper answers to one of its four letter words; '' if it does not."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(word.encode())
            answer = b""
            while len(answer) < ANSWER_BYTES_MAX and (part := connection.recv(4096)):
                answer += part
            return answer.decode(errors="replace")
    except OSError:
        return ""


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        hint = "ZooKeeper needs Java 17 or newer: install it (apt install openjdk-17-jre-headless) or set JAVA_HOME."
        raise Problem("there is no Java on this machine.", f"{hint}\n{INSTEAD}")
    return java


def find_jars() -> list[Path]:
    """Of the installed PySpark, which is not imported."""
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    jars = [jar for place in places for pattern in JARS for jar in sorted(Path(place, "jars").glob(f"{pattern}.jar"))]
    if not any(jar.name.startswith("zookeeper-3") for jar in jars):
        hint = "ZooKeeper comes with PySpark: pip install pyspark."
        raise Problem("there is no ZooKeeper on this machine.", f"{hint}\n{INSTEAD}")
    return jars
