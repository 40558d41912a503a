"""Brokers as processes of this machine: started together, watched, and stopped together, before their ZooKeeper.

The processes are in sessions of their own, so that Ctrl-C reaches this one alone, which stops them in order; and the
system tells them to stop should this one be killed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from penstock.cli.cluster.board import Board
from penstock.cli.cluster.folder import ClusterFolder
from penstock.cli.cluster.processes import ends_with_parent
from penstock.cli.cluster.zookeeper import LocalZooKeeper
from penstock.cli.problem import Problem, usage

START_S_MAX = 120.0  # a broker that was killed recovers all of its logs first
STOP_S_MAX = 60.0
LOOK_S = 0.05
PATIENCE_S = 2.0  # of a person who is told nothing
SILENCE_S = 5.0  # of a broker that says nothing either
LAST_LINES = 8
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A person wants it to stop while it starts."""


def host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise usage(f"{text!r} is not HOST:PORT.", "For example: --listen 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def can_listen(address: str) -> str | None:
    """Why not, if not."""
    host, port = host_and_port(address)
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


@dataclass(slots=True)
class LocalBroker:
    node_id: int
    listen: str
    data: Path
    log: Path
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _logged_before: int = field(default=0, init=False)  # bytes of the log that former lives have left

    @property
    def name(self) -> str:
        return f"broker {self.node_id}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was never started"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def check_port(self) -> None:
        if reason := can_listen(self.listen):
            hint = "Is a broker running there? Choose others with --listen."
            raise Problem(f"{self.name} can't listen on {self.listen}: {reason}.", hint)

    def launch(self, connect: str) -> None:
        command = [
            sys.executable, "-m", "penstock", "start", "--quiet", "--node-id", str(self.node_id),
            "--listen", self.listen, "--data", str(self.data), "--zookeeper", connect, *self.options,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._logged_before = log.tell()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=ends_with_parent(),
            )  # fmt: skip

    def knows(self) -> set[int]:
        """The brokers that it knows of, itself among them when it serves; none while there is no controller."""
        from penstock.cli.raw import ask
        from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        host, port = host_and_port(self.listen)
        try:
            reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            answer = ask((reachable, port), DescribeClusterRequest(), 0, DescribeClusterResponse)
        except Problem:
            return set()
        return {broker.broker_id for broker in answer.brokers} if answer.controller_id >= 0 else set()

    def last_words(self) -> str:
        return "\n".join([*self._lines()[-LAST_LINES:], f"Its log: {self.log}"])

    def complaint(self) -> str | None:
        """The last warning in its log, of this life. After an error it ends."""
        found = (re.search(r" WARNING +\w+ +(.*)", line) for line in reversed(self._lines()))
        return next((match[1] for match in found if match), None)

    def _lines(self) -> list[str]:
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._logged_before)
            return log.read().decode(errors="replace").splitlines()

    def how_it_ended(self) -> str:
        assert self.process is not None
        code = self.process.poll()
        assert code is not None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Fleet:
    def __init__(self, brokers: list[LocalBroker], connect: str, zookeeper: LocalZooKeeper | None = None) -> None:
        self.brokers = brokers
        self.connect = connect
        self.zookeeper = zookeeper
        self._wishes = 0  # how often someone wanted all to stop
        self._clean = True

    def run(self, board: Board, launched: Callable[[], None], up: Callable[[], None]) -> int:
        """Until it is told to stop, or all brokers are gone; the exit code."""
        before = {number: signal.signal(number, self._wish) for number in SIGNALS}
        try:
            with board:
                self._start(board, launched)
            up()
            self._watch()
        except Interrupted:
            pass
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)
        return 0 if self._clean else 1

    def _wish(self, _number: int, _frame: FrameType | None) -> None:
        self._wishes += 1

    def _start(self, board: Board, launched: Callable[[], None]) -> None:
        for broker in self.brokers:
            broker.check_port()
        if self.zookeeper is not None:
            board.show("ZooKeeper", self.zookeeper.connect, None, "starting")
            self.zookeeper.start()
            board.show("ZooKeeper", self.zookeeper.connect, self.zookeeper.pid, "up")
        for broker in self.brokers:
            self._check_wishes()
            broker.launch(self.connect)
            board.show(broker.name, broker.listen, broker.pid, "starting")
        launched()
        self._wait(board)

    def _wait(self, board: Board) -> None:
        """Until each of them knows all of them."""
        expected = {broker.node_id for broker in self.brokers}
        waiting = list(self.brokers)
        began = time.monotonic()
        told: set[str] = set()
        while waiting:
            self._check_wishes()
            for broker in list(waiting):
                if not broker.running:
                    raise Problem(f"{broker.name} did not start: it {broker.how_it_ended()}.", broker.last_words())
                known = broker.knows()
                if broker.node_id in known:
                    board.show(broker.name, broker.listen, broker.pid, "up")
                if expected <= known:
                    waiting.remove(broker)
            if waiting and time.monotonic() > began + PATIENCE_S:
                _tell_what_keeps(waiting[0], told, time.monotonic() - began)
            if waiting and time.monotonic() > began + START_S_MAX:
                raise Problem(f"{waiting[0].name} is not there after {START_S_MAX:.0f} s.", waiting[0].last_words())
            time.sleep(LOOK_S)

    def _check_wishes(self) -> None:
        if self._wishes:
            raise Interrupted

    def _watch(self) -> None:
        """Who ends is told about and not started again: a person shall know."""
        watched = [broker for broker in self.brokers if broker.running]
        zookeeper = self.zookeeper
        while not self._wishes and (watched or not self.brokers or self._others_run()):
            for broker in [each for each in watched if not each.running]:
                watched.remove(broker)
                self._tell(f"{broker.name} (process {broker.pid}) {broker.how_it_ended()}. Its log: {broker.log}")
                option = ClusterFolder(broker.data.parent).option
                self._tell(f"  bring it back with: penstock cluster add --node-id {broker.node_id}{option}")
            if zookeeper is not None and not zookeeper.running:
                self._tell(f"ZooKeeper (process {zookeeper.pid}) ended. Its log: {zookeeper.log}")
                self._tell("  it is started again; until then brokers serve on, but nothing can be created or elected")
                try:
                    zookeeper.start()
                    self._tell(f"ZooKeeper is back (process {zookeeper.pid})")
                except Problem as problem:
                    self._tell(f"ZooKeeper does not start: {problem.message}")
                    zookeeper = None
            time.sleep(LOOK_S)
        if not self._wishes:
            self._clean = False
            self._tell("no broker is left.")

    def _others_run(self) -> bool:
        """Brokers that were brought back or added in another terminal need the ZooKeeper of this one."""
        if self.zookeeper is None or not self.brokers:
            return False
        folder = ClusterFolder(self.brokers[0].data.parent)
        return any(folder.runs(node_id) for node_id in folder.node_ids())

    def _stop(self) -> None:
        running = [broker for broker in self.brokers if broker.running]
        if running:
            self._tell(f"stopping {len(running)} broker{'s' * (len(running) > 1)} (Ctrl-C again: at once)")
        for broker in running:
            os.kill(broker.pid, signal.SIGCONT)
            os.kill(broker.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S_MAX
        while any(broker.running for broker in running):
            if self._wishes > 1 or time.monotonic() > deadline:
                self._kill(running)
            time.sleep(LOOK_S)
        # One that had not begun to listen to signals ends by the first.
        if any(broker.process and broker.process.poll() not in (0, -signal.SIGTERM) for broker in running):
            self._clean = False
        if self.zookeeper is not None:
            if self._others_run():
                option = ClusterFolder(self.brokers[0].data.parent).option
                self._tell("brokers that were started elsewhere serve on without ZooKeeper")
                self._tell(f"  bring it back with: penstock cluster start{option}")
            self.zookeeper.stop()

    def _kill(self, running: list[LocalBroker]) -> None:
        for broker in running:
            if broker.process is not None and broker.running:
                self._tell(f"killed {broker.name}: its next start recovers")
                broker.process.kill()
                broker.process.wait()

    def _tell(self, line: str) -> None:
        with suppress(OSError):  # the terminal may be gone, and the processes are to be stopped all the same
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _tell_what_keeps(broker: LocalBroker, told: set[str], waited_s: float) -> None:
    """Once each: brokers that wait for the same thing say the same."""
    complaint = broker.complaint()
    if complaint is None and waited_s > SILENCE_S:
        complaint = f"it may be reading its logs after a crash. Its log: {broker.log}"
    if complaint is not None and complaint not in told:
        told.add(complaint)
        print(f"penstock: {broker.name} is not up yet: {complaint}", file=sys.stderr, flush=True)
