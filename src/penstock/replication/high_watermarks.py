"""How far each replicated partition was known to be committed, kept in one small file across restarts.

It may be behind: a leader that starts shows its consumers a little less until its followers have come. It is never
ahead, which would show them what may yet be lost. So a log that ends below it after a crash has lost something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from penstock.storage.disk import Disk

FILE_NAME = "high-watermarks"

Key = tuple[bytes, int]  # topic id, partition


class HighWatermarks:
    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._path = data_dir / FILE_NAME
        self._known: dict[Key, int] = {}
        self._forgotten = False  # something that the file still says

    def load(self) -> None:
        for line in (self._disk.read(self._path) or b"").decode("ascii", "replace").splitlines():
            try:
                topic_id, index, offset = line.split(" ")
                self._known[bytes.fromhex(topic_id), int(index)] = int(offset)
            except ValueError:
                continue  # torn: the partition starts from what its log begins with

    def of(self, topic_id: bytes, index: int) -> int:
        return self._known.get((topic_id, index), 0)

    def changed(self, offsets: Mapping[Key, int]) -> Callable[[], None] | None:
        """What saves them, if there is anything new. Those of partitions that nobody has opened stay as they are."""
        changed = {key: offset for key, offset in offsets.items() if self._known.get(key) != offset}
        if not changed and not self._forgotten:
            return None
        self._forgotten = False
        self._known.update(changed)
        known = dict(self._known)
        return lambda: self._save(known)

    def _save(self, known: Mapping[Key, int]) -> None:
        lines = "".join(f"{topic_id.hex()} {index} {offset}\n" for (topic_id, index), offset in known.items())
        self._disk.replace(self._path, lines.encode(), durable=False)

    def forget_topics(self, topic_ids: Collection[str]) -> None:
        for key in [key for key in self._known if key[0].hex() in topic_ids]:
            self.forget(*key)

    def forget(self, topic_id: bytes, index: int) -> None:
        """The replica is gone from this broker: should it come back, it begins with nothing."""
        if self._known.pop((topic_id, index), None) is not None:
            self._forgotten = True
