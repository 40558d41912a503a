"""Where each leader epoch begins in the log (KIP-101), kept in a small text file beside the segments.

Epochs and their start offsets rise together. The file is replaced whole whenever an epoch begins, which is rare.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from penstock.storage.disk import Disk

FILE_NAME = "leader-epochs"


class LeaderEpochs:
    __slots__ = ("epochs", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []

    def begin(self, epoch: int, start_offset: int) -> bool:
        """True if the epoch is new to this log."""
        if self.epochs and epoch <= self.epochs[-1]:
            return False
        while self.starts and self.starts[-1] >= start_offset:  # an epoch that wrote nothing leaves no trace
            self.starts.pop()
            self.epochs.pop()
        self.epochs.append(epoch)
        self.starts.append(start_offset)
        return True

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above the asked one, and the offset at which it ends; (-1, -1) if there is none."""
        slot = bisect_right(self.epochs, epoch) - 1
        if slot < 0:
            return -1, -1
        return self.epochs[slot], self.starts[slot + 1] if slot + 1 < len(self.starts) else log_end_offset

    def epoch_of(self, offset: int) -> int:
        slot = bisect_right(self.starts, offset) - 1
        return self.epochs[slot] if slot >= 0 else -1

    def cut_end(self, offset: int) -> None:
        """The log now ends at the offset."""
        while self.starts and self.starts[-1] >= offset:
            self.starts.pop()
            self.epochs.pop()

    def cut_start(self, offset: int) -> None:
        """The log now begins at the offset: the epoch in force there begins with it."""
        slot = bisect_right(self.starts, offset) - 1
        if slot > 0:
            del self.starts[:slot], self.epochs[:slot]
        if slot >= 0:
            self.starts[0] = max(self.starts[0], offset)

    def save(self, disk: Disk, directory: Path, *, durable: bool = True) -> None:
        lines = "".join(f"{epoch} {start}\n" for epoch, start in zip(self.epochs, self.starts))
        disk.replace(directory / FILE_NAME, lines.encode(), durable=durable)


def load(disk: Disk, directory: Path) -> LeaderEpochs:
    found = LeaderEpochs()
    for line in (disk.read(directory / FILE_NAME) or b"").decode("ascii", "replace").splitlines():
        epoch, _, start = line.partition(" ")
        if not (epoch.isdigit() and start.isdigit()):
            break  # what the log itself says is added by recovery
        found.begin(int(epoch), int(start))
    return found
