"""The clients of a run: writers of each kind and a group of readers, all of whom write down what they see."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.history.events import load_all
from tests.history.judge import Verdict, judge
from tests.history.load import LoadProcess
from tests.matrix.member import until

PARTITIONS = 3
RATES = {"plain": 600, "idempotent": 600, "transactional": 400}  # messages a second
READERS = 2
SESSION_MS = 3000
FLUSH_S = 40.0
STEADY_EVENTS = 100  # acknowledgements of each writer, and reads, that show that all goes on

ACKNOWLEDGED, READ = b'["acknowledged"', b'["read"'


class Crowd:
    def __init__(self, folder: Path, bootstrap: str, topic: str, seed: int = 0) -> None:
        self.folder = folder
        self.topic = topic
        self.group = f"{topic}-readers"
        self.transactional_id = f"{topic}-transactional"
        self.lasted_s = 0.0
        self._bootstrap = bootstrap
        self._began = time.monotonic()
        self._loads: list[LoadProcess] = []
        for kind, rate in RATES.items():
            options = {"rate": rate, "seed": seed, "flush_s": FLUSH_S, "transaction_timeout_ms": 5000}
            self._add(kind, f"{topic}-{kind}", transaction_size=30, **options)
        for number in range(READERS):
            self._add("reader", f"{topic}-reader-{number}", group=self.group, session_timeout_ms=SESSION_MS)

    def _add(self, kind: str, name: str, **options: object) -> LoadProcess:
        load = LoadProcess(
            self.folder / f"{name}.jsonl", kind, bootstrap=self._bootstrap, topic=self.topic, partitions=PARTITIONS,
            name=name, **options,
        )  # fmt: skip
        self._loads.append(load)
        return load

    def wait_steady(self, timeout_s: float) -> None:
        """Until every writer and the readers have got on since now."""
        before = self._progress()

        def got_on() -> bool:
            return all(now - then >= STEADY_EVENTS for now, then in zip(self._progress(), before, strict=True))

        try:
            until(got_on, timeout_s, "progress of everyone")
        except AssertionError as stuck:
            raise AssertionError(f"{stuck}: {before} then, {self._progress()} now; {[*RATES, 'readers']}") from None

    def _progress(self) -> list[int]:
        """Of each writer, and of the readers together."""
        contents = [load.events.read_bytes() if load.events.exists() else b"" for load in self._loads]
        written = [content.count(ACKNOWLEDGED) for content in contents[: len(RATES)]]
        return [*written, sum(content.count(READ) for content in contents[len(RATES) :])]

    def pause_writers(self) -> None:
        """From now on they send nothing; what they have sent is answered or not, without their knowing."""
        for load in self._loads[: len(RATES)]:
            load.send(signal.SIGSTOP)

    def resume_writers(self) -> None:
        for load in self._loads[: len(RATES)]:
            load.send(signal.SIGCONT)

    def finish(self) -> Verdict:
        """Everyone ends, one reads it all, and the judge decides."""
        self.lasted_s = time.monotonic() - self._began
        for load in self._loads:
            load.stop()
        for load in self._loads:
            load.finish()
        self._add("final", f"{self.topic}-final", patience_s=60).finish()
        return judge(load_all(self.files()))

    def files(self) -> list[Path]:
        return [load.events for load in self._loads]

    def close(self) -> None:
        for load in self._loads:
            load.kill()
