"""The coordination service of a broker that stands alone: a tree in a SQLite file, in the data folder.

One thread owns the connection, so that the event loop never waits for an fsync and writes happen one after the other.
A write returns when SQLite has committed it with synchronous=FULL. The file is locked for as long as it is open, which
keeps a second broker off the same data folder.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from penstock.cluster.coordination import (
    ANY_VERSION,
    DATA_BYTES_MAX,
    BadVersion,
    Check,
    Create,
    DataTooLarge,
    Disconnected,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Session,
    Set,
    SingleWrites,
    Told,
    Versioned,
    check_path,
    parent_of,
)

FILE_NAME = "cluster.db"

# One row per node. `next_sequence` numbers its sequential children; the root is its own parent, and nobody's child.
SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS node_parent ON node (parent);
INSERT OR IGNORE INTO node VALUES ('/', '', x'', 0, 0, 0);
DELETE FROM node WHERE ephemeral;
"""

T = TypeVar("T")
Changed = tuple[str, Versioned | None]  # a node's path and what it holds now


class EmbeddedStore(SingleWrites):
    """Implements `Coordination`. Made with `await EmbeddedStore.open(folder)`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._thread = ThreadPoolExecutor(1, "cluster-store")
        self._loop = asyncio.get_running_loop()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._followers: list[tuple[str, Told]] = []

    @classmethod
    async def open(cls, folder: Path) -> Self:
        store = cls(folder)
        try:
            await store._run(store._connect)
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    async def close(self) -> None:
        """This client's ephemeral nodes go with it. Closing twice is closing once."""
        if not self._closed:
            self._closed = True
            await self._loop.run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    async def get(self, path: str) -> Versioned:
        check_path(path)
        return await self._run(lambda: Versioned._make(self._row(path, "data, version")))

    async def children(self, path: str) -> list[str]:
        return sorted(await self.children_with_data(path))

    async def children_with_data(self, path: str) -> dict[str, Versioned]:
        check_path(path)
        return await self._run(lambda: self._children(path))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        for operation in operations:
            check_path(operation.path)
        return await self._run(lambda: self._commit(operations))

    @property
    def connected(self) -> bool:
        return not self._closed

    def on_session(self, callback: Callable[[Session], None]) -> None:
        """There is nothing to lose: the store lives and dies with its one client."""

    async def follow(self, path: str, told: Told) -> dict[str, Versioned]:
        check_path(path)
        meanwhile: list[tuple[str, Versioned | None]] = []
        held = (path, lambda name, content: meanwhile.append((name, content)))
        self._followers.append(held)
        try:
            contents = await self.children_with_data(path)
        finally:
            self._followers.remove(held)
        for name, content in meanwhile:
            if content is None:
                contents.pop(name, None)
            else:
                contents[name] = content
        self._followers.append((path, told))
        return contents

    def _tell(self, changes: Sequence[Changed]) -> None:
        for path, content in changes:
            parent, _, name = path.rpartition("/")
            for followed, told in tuple(self._followers):
                if followed == (parent or "/"):
                    told(name, content)

    # ---- on the store's thread

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            future = self._loop.run_in_executor(self._thread, work)
        except RuntimeError as error:  # the thread has been shut down
            raise Disconnected(str(error)) from None
        return await future

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Disconnected(f"{self._path} is closed")
        return self._connection

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        try:
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        except sqlite3.Error as error:
            connection.close()
            if "locked" in str(error):
                raise Disconnected(f"{self._path} is in use: is another broker running on this folder?") from None
            raise Disconnected(f"{self._path}: {error}") from error
        self._connection = connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):  # on a full disk, say: whoever connects next does it
                self._connection.execute("DELETE FROM node WHERE ephemeral")
            self._connection.close()
            self._connection = None

    def _row(self, path: str, columns: str) -> tuple[Any, ...]:
        try:
            row = self._open.execute(f"SELECT {columns} FROM node WHERE path = ?", (path,)).fetchone()
        except sqlite3.Error as error:
            raise Disconnected(f"{self._path}: {error}") from error
        if row is None:
            raise NoNode(path)
        return tuple(row)

    def _children(self, path: str) -> dict[str, Versioned]:
        self._row(path, "version")
        start = len(path) if path == "/" else len(path) + 1
        rows = self._open.execute("SELECT path, data, version FROM node WHERE parent = ?", (path,))
        return {name[start:]: Versioned(data, version) for name, data, version in rows}

    def _commit(self, operations: Sequence[Operation]) -> list[Result]:
        connection = self._open
        results: list[Result] = []
        changes: list[Changed] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for operation in operations:
                result, change = self._apply(connection, operation)
                results.append(result)
                if change is not None:
                    changes.append(change)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise Disconnected(f"{self._path}: {error}") from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        # Not from the waiting caller, which may have been cancelled: the change has happened all the same.
        self._loop.call_soon_threadsafe(self._tell, changes)
        return results

    def _apply(self, connection: sqlite3.Connection, operation: Operation) -> tuple[Result, Changed | None]:
        if isinstance(operation, (Create, Set)) and len(operation.data) > DATA_BYTES_MAX:
            raise DataTooLarge(operation.path)
        if isinstance(operation, Create):
            return self._create(connection, operation)
        path = operation.path
        version: int = self._row(path, "version")[0]
        if operation.version not in (ANY_VERSION, version):
            raise BadVersion(path)
        if isinstance(operation, Check):
            return None, None
        if isinstance(operation, Set):
            statement = "UPDATE node SET data = ?, version = ? WHERE path = ?"
            connection.execute(statement, (operation.data, version + 1, path))
            return version + 1, (path, Versioned(operation.data, version + 1))
        if path == "/" or connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        connection.execute("DELETE FROM node WHERE path = ?", (path,))
        return None, (path, None)

    def _create(self, connection: sqlite3.Connection, operation: Create) -> tuple[str, Changed]:
        path, parent = operation.path, parent_of(operation.path)
        ephemeral, number = self._row(parent, "ephemeral, next_sequence")
        if ephemeral:
            raise NoChildrenForEphemerals(path)
        if operation.sequence:
            path = f"{path}{number:010d}"
            connection.execute("UPDATE node SET next_sequence = ? WHERE path = ?", (number + 1, parent))
        try:
            connection.execute(
                "INSERT INTO node VALUES (?, ?, ?, 0, ?, 0)", (path, parent, operation.data, operation.ephemeral)
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        return path, (path, Versioned(operation.data, 0))
