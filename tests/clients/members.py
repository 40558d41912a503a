"""Members of a consumer group: each polls in a thread of its own, or in a process that can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.clients.drivers import CLIENTS, Client, Received, Refused
from tests.clients.drivers.face import Partition

REPOSITORY = Path(__file__).parents[2]

open_members: set[Member] = set()  # of the test that runs: one that fails must not leave them to the next


class Poller(ABC):
    """Something that polls in a thread of its own, from `start` until it is told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="member", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and self.poll():
            pass

    @abstractmethod
    def poll(self) -> bool:
        """False if it can't go on."""

    def stop(self) -> None:
        """Stops polling, and says nothing of it: it is still a member until it is closed or forgotten."""
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "poll never returned"


class Member(Poller):
    """A consumer that polls until it is told to stop. What it was given and what it read can be looked at meanwhile."""

    def __init__(self, client: Client, bootstrap: str, group: str, *topics: str, **options: Any) -> None:
        self.consumer = client.consumer(bootstrap, group=group, **options)
        self.consumer.subscribe(*topics)
        self.owned: set[Partition] = set()
        self.received: list[Received] = []
        self.error: Refused | None = None
        super().__init__()
        open_members.add(self)
        self.start()

    def poll(self) -> bool:
        try:
            self.received += self.consumer.poll(0.05)
            self.owned = self.consumer.assignment()
        except Refused as error:
            self.error = error
            self.owned = set()
            return False
        return True

    @property
    def values(self) -> list[bytes | None]:
        return [message.value for message in list(self.received)]

    def close(self) -> None:
        open_members.discard(self)
        self.stop()
        self.consumer.close()


def close_all(members: Iterable[Member]) -> None:
    """All at once: one that has asked to rejoin waits for the others to do the same, or to leave."""
    with ThreadPoolExecutor(max_workers=16) as closers:
        list(closers.map(Member.close, members))


def owners_of_each(members: Iterable[Member]) -> dict[Partition, int]:
    """How many members hold each partition."""
    owners: dict[Partition, int] = {}
    for member in members:
        for partition in member.owned:
            owners[partition] = owners.get(partition, 0) + 1
    return owners


def all_owned_once(members: Iterable[Member], topic: str, partitions: int) -> bool:
    return owners_of_each(members) == {(topic, n): 1 for n in range(partitions)}


class MemberProcess:
    """A member that says what it holds, one line at a time, and that can be killed."""

    def __init__(self, client: Client, bootstrap: str, group: str, topic: str, session_timeout_ms: int) -> None:
        command = [sys.executable, "-m", "tests.clients.members", client.name, bootstrap, group, topic]
        self._process = subprocess.Popen(
            [*command, str(session_timeout_ms)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        self.owned = -1
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.owned = int(line)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)


def main(client: str, bootstrap: str, group: str, topic: str, session_timeout_ms: str) -> None:
    consumer = CLIENTS[client].consumer(bootstrap, group=group, session_timeout_ms=int(session_timeout_ms))
    consumer.subscribe(topic)
    deadline = time.monotonic() + 60  # whatever becomes of the test
    while time.monotonic() < deadline:
        consumer.poll(0.05)
        print(len(consumer.assignment()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
