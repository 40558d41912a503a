"""Files that are never forced to the device: a test's data need not survive the machine, and nobody waits for it."""

from __future__ import annotations

from pathlib import Path

from penstock.storage.disk import Disk, File


class UnsyncedFile(File):
    __slots__ = ()

    def sync(self) -> None:
        """What the operating system has is enough."""


class UnsyncedDisk(Disk):
    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return UnsyncedFile(path, create=create, writable=writable)

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        super().replace(path, data, durable=False)

    def sync_directory(self, path: Path) -> None:
        """As with files."""
