"""Which topics have logs here that were written under less than `flush=commit` since all of them were on the device.

What a power cut may have taken is judged by this, and not by the `flush` that is set when the broker comes back. A
topic is noted, durably, before the first such write to any of its logs, and the note goes when all of them are synced:
at the latest with the next start, which leaves nothing that is not. The file is the ids, a line each, behind a line
with the CRC32C of all that follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from crc32c import crc32c

from penstock.storage.disk import Disk

FILE_NAME = "unsynced-topics"
EVERY_TOPIC = bytes(16)  # no topic has this id


def is_noted(topic_id: bytes, ids: Collection[bytes]) -> bool:
    return topic_id in ids or EVERY_TOPIC in ids


class UnsyncedTopics:
    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._path = data_dir / FILE_NAME
        self.ids: frozenset[bytes] = frozenset()

    def load(self) -> bool:
        """False if there is a file that can't be trusted."""
        stored = self._disk.read(self._path)
        if stored is None:
            return True
        checksum, _, lines = stored.partition(b"\n")
        if checksum != b"%08x" % crc32c(lines):
            return False
        self.ids = frozenset(bytes.fromhex(line) for line in lines.decode().split())
        return True

    def replace(self, ids: Iterable[bytes]) -> None:
        """Durable on return; with an OSError, what was noted before stands."""
        wanted = frozenset(ids)
        if wanted != self.ids:
            lines = "".join(f"{each.hex()}\n" for each in sorted(wanted)).encode()
            self._disk.replace(self._path, b"%08x\n%s" % (crc32c(lines), lines), durable=True)
            self.ids = wanted
