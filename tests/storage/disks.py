"""Disks that misbehave, for tests of everything that writes through `Disk`.

`ForgetfulDisk` loses in a crash what was not synced; `FullDisk` has only so much room; `FailingDisk` fails on request;
`CountingDisk` says how much was read; `HastyDisk` never waits for the device. All of them work on real files.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.storage.disk import Buffer, Disk, File

PAGE = 512


class PowerFailure(BaseException):
    """Not an Exception: nothing may catch it and go on."""


class _Node:
    """A file apart from its names: what would be left of it, and from where on that is out of date."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.dirty_from: int | None = None
        self.was_lost = False  # some of it, by a sync that failed: memory has it still

    def touch(self, position: int) -> None:
        self.dirty_from = position if self.dirty_from is None else min(self.dirty_from, position)

    def sync(self, content: bytes) -> None:
        """`content` begins where the file is out of date."""
        if self.dirty_from is not None:
            self.durable[self.dirty_from :] = content
            self.dirty_from = None

    def lose(self, size: int) -> None:
        """As much was to be synced, and the device did not take it."""
        if self.dirty_from is not None:
            self.durable[self.dirty_from :] = bytes(max(size - self.dirty_from, 0))
            self.dirty_from, self.was_lost = None, True

    def after_crash(self, live: bytes, chance: random.Random) -> bytes:
        """What was synced, and of the rest all, some, some with holes, or nothing."""
        if self.dirty_from is None:
            return bytes(self.durable)
        if len(live) < len(self.durable) or self.dirty_from < len(self.durable):
            return chance.choice((bytes(self.durable), live))
        fate = chance.randrange(4)
        if fate == 0:
            return bytes(self.durable)
        kept = bytearray(live if fate == 1 else live[: chance.randint(len(self.durable), len(live))])
        if fate == 3:
            for page in range(len(self.durable), len(kept), PAGE):
                if chance.random() < 0.5:
                    kept[page : page + PAGE] = bytes(len(kept[page : page + PAGE]))
        return bytes(kept)


class _Folder:
    """The names that were synced, and what has been done to them since, in order."""

    def __init__(self) -> None:
        self.durable: dict[str, _Entry] = {}
        self.changes: list[tuple[str, str | None, _Entry | None]] = []  # name, former name, what is added under it

    def after_crash(self, chance: random.Random, keep_names: float) -> dict[str, _Entry]:
        """A change survives whole or not at all; one that builds on a lost one is lost too."""
        names = dict(self.durable)
        for name, former, added in self.changes:
            if chance.random() >= keep_names:
                continue
            if former is not None:
                added = names.pop(former, None)
            elif added is None:
                names.pop(name, None)
            if added is not None:
                names[name] = added
        return names


_Entry = _Node | _Folder


class ForgetfulFile(File):
    __slots__ = ("_disk", "_node")

    def __init__(self, path: Path, disk: ForgetfulDisk, node: _Node, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._disk = disk
        self._node = node

    def append(self, parts: Sequence[Buffer], total: int) -> None:
        with self._disk.lock:
            self._disk.step()
            start = self.size
            super().append(parts, total)
            self._node.touch(start)

    def patch(self, data: bytes, position: int) -> None:
        with self._disk.lock:
            self._disk.step()
            super().patch(data, position)
            self._node.touch(position)

    def truncate(self, size: int) -> None:
        with self._disk.lock:
            if size != self.size:
                self._disk.step()
                self._node.touch(size)
            super().truncate(size)

    def forget(self, position: int, size: int) -> None:
        with self._disk.lock:
            if self._node.was_lost:
                end = position + size if self._node.dirty_from is None else min(position + size, self._node.dirty_from)
                os.pwrite(self.fd, self._node.durable[position:end], position)

    def sync(self) -> None:
        with self._disk.lock:
            self._disk.step()
            if self._disk.fail_sync is not None and self.path.match(self._disk.fail_sync):
                self._disk.fail_sync = None
                self._node.lose(self.size)
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
            if (start := self._node.dirty_from) is not None:
                self._node.sync(os.pread(self.fd, max(self.size - start, 0), start))


class ForgetfulDisk(Disk):
    """Remembers what of each file was synced, and which names of each folder. `crash` goes back to that.

    Files that others put below the root (a database, say) are not its business, and stay. What was there before is
    taken as synced. With `stop_after`, the power fails at a given step, so that a test can try them all.

    With `fail_sync` the next sync of a file whose path matches fails, once. As on Linux, memory goes on holding what
    the device did not take, and takes it for written: who reads finds it, and further syncs have nothing to do.
    """

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.fail_sync: str | None = None
        self.root = root
        self.lock = threading.RLock()
        self.chance = random.Random(seed)
        self.steps = 0
        self._steps_left: int | None = None
        self._live: dict[Path, _Entry] = {root: _Folder()}
        self._adopt({path: None if path.is_dir() else path.read_bytes() for path in root.rglob("*")})

    def _adopt(self, found: dict[Path, bytes | None]) -> None:
        for path, content in sorted(found.items()):
            entry = self._live[path] = _Folder() if content is None else _Node(content)
            self._folder(path.parent).durable[path.name] = entry

    def _folder(self, path: Path) -> _Folder:
        folder = self._live[path]
        assert isinstance(folder, _Folder)
        return folder

    def _adopt_strangers(self, path: Path) -> None:
        """What another process put there, the worker's say, was synced by it."""
        if path not in self._live and path.parent in self._live and path.is_file():
            self._adopt({path: path.read_bytes()})

    def _below(self, path: Path) -> list[Path]:
        return [each for each in self._live if each == path or path in each.parents]

    def stop_after(self, steps: int | None) -> None:
        """That many changes or syncs succeed; the next one, and all after it, raise PowerFailure."""
        self._steps_left = steps

    def step(self) -> None:
        self.steps += 1
        if self._steps_left is not None:
            if self._steps_left == 0:
                raise PowerFailure
            self._steps_left -= 1

    # ---- what a Disk does

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        with self.lock:
            self._adopt_strangers(path)
            node = self._live.get(path)
            if node is None and create:
                self.step()
                node = self._add(path, _Node())
            if not isinstance(node, _Node):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return ForgetfulFile(path, self, node, create=create, writable=writable)

    def _add(self, path: Path, entry: _Entry) -> _Entry:
        self._folder(path.parent).changes.append((path.name, None, entry))
        self._live[path] = entry
        return entry

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        with self.lock:
            self.step()
            node = _Node(data if durable else b"")
            if not durable and data:
                node.touch(0)
            temporary = path.with_name(path.name + ".tmp")
            temporary.write_bytes(data)
            self._add(temporary, node)
            self.rename(temporary, path)
            if durable:
                self.sync_directory(path.parent)

    def make_directory(self, path: Path) -> None:
        with self.lock:
            for folder in reversed((path, *path.parents)):
                if self.root in folder.parents and folder not in self._live:
                    self.step()
                    folder.mkdir(exist_ok=True)
                    self._add(folder, _Folder())

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "between two folders nothing would be whole"
        with self.lock:
            self.step()
            self._adopt_strangers(source)
            os.replace(source, target)
            moved = {target / path.relative_to(source): self._live.pop(path) for path in self._below(source)}
            self._live.update(moved)
            self._folder(source.parent).changes.append((target.name, source.name, None))

    def remove(self, path: Path) -> None:
        with self.lock:
            self._adopt_strangers(path)
            if path in self._live:
                self.step()
                path.unlink()
                del self._live[path]
                self._folder(path.parent).changes.append((path.name, None, None))

    def remove_tree(self, path: Path) -> None:
        with self.lock:
            if path in self._live:
                self.step()
                shutil.rmtree(path, ignore_errors=True)
                for below in self._below(path):
                    del self._live[below]
                self._folder(path.parent).changes.append((path.name, None, None))

    def sync_directory(self, path: Path) -> None:
        with self.lock:
            self.step()
            folder = self._folder(path)
            folder.durable = {each.name: entry for each, entry in self._live.items() if each.parent == path}
            folder.changes.clear()

    # ---- what only this one does

    def crash(self, keep_names: float = 0.0) -> None:
        """The power failed: the folder holds what was synced, and parts of what was not. `keep_names` is how likely a
        change of names survives that was not synced. Files that are still open lead nowhere from now on."""
        with self.lock:
            self._steps_left = None
            places = {id(entry): path for path, entry in self._live.items() if isinstance(entry, _Node)}
            left = dict(self._surviving(self.root, self._folder(self.root), places, keep_names))
            for path in sorted(self._live, reverse=True):
                if path.is_file():
                    path.unlink()
                elif path not in left and path != self.root:
                    shutil.rmtree(path)
            for path, content in sorted(left.items()):
                path.mkdir(exist_ok=True) if content is None else path.write_bytes(content)
            self._live = {self.root: _Folder()}
            self._adopt(left)

    def _surviving(
        self, path: Path, folder: _Folder, places: dict[int, Path], keep_names: float
    ) -> Iterator[tuple[Path, bytes | None]]:
        for name, entry in sorted(folder.after_crash(self.chance, keep_names).items()):
            if isinstance(entry, _Folder):
                yield path / name, None
                yield from self._surviving(path / name, entry, places, keep_names)
            else:
                place = places.get(id(entry))
                live = place.read_bytes() if place else bytes(entry.durable)  # without a name it can't be read again
                yield path / name, entry.after_crash(live, self.chance)


class HastyFile(File):
    __slots__ = ()

    def sync(self) -> None:
        pass


class HastyDisk(Disk):
    """Syncs nothing, for tests that do the same thing a thousand times."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return HastyFile(path, create=create, writable=writable)

    def _write(self, path: Path, data: bytes, durable: bool) -> None:
        super()._write(path, data, False)

    def sync_directory(self, path: Path) -> None:
        pass


class FullFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: FullDisk, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._disk = disk

    def append(self, parts: Sequence[Buffer], total: int) -> None:
        if total > self._disk.room:
            os.pwrite(self.fd, b"".join(parts)[: self._disk.room], self.size)
            super().truncate(self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        super().append(parts, total)
        self._disk.room -= total

    def truncate(self, size: int) -> None:
        before = self.size
        super().truncate(size)
        self._disk.room += before - size


class FullDisk(Disk):
    """Has room for so many bytes; `free` makes more, and so does removing files."""

    def __init__(self, room: int) -> None:
        self.room = room

    def free(self, size: int) -> None:
        self.room += size

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return FullFile(path, self, create=create, writable=writable)

    def _write(self, path: Path, data: bytes, durable: bool) -> None:
        if len(data) > self.room:
            path.write_bytes(data[: self.room])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super()._write(path, data, durable)
        self.room -= len(data)

    def remove(self, path: Path) -> None:
        if path.exists() and not path.name.endswith(".tmp"):
            self.room += path.stat().st_size
        super().remove(path)


class FailingFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: FailingDisk, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._disk = disk

    def append(self, parts: Sequence[Buffer], total: int) -> None:
        try:
            self._disk.count_write(self.path)
        except OSError:
            os.pwrite(self.fd, b"".join(parts)[: total // 2], self.size)
            super().truncate(self.size)
            raise
        super().append(parts, total)

    def sync(self) -> None:
        self._disk.count_sync(self.path)
        super().sync()


class FailingDisk(Disk):
    """Fails with EIO from the nth write or the nth sync on, until it is healed. Counting begins at 0."""

    def __init__(self, *, fail_write: int | None = None, fail_sync: int | None = None) -> None:
        self.fail_write = fail_write
        self.fail_sync = fail_sync
        self.writes = 0
        self.syncs = 0

    def heal(self) -> None:
        self.fail_write = self.fail_sync = None

    def count_write(self, path: Path) -> None:
        self.writes += 1
        if self.fail_write is not None and self.writes > self.fail_write:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def count_sync(self, path: Path) -> None:
        self.syncs += 1
        if self.fail_sync is not None and self.syncs > self.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return FailingFile(path, self, create=create, writable=writable)

    def _write(self, path: Path, data: bytes, durable: bool) -> None:
        self.count_write(path)
        if durable:
            self.count_sync(path)
        super()._write(path, data, durable)

    def sync_directory(self, path: Path) -> None:
        self.count_sync(path)
        super().sync_directory(path)


class CountingFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: CountingDisk, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._disk = disk

    def read(self, size: int, position: int) -> bytes:
        data = super().read(size, position)
        self._disk.bytes_read[self.path.name] = self._disk.bytes_read.get(self.path.name, 0) + len(data)
        return data


class CountingDisk(Disk):
    """Says how many bytes of which file were read, and which files were touched at all."""

    def __init__(self) -> None:
        self.bytes_read: dict[str, int] = {}
        self.calls = 0

    @property
    def log_bytes_read(self) -> int:
        return sum(size for name, size in self.bytes_read.items() if name.endswith(".log"))

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        self.calls += 1
        return CountingFile(path, self, create=create, writable=writable)

    def read(self, path: Path) -> bytes | None:
        self.calls += 1
        return super().read(path)

    def map(self, path: Path) -> memoryview | None:
        self.calls += 1
        return super().map(path)

    def names(self, directory: Path) -> list[str]:
        self.calls += 1
        return super().names(directory)

    def size(self, path: Path) -> int:
        self.calls += 1
        return super().size(path)
