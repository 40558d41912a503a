"""The processes that make the load of a run, each of which writes down what it does and what it is told.

    python -m tests.history.load --bootstrap H:P --events FILE --topic T --partitions N --kind KIND --name NAME ...

    plain, idempotent, transactional   writers with acks=all, at a rate, until SIGTERM
    reader                             a member of a group, which reads and commits until SIGTERM
    final                              reads the whole topic with each isolation once all others have ended, and ends

They bear with anything: a client that fails for good is replaced by a new one, which goes by another name. They end
with 0 when everything they sent was answered or is written down as unknown.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.history.final import read_all
from tests.history.reader import GroupReader
from tests.history.writer import EventWriter
from tests.history.writers import TransactionalWriter, Writer

REPOSITORY = Path(__file__).parents[2]
KINDS = ("plain", "idempotent", "transactional", "reader", "final")
STOP_S_MAX = 150.0


class LoadProcess:
    """One such process, as the test sees it."""

    def __init__(
        self, events: Path, kind: str, *, bootstrap: str, topic: str, partitions: int, **options: object
    ) -> None:
        self.events = events
        self.name = str(options.setdefault("name", events.stem))
        common = {"bootstrap": bootstrap, "events": events, "topic": topic, "partitions": partitions, "kind": kind}
        command = [sys.executable, "-m", "tests.history.load"]
        for option, value in {**common, **options}.items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        self._said = events.with_suffix(".errors")
        self._said.parent.mkdir(parents=True, exist_ok=True)
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=said, stderr=said)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """Asks it to end, without waiting for it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def finish(self, timeout_s: float = STOP_S_MAX) -> None:
        """Waits until it has ended by itself, or because it was asked to."""
        code = self.process.wait(timeout_s)
        assert code == 0, f"{self.name} ended with {code}:\n{self._said.read_text(errors='replace')[-2000:]}"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)


class StopSignal:
    """SIGTERM or SIGINT, to be looked at now and then."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True

    def __call__(self) -> bool:
        return self.is_set


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.history.load", description="A client that writes down all.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--events", required=True, type=Path, help="the file that events are added to")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", required=True, type=int)
    parser.add_argument("--kind", required=True, choices=KINDS)
    parser.add_argument("--name", required=True, help="of this client; no other may have it")
    parser.add_argument("--rate", type=float, default=400.0, help="messages a second (writers)")
    parser.add_argument("--keyed", action="store_true", help="the key chooses the partition (writers)")
    parser.add_argument("--seed", type=int, default=0, help="which transactions are aborted (transactional)")
    parser.add_argument("--transaction-size", type=int, default=50, help="messages of a transaction (transactional)")
    parser.add_argument("--transaction-timeout-ms", type=int, default=10_000, help="(transactional)")
    parser.add_argument("--abort-ratio", type=float, default=0.2, help="of all transactions (transactional)")
    parser.add_argument("--group", default="readers", help="(reader)")
    parser.add_argument("--group-protocol", choices=("classic", "consumer"), default="classic", help="(reader)")
    parser.add_argument("--session-timeout-ms", type=int, default=6_000, help="(reader)")
    parser.add_argument("--drain-s", type=float, default=0.0, help="goes on until nothing came for so long (reader)")
    parser.add_argument("--flush-s", type=float, default=60.0, help="how long to wait for answers at the end (writers)")
    parser.add_argument("--patience-s", type=float, default=60.0, help="how long it may take (final)")
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace, is_stopped: Callable[[], bool]) -> int:
    with EventWriter(arguments.events) as events:
        if arguments.kind == "final":
            return read_all(arguments, events, time.monotonic() + arguments.patience_s)
        if arguments.kind == "reader":
            GroupReader(arguments, events).run(is_stopped)
        elif arguments.kind == "transactional":
            TransactionalWriter(arguments, events).run(is_stopped)
        else:
            Writer(arguments, events).run(is_stopped)
    return 0


if __name__ == "__main__":
    sys.exit(run(parsed(), StopSignal()))
