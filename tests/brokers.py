"""Real brokers for tests: `penstock start` as a process of its own, to be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_TIMEOUT_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokerProcess:
    """One data folder and one port, whatever happens to the process between."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.data = folder / "data"
        self.log = folder / "broker.log"
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> BrokerProcess:
        command = [sys.executable, "-m", "penstock", "start", "--quiet", "--listen", self.bootstrap]
        command += ["--data", str(self.data)]
        for name, value in self.settings.items():
            command += ["--set", f"{name.replace('_', '.')}={value}"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=clean)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the broker did not start:\n{self.log.read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"the broker does not answer:\n{self.log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def kill(self) -> None:
        """SIGKILL: nothing is closed or flushed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")
