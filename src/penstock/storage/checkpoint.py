"""A file that holds one offset, replaced whole: `<decimal> <CRC32C of that, in hex>`."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from penstock.storage.disk import Disk

START_OFFSET = "start-offset"  # records below it are deleted, whatever the segments hold
CLEANER_OFFSET = "cleaner-offset"  # everything below it has been compacted once
COPIED_GAPS = "copied-gaps"  # the first batch that was copied from a log that had been compacted before it


def save(disk: Disk, path: Path, offset: int, *, durable: bool) -> None:
    text = b"%d" % offset
    disk.replace(path, b"%s %08x\n" % (text, crc32c(text)), durable=durable)


def load(disk: Disk, path: Path) -> int | None:
    """None if there is no such file, or it can't be trusted."""
    text, _, checksum = (disk.read(path) or b"").strip().partition(b" ")
    if not text.isdigit() or checksum != b"%08x" % crc32c(text):
        return None
    return int(text)
