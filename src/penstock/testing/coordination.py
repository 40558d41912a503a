"""The coordination service of brokers that share a process: one tree in memory, which each reaches from its own thread.

It stands in ZooKeeper's place and keeps its rules: writes are conditional and happen one after the other, whoever
follows a folder is told of its changes in their order, and what was ephemeral goes with the session. A session ends
when its broker does, stopped or killed, and is never lost otherwise.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from penstock.cluster.coordination import (
    DATA_BYTES_MAX,
    Create,
    DataTooLarge,
    Delete,
    Disconnected,
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
from penstock.testing.tree import Changes, Tree

FIRST_SESSION = 1


class CoordinationService:
    """The tree outlives those who connect to it, so that a broker that comes back finds its cluster."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.lock = threading.Lock()
        self._stores: dict[int, InProcessStore] = {}
        self._next_session = FIRST_SESSION

    def connect(self) -> InProcessStore:
        """On the event loop of whoever will use it."""
        with self.lock:
            session, self._next_session = self._next_session, self._next_session + 1
            store = self._stores[session] = InProcessStore(self, session)
        return store

    def write(self, operations: Sequence[Operation], session: int) -> list[Result]:
        with self.lock:
            results, changes = self.tree.apply(operations, session)
            self._tell(changes)
        return results

    def end(self, session: int) -> None:
        with self.lock:
            if self._stores.pop(session, None) is None:
                return
            for path in self.tree.owned_by(session):
                _, changes = self.tree.apply([Delete(path)], session)
                self._tell(changes)

    def _tell(self, changes: Changes) -> None:
        """With the lock held, so that everyone is told in the order of the writes."""
        for path in changes.nodes:
            content = self.tree.find(path).content if self.tree.has(path) else None
            for store in self._stores.values():
                store.changed(path, content)


class InProcessStore(SingleWrites):
    """Implements `Coordination`. Made with `CoordinationService.connect`."""

    def __init__(self, service: CoordinationService, session: int) -> None:
        self._service = service
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._followers: list[tuple[str, Told]] = []
        self._closed = False

    @property
    def connected(self) -> bool:
        return not self._closed

    def on_session(self, callback: Callable[[Session], None]) -> None:
        """There is nothing to tell: the session lives as long as its broker."""

    def end(self) -> None:
        """As when the process has died: the others are told, and nothing more is heard of it."""
        self._closed = True
        self._service.end(self._session)

    async def close(self) -> None:
        self.end()

    def changed(self, path: str, content: Versioned | None) -> None:
        """From any thread."""
        for folder, told in self._followers:
            if folder == parent_of(path):
                self._loop.call_soon_threadsafe(self._tell, told, path.rpartition("/")[2], content)

    def _tell(self, told: Told, name: str, content: Versioned | None) -> None:
        if not self._closed:
            told(name, content)

    def _check(self, path: str) -> None:
        check_path(path)
        if self._closed:
            raise Disconnected("the session has ended")

    # ---- reading

    async def get(self, path: str) -> Versioned:
        self._check(path)
        with self._service.lock:
            return self._service.tree.find(path).content

    async def children(self, path: str) -> list[str]:
        self._check(path)
        with self._service.lock:
            return self._service.tree.children(path)

    async def children_with_data(self, path: str) -> dict[str, Versioned]:
        self._check(path)
        with self._service.lock:
            return self._contents(path)

    def _contents(self, path: str) -> dict[str, Versioned]:
        tree, prefix = self._service.tree, path.rstrip("/")
        return {name: tree.find(f"{prefix}/{name}").content for name in tree.children(path)}

    async def follow(self, path: str, told: Told) -> dict[str, Versioned]:
        self._check(path)
        with self._service.lock:
            contents = self._contents(path)
            self._followers.append((path, told))
        return contents

    # ---- writing

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        size = 0
        for operation in operations:
            self._check(operation.path)
            size += len(operation.data) if isinstance(operation, Create | Set) else 0
            if size > DATA_BYTES_MAX:
                raise DataTooLarge(operation.path)
        results = self._service.write(operations, self._session)
        await asyncio.sleep(0)  # whoever follows on this loop is told before the writer goes on
        return results
