"""The only module that touches files. A `Disk` is passed in, so that tests can give one that fails, fills or forgets.

Durability is spelled out: `File.append` reaches the operating system, `File.sync` the device, and a new file's name
is safe only after `Disk.sync_directory`. Whole small files are replaced, never edited.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

REMOVED_AT_ONCE = 32 * 1024 * 1024
REMOVAL_REST_S = 0.01
SHRUNK_AT_ONCE = 4 * 1024 * 1024
PARTS_PER_WRITE = 1000  # IOV_MAX is 1024 on Linux
# More goes in pieces. The larger a write, the larger the stretches of memory that the page cache takes for it, and on a
# virtual machine those were several times as dear to fill: its hypervisor takes them back while they are free.
WRITTEN_AT_ONCE = 512 * 1024
GENTLY_AT_ONCE = 64 * 1024  # before others have the core

BROUGHT_AT_ONCE = 128 * 1024  # what Linux reads ahead

KEPT_TOGETHER = 2 * 1024 * 1024  # at most, by the page cache: it lets go of such a piece only as a whole

_ANY_BYTE = bytearray(1)

Buffer = bytes | bytearray | memoryview


class NotOpened(OSError):
    """There was no descriptor for it, or no memory. Nothing was done to the file, and nothing is wrong with it."""


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise NotOpened(error.errno, error.strerror, str(path)) from None
        raise


class File:
    """A file that only grows at its end, and may be cut there. Closed when nobody refers to it any more. What is
    appended gently is in nobody's way: nobody waits for it, and others wait for the core."""

    __slots__ = ("__weakref__", "fd", "gently", "path", "size")

    def __init__(self, path: Path, *, create: bool = False, writable: bool = True) -> None:
        self.fd = -1
        self.fd = _open(path, (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0))
        self.path = path
        self.size = os.fstat(self.fd).st_size
        self.gently = False

    def append(self, parts: Sequence[Buffer], total: int) -> None:
        """All of it, or an OSError and the file as it was."""
        start = self.size
        try:
            if total <= self._at_once and len(parts) <= PARTS_PER_WRITE:
                written = os.pwritev(self.fd, parts, start)
            else:
                written = self._append_pieces(parts)
            if written < total:
                self._append_rest(parts, total, written)
        except OSError:
            self._cut_back(start)
            raise
        self.size = start + total

    def _cut_back(self, size: int) -> None:
        try:
            self.truncate(size)
        except OSError:
            pass  # the next append overwrites what is left there, and recovery does not believe it

    @property
    def _at_once(self) -> int:
        return GENTLY_AT_ONCE if self.gently else WRITTEN_AT_ONCE

    def _append_pieces(self, parts: Sequence[Buffer]) -> int:
        """How much was written, which is less than all of it where the disk took less."""
        written = 0
        for piece, size in _pieces(parts, self._at_once):
            taken = os.pwritev(self.fd, piece, self.size + written)
            written += taken
            if taken < size:
                break
            if self.gently:
                os.sched_yield()
        return written

    def _append_rest(self, parts: Sequence[Buffer], total: int, written: int) -> None:
        rest = memoryview(b"".join(parts))
        while written < total:
            written += os.pwrite(self.fd, rest[written:], self.size + written)

    def patch(self, data: bytes, position: int) -> None:
        """The one change to what is there already: recovery puts a few bytes right before anyone reads them."""
        os.pwrite(self.fd, data, position)

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self.fd, size, position)

    def is_at_hand(self, position: int, size: int) -> bool:
        """Whether the range can be read without waiting for the device, as far as its ends tell."""
        try:
            os.preadv(self.fd, [_ANY_BYTE], position, os.RWF_NOWAIT)
            os.preadv(self.fd, [_ANY_BYTE], position + size - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system that can't tell, or a device that fails: whoever reads finds out
        return True

    def bring(self, position: int, size: int) -> None:
        """In a thread: returns when the range is in the page cache. As much behind it is on its way by then."""
        os.posix_fadvise(self.fd, position, 2 * size, os.POSIX_FADV_WILLNEED)
        for at in range(position, position + size, BROUGHT_AT_ONCE):
            os.pread(self.fd, 1, at)
        os.pread(self.fd, 1, position + size - 1)

    def forget(self, position: int, size: int) -> None:
        """Of what was synced, memory may hold what the device does not have: after a sync that failed, Linux takes it
        for written. What is read next comes from the device."""
        start = position - position % KEPT_TOGETHER
        os.posix_fadvise(self.fd, start, position - start + size, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self.size = size

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _pieces(parts: Sequence[Buffer], at_once: int) -> Iterator[tuple[list[Buffer], int]]:
    """The same bytes in groups that are written at once, and the size of each."""
    piece: list[Buffer] = []
    size = 0
    for part in parts:
        rest = memoryview(part)
        while rest:
            begun, rest = rest[: at_once - size], rest[at_once - size :]
            piece.append(begun)
            size += len(begun)
            if size == at_once or len(piece) == PARTS_PER_WRITE:
                yield piece, size
                piece, size = [], 0
    if piece:
        yield piece, size


class Disk:
    """The real one."""

    written = 0  # bytes that were appended to logs

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return File(path, create=create, writable=writable)

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """The file holds either its old bytes or these, whatever happens meanwhile."""
        temporary = path.with_name(path.name + ".tmp")
        try:
            self._write(temporary, data, durable)
        except OSError:
            self.remove(temporary)  # on a full disk it would hold the space that is missing
            raise
        os.replace(temporary, path)
        if durable:
            self.sync_directory(path.parent)

    def _write(self, path: Path, data: bytes, durable: bool) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def map(self, path: Path) -> memoryview | None:
        """A read-only view of a whole file, None if it is missing or empty."""
        try:
            with path.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (FileNotFoundError, ValueError):
            return None

    def names(self, directory: Path) -> list[str]:
        try:
            return os.listdir(directory)
        except FileNotFoundError:
            return []

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """In a thread. Large files go piece by piece: freeing a gigabyte at once holds up everyone who writes."""
        while self.held(path) > REMOVED_AT_ONCE and self.shrink(path, REMOVED_AT_ONCE):
            time.sleep(REMOVAL_REST_S)
        shutil.rmtree(path, ignore_errors=True)

    def free(self, path: Path) -> int:
        """What others may still write there."""
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize

    def held(self, path: Path) -> int:
        """The size of a folder's files."""
        try:
            with os.scandir(path) as entries:
                return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
        except OSError:
            return 0

    def shrink(self, path: Path, size: int) -> int:
        """In a thread: takes so much away from the ends of a folder's files, and says how much there was to take."""
        freed = 0
        for name in self.names(path):
            try:
                held = os.stat(path / name).st_size
                while cut := min(held, size - freed, SHRUNK_AT_ONCE):
                    held -= cut
                    os.truncate(path / name, held)
                    freed += cut
            except OSError:
                pass  # removed meanwhile
        return freed

    def sync_directory(self, path: Path) -> None:
        fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
