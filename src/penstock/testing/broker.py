"""One broker for a test, alone as `penstock start` runs it."""

from __future__ import annotations

from pathlib import Path

from penstock.testing.kit import Kit
from penstock.testing.running import End

NUMBER = 1


class PenstockBroker(Kit):
    """A real broker in this process, on a free port, with its data in a folder that goes with it.

    with PenstockBroker() as penstock:
        penstock.topic("orders", partitions=3)
    """

    def __init__(self, **settings: object) -> None:
        """`settings` are those of `penstock start`, with underscores for dots: `PenstockBroker(num_partitions=3)`."""
        super().__init__(range(NUMBER, NUMBER + 1), settings)

    def _own_settings(self, number: int, folder: Path) -> dict[str, str]:
        return {"node.id": str(number), "data": str(folder / "data"), "listen": "127.0.0.1:0"}

    def stop(self) -> None:
        """As with SIGTERM: clients are refused until `start`, which finds everything as it was."""
        self._running[NUMBER].end(End.STOP)

    def kill(self) -> None:
        """As with SIGKILL."""
        self._running[NUMBER].end(End.KILL)

    def start(self) -> None:
        """Again, on the same port."""
        if self._running[NUMBER].is_up:
            raise RuntimeError("the broker is running: stop or kill it first")
        self._running[NUMBER].start()
