"""A disk that forgets in a crash what was not synced, and is the same on every machine."""

from __future__ import annotations

from pathlib import Path

from tests.storage.disks import ForgetfulDisk


class SimulatedDisk(ForgetfulDisk):
    """On real files below a folder that is its own. File systems list names in different orders; this one sorts."""

    def names(self, directory: Path) -> list[str]:
        return sorted(super().names(directory))
