"""An honest client, in a process of its own so that only the broker can slow it down.

It writes numbered records to a topic of its own and reads each one back, on one connection, and now and then says hello
on a new one. `begin` on its input starts a round of measuring, `report` ends it: one line of JSON with the slowest
exchange, how many there were, and what went wrong, if anything did.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.fetch import FetchPartition
from penstock.protocol.record_batch import read_batches, read_records
from tests.hostile.clients import RawClient, batch_of

TOPIC = "canary"
PAUSE_S = 0.02
HELLO_EVERY = 10
PATIENCE_S = 30.0  # how late an answer is still worth measuring


@dataclass(frozen=True)
class Report:
    exchanges: int
    slowest_s: float
    failure: str


class Honest:
    """The far end of the process."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.hostile.honest", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ask("ready?")

    def begin(self) -> None:
        self._ask("begin")

    def report(self) -> Report:
        return Report(**json.loads(self._ask("report")))

    def _ask(self, question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Canary:
    """Writes numbered records to a topic of its own and reads each one back."""

    def __init__(self, port: int, topic: str = TOPIC) -> None:
        self._port = port
        self._topic = topic
        self.offset = 0
        self._client = RawClient(port, PATIENCE_S)
        self._client.create_topic(topic)

    def exchange(self) -> None:
        value = b"record %d" % self.offset
        stored = self._client.produce(self._topic, batch_of(value))
        assert (stored.error_code, stored.base_offset) == (0, self.offset), stored
        assert self._read(self.offset) == [(self.offset, value)]
        self.offset += 1

    def _read(self, offset: int) -> list[tuple[int, bytes | None]]:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        found = self._client.fetch(self._topic, asked).responses[0].partitions[0]
        batches = [read_records(batch, 1 << 20, check_crc=True) for _, batch in read_batches(found.records)]
        return [(record.offset, record.value) for records in batches for record in records]

    def say_hello(self) -> None:
        """On a new connection."""
        stranger = RawClient(self._port, PATIENCE_S)
        assert stranger.ask(ApiVersionsRequest(), 0).error_code == 0
        stranger.close()

    def come_back(self) -> None:
        """After the broker was started again: what was written is there."""
        self._client.close()
        self._client = RawClient(self._port, PATIENCE_S)
        found = self._read(0)
        while found and len(found) < self.offset and (more := self._read(found[-1][0] + 1)):
            found += more
        assert found == [(offset, b"record %d" % offset) for offset in range(self.offset)]


class _Life:
    def __init__(self, port: int) -> None:
        self._canary = Canary(port)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._exchanges = 0
        self._slowest_s = 0.0
        self._failure = ""

    def run(self) -> None:
        while not self._failure:
            began = time.monotonic()
            with self._lock:
                self._began = began
            try:
                self._canary.exchange()
                if self._canary.offset % HELLO_EVERY == 0:
                    self._canary.say_hello()
            except Exception as error:  # whatever it is, the test is to hear of it
                self._failure = f"{type(error).__name__}: {error}"
            with self._lock:
                self._exchanges += 1
                self._slowest_s = max(self._slowest_s, time.monotonic() - began)
            time.sleep(PAUSE_S)
            with self._lock:
                self._began = time.monotonic()

    def begin(self) -> None:
        with self._lock:
            self._exchanges, self._slowest_s = 0, 0.0

    def report(self) -> Report:
        """What is under way counts too."""
        with self._lock:
            return Report(self._exchanges, max(self._slowest_s, time.monotonic() - self._began), self._failure)


def main(port: int) -> None:
    life = _Life(port)
    threading.Thread(target=life.run, daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "begin":
            life.begin()
        print(json.dumps(vars(life.report())) if line.strip() == "report" else "ok", flush=True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except (KeyboardInterrupt, OSError):
        pass
