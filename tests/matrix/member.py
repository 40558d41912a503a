"""One broker of a cluster: a number, an address and a data folder, whatever happens to the process between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.faults.load import REPOSITORY
from tests.matrix.places import Place

STOP_S_MAX = 40.0
LOG_SHOWN = 4000
POLL_S = 0.1


class Member:
    def __init__(
        self, folder: Path, node_id: int, place: Place, zookeeper: str, settings: Mapping[str, object], data: Path
    ) -> None:
        self.node_id = node_id
        self.place = place
        self.data = data
        self.log = folder / f"broker-{node_id}.log"
        self.address = f"{place.host}:{place.port}"
        self._zookeeper = zookeeper
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, world: tuple[str, ...] = ()) -> None:
        """Does not wait until it answers. `world` is for tests.matrix.broker, where it shall not be the real one."""
        assert not self.runs, f"broker {self.node_id} runs already"
        module = ["penstock", "start", "--quiet"] if not world else ["tests.matrix.broker", *world, "--"]
        options = ["--node-id", str(self.node_id), "--listen", self.address, "--data", str(self.data)]
        options += ["--zookeeper", self._zookeeper]
        for name, value in self._settings.items():
            options += ["--set", f"{name}={value}"]
        launcher = [sys.executable, "-m", "tests.matrix.launch", self.place.namespace or "-"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        with self.log.open("ab") as log:
            log.write(f"---- start {' '.join(world)}\n".encode())
            self._process = subprocess.Popen(
                [*launcher, sys.executable, "-m", *module, *options], cwd=REPOSITORY, stdout=log, stderr=log, env=clean
            )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self.runs, f"broker {self.node_id} has ended by itself:\n{self.last_words()}"
        self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP: its connections stay, and nobody answers on them."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL: nothing is closed or flushed."""
        if self._process is not None and self.runs:
            self._process.kill()
            self._process.wait(STOP_S_MAX)

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        code = self.wait()
        assert code == 0, f"broker {self.node_id} ended with {code}:\n{self.last_words()}"

    def wipe(self) -> None:
        """What is in the data folder goes; the folder, which may be a file system of its own, stays."""
        for path in self.data.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def segments(self, topic: str) -> list[Path]:
        """The newest last."""
        return sorted(self.data.glob(f"{topic}-*/*.log"), key=lambda path: (path.name, path.parent.name))

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_SHOWN:] if self.log.exists() else ""


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(POLL_S)
    return time.monotonic() - began
