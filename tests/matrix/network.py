"""A network that can be cut: every broker in a namespace of its own, all of them on one bridge.

The bridge has two addresses, one of ZooKeeper and one of the clients, so that a broker can lose either. Packets are
dropped where they enter or leave a namespace, so that nobody is told: connections stay, and nothing comes. Names carry
the process that made them; what one left that was killed is cleared away by the next.
"""

from __future__ import annotations

import ipaddress
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache

from tests.matrix.places import Place

PREFIX = "pstk"
BROKER_PORT, ZOOKEEPER_PORT = 9092, 2181
CLIENTS, ZOOKEEPER = 254, 100  # the last part of their addresses
SOURCE_AT, DESTINATION_AT = 26, 30  # in an Ethernet frame that carries IPv4
COMING, LEAVING = "ingress", "egress"
COMMAND_S_MAX = 20.0

_OURS = re.compile(rf"\b({PREFIX}(\d+)x\d+)\b")


class NoNetwork(Exception):
    """Networks can't be made here; the message says why."""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S_MAX)
    if done.returncode != 0:
        raise NoNetwork(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@cache
def why_not() -> str | None:
    """What stands in the way of networks of our own; None if nothing does."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"network namespaces take {' and '.join(missing)}"
    try:
        trial = Network(brokers=1)
    except NoNetwork as problem:
        return f"this kernel does not allow it: {problem}"
    try:
        trial.cut(1, [trial.zookeeper_host])
        trial.slow(1, 1000)
    except NoNetwork as problem:
        return f"this kernel does not allow it: {problem}"
    finally:
        trial.close()
    return None


class Network:
    can_be_cut = True

    def __init__(self, brokers: int) -> None:
        _clear_what_others_left()
        self._name = f"{PREFIX}{os.getpid()}x"
        subnet = random.SystemRandom().randrange(1, 255)
        self._address = f"10.213.{subnet}."
        self.zookeeper_host = f"{self._address}{ZOOKEEPER}"
        self._nodes = range(1, brokers + 1)
        self._bridge = f"{self._name}0"
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        run("ip", "link", "add", self._bridge, "type", "bridge")
        for number in (CLIENTS, ZOOKEEPER):
            run("ip", "address", "add", f"{self._address}{number}/24", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")
        for node_id in self._nodes:
            name = self._namespace(node_id)
            run("ip", "netns", "add", name)
            run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", name, "master", self._bridge, "up")
            run("ip", "-n", name, "address", "add", f"{self._address}{node_id}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")

    def _namespace(self, node_id: int) -> str:
        return f"{self._name}{node_id}"

    def of_broker(self, node_id: int) -> Place:
        return Place(f"{self._address}{node_id}", BROKER_PORT, self._namespace(node_id))

    def of_zookeeper(self) -> Place:
        return Place(self.zookeeper_host, ZOOKEEPER_PORT)

    def host(self, node_id: int) -> str:
        return f"{self._address}{node_id}"

    # ---- what can happen to it

    def cut(
        self, node_id: int, others: Iterable[str] | None = None, directions: Iterable[str] = (COMING, LEAVING)
    ) -> None:
        """The broker loses these others, or everyone, until it is healed."""
        self._tc(node_id, "qdisc", "add", "dev", "eth0", "clsact")
        for direction in directions:
            programs = [_drop_all()] if others is None else [_drop(host, direction) for host in others]
            for order, program in enumerate(programs, 1):
                self._tc(
                    node_id, "filter", "add", "dev", "eth0", direction, "pref", str(order), "bpf", "da", "bytecode",
                    program,
                )  # fmt: skip

    def slow(self, node_id: int, kilobits: int) -> None:
        """What it sends goes out no faster than this, and behind a queue."""
        rate = ("rate", f"{kilobits}kbit", "burst", "16kb", "latency", "400ms")
        self._tc(node_id, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate)

    def heal(self, node_id: int) -> None:
        for qdisc in ("clsact", "root"):
            try:
                self._tc(node_id, "qdisc", "del", "dev", "eth0", qdisc)
            except NoNetwork:
                pass  # that one was not there

    def _tc(self, node_id: int, *arguments: str) -> None:
        run("tc", "-n", self._namespace(node_id), *arguments)

    def close(self) -> None:
        _remove([self._namespace(node_id) for node_id in self._nodes], [self._bridge])


def _drop_all() -> str:
    return "1,6 0 0 2,"


def _drop(host: str, direction: str) -> str:
    """Loads the other's address from the frame; the same: drop it; else whatever comes next in line decides."""
    place = SOURCE_AT if direction == COMING else DESTINATION_AT
    return f"4,32 0 0 {place},21 0 1 {int(ipaddress.ip_address(host))},6 0 0 2,6 0 0 4294967295,"


def _clear_what_others_left() -> None:
    found = {match[1]: int(match[2]) for match in _OURS.finditer(run("ip", "link") + run("ip", "netns"))}
    dead = [name for name, pid in found.items() if pid == os.getpid() or not os.path.exists(f"/proc/{pid}")]
    _remove(dead, dead)


def _remove(namespaces: Iterable[str], links: Iterable[str]) -> None:
    for name in namespaces:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_S_MAX)
    for name in links:
        subprocess.run(["ip", "link", "del", name], capture_output=True, timeout=COMMAND_S_MAX)
