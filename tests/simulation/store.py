"""The client's side of the simulated coordination service: implements `Coordination` as `ZooKeeperStore` does.

Following is the real code, on simulated watches. A client finds out by itself that its connection is gone: by pings
that nobody answers, or because the server says so. Until then it believes to be connected, and what it asks is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Self

from penstock.cluster.coordination import (
    DATA_BYTES_MAX,
    Create,
    DataTooLarge,
    Delete,
    Disconnected,
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
)
from penstock.cluster.zookeeper_follow import Following, Found, Watch
from tests.simulation.loop import VirtualLoop
from tests.simulation.zookeeper import ServerConnection, SimulatedZooKeeper

SESSION_TIMEOUT_S = 2.0
PINGS_PER_SESSION = 3
RECONNECT_S = (0.05, 0.3)
CLOSE_S_MAX = 2.0


class SimulatedStore(SingleWrites):
    def __init__(self, server: SimulatedZooKeeper, loop: VirtualLoop, host: str, session_timeout_s: float) -> None:
        self._server = server
        self._loop = loop
        self._host = host
        self._timeout_s = session_timeout_s
        self._context = copy_context()
        self._connection: ServerConnection | None = None
        self._session = 0
        self._heard_at = 0.0
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._followings: list[Following] = []
        self._listeners: list[Callable[[Session], None]] = []
        self._first_connected = asyncio.Event()
        self._closed = False

    @classmethod
    async def open(
        cls,
        server: SimulatedZooKeeper,
        host: str,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        connect_timeout_s: float = 15.0,
    ) -> Self:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        store = cls(server, loop, host, session_timeout_s)
        store._connect()
        try:
            await asyncio.wait_for(store._first_connected.wait(), connect_timeout_s)
        except TimeoutError:
            await store.close()
            raise Disconnected(f"no ZooKeeper answers {host}") from None
        return store

    # ---- the connection

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def on_session(self, callback: Callable[[Session], None]) -> None:
        self._listeners.append(callback)

    def post(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.call_soon(callback, *args)

    def _connect(self) -> None:
        """Tries until it has a connection or is closed."""
        if self._closed or self._connection is not None:
            return
        self._loop.call_later(self._loop.random.uniform(*RECONNECT_S), self._connect)
        if self._server.reaches(self._host):
            connection = ServerConnection(self._server, self._loop, self._host, self._context)
            answer = partial(self._connected, connection)
            connection.to_server(self._server.connect, connection, self._session, self._timeout_s, answer)

    def _connected(self, connection: ServerConnection, session: int) -> None:
        if self._closed or self._connection is not None:
            connection.tear()
            return
        before, self._session = self._session, session
        self._connection = connection
        connection.on_broken = partial(self._broken, connection)
        self._heard_at = self._loop.time()
        self._loop.call_later(self._timeout_s / PINGS_PER_SESSION, self._ping, connection)
        self._first_connected.set()
        if not before:
            return
        for following in self._followings:
            following.connected_again()
        self._tell(Session.RESUMED if session == before else Session.RENEWED)

    def _ping(self, connection: ServerConnection) -> None:
        if self._closed or connection is not self._connection:
            return
        interval_s = self._timeout_s / PINGS_PER_SESSION
        if self._loop.time() - self._heard_at > 2 * interval_s:
            self._broken(connection)
            return
        connection.to_server(self._server.serve, connection, lambda: None, self._ponged)
        self._loop.call_later(interval_s, self._ping, connection)

    def _ponged(self, result: object, error: Exception | None) -> None:
        self._heard_at = self._loop.time()

    def _broken(self, connection: ServerConnection) -> None:
        if connection is not self._connection:
            return
        connection.tear()
        self._lose(Disconnected("the connection was lost"))
        if not self._closed:
            self._tell(Session.SUSPENDED)
            self._connect()

    def _lose(self, error: Disconnected) -> None:
        self._connection = None
        for future in list(self._asked):
            if not future.done():
                future.set_exception(error)

    def _tell(self, session: Session) -> None:
        for listener in tuple(self._listeners):
            listener(session)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        self._lose(Disconnected("the store is closed"))
        await asyncio.gather(*(following.stop() for following in self._followings))
        if connection is None:
            return  # the session will expire by itself
        ended = asyncio.Event()
        work = partial(self._server.end_session, connection.session)
        connection.to_server(self._server.serve, connection, work, lambda result, error: ended.set())
        try:
            await asyncio.wait_for(ended.wait(), CLOSE_S_MAX)
        except TimeoutError:
            pass
        connection.tear()

    # ---- asking

    def _ask(self, work: Callable[..., object], *args: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        connection = self._connection
        if connection is None:
            future.set_exception(Disconnected("there is no connection"))
            return future
        self._asked[future] = None
        future.add_done_callback(lambda done: self._asked.pop(done, None))
        connection.to_server(
            self._server.serve, connection, partial(work, connection, *args), partial(self._answered, future)
        )
        return future

    def _answered(self, future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        self._heard_at = self._loop.time()
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    # ---- reading

    async def get(self, path: str) -> Versioned:
        check_path(path)
        found: Found = await self._ask(self._server.read, path, None)
        return found.content

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self.list_children(path)

    async def children_with_data(self, path: str) -> dict[str, Versioned]:
        check_path(path)
        found = await self.read_children(path, await self.list_children(path))
        return {name: child.content for name, child in found if child is not None}

    async def list_children(self, folder: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._ask(self._server.list_children, folder, watch)
        return names

    async def read_children(
        self, folder: str, names: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[str, Found | None]]:
        prefix = folder.rstrip("/")
        asked = [self._ask(self._server.read, f"{prefix}/{name}", watch) for name in names]
        found: list[tuple[str, Found | None]] = []
        for name, answer in zip(names, await asyncio.gather(*asked, return_exceptions=True)):
            if isinstance(answer, BaseException) and not isinstance(answer, NoNode):
                raise answer
            found.append((name, None if isinstance(answer, NoNode) else answer))
        return found

    async def follow(self, path: str, told: Told) -> dict[str, Versioned]:
        check_path(path)
        following = Following(self, path, told)
        self._followings.append(following)
        try:
            return await following.start()
        except BaseException:
            self._followings.remove(following)
            await following.stop()
            raise

    # ---- writing

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        size = 0
        for operation in operations:
            check_path(operation.path)
            if isinstance(operation, Delete) and operation.path == "/":
                raise NotEmpty("/")
            size += len(operation.data) if isinstance(operation, Create | Set) else 0
            if size > DATA_BYTES_MAX:
                raise DataTooLarge(operation.path)
        if not operations:
            return []
        results: list[Result] = await self._ask(self._server.write, operations)
        return results
