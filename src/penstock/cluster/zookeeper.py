"""The coordination service of a cluster: ZooKeeper, through kazoo.

All state here belongs to the event loop; kazoo's thread only posts to it. A call is made only while there is a
connection, and fails with it: kazoo would keep it and send it on the next one, when the caller gave up long ago. Every
path is below the one that the address ends with, so that several clusters can share one ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from kazoo.protocol.states import KazooState, KeeperState

from penstock.cluster import zookeeper_multi
from penstock.cluster.coordination import (
    Disconnected,
    NodeExists,
    NoNode,
    Operation,
    Result,
    Session,
    SingleWrites,
    Told,
    Versioned,
    check_path,
)
from penstock.cluster.zookeeper_client import make_client, parse_connect
from penstock.cluster.zookeeper_errors import translated
from penstock.cluster.zookeeper_follow import READS_AT_ONCE, Following, Found, Watch

log = logging.getLogger("penstock.cluster")

SESSION_TIMEOUT_MS = 2_000
CONNECT_TIMEOUT_MS = 15_000
CLOSE_S_MAX = 2.0
TICK_S = 0.25


class ZooKeeperStore(SingleWrites):
    """Implements `Coordination`. Made with `await ZooKeeperStore.open("h1:2181,h2:2181/path")`."""

    def __init__(self, connect: str, session_timeout_ms: int) -> None:
        hosts, self._root = parse_connect(connect)
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._answer_s_max = session_timeout_ms / 1000
        self._asked: dict[asyncio.Future[Any], float] = {}  # when; the oldest first
        self._followings: list[Following] = []
        self._listeners: list[Callable[[Session], None]] = []
        self._session_id: int | None = None
        self._connected = False
        self._first_connected = asyncio.Event()
        self._closed = False
        self._client = make_client(hosts, session_timeout_ms)
        self._client.add_listener(self._state_heard)
        self._ticking = self._loop.call_later(TICK_S, self._tick)

    @classmethod
    async def open(
        cls, connect: str, session_timeout_ms: int = SESSION_TIMEOUT_MS, connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    ) -> Self:
        store = cls(connect, session_timeout_ms)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                store._client.start_async()
                await store._first_connected.wait()
                await store._make_root()
        except TimeoutError:
            await store.close()
            seconds = f"{connect_timeout_ms / 1000:g} s"
            raise Disconnected(f"no ZooKeeper answers at {connect} (tried for {seconds})") from None
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Ends the session, and with it this client's ephemeral nodes. Does not wait for a ZooKeeper that is away."""
        if self._closed:
            return
        self._closed = True
        self._ticking.cancel()
        self._lose(Disconnected(f"the connection to {self._connect} is closed"))
        await asyncio.gather(*(following.stop() for following in self._followings))
        ended = asyncio.Event()
        threading.Thread(target=self._end, args=(ended,), name="zookeeper-close", daemon=True).start()
        try:
            await asyncio.wait_for(ended.wait(), CLOSE_S_MAX)
        except TimeoutError:
            log.warning("ZooKeeper is away: the session will expire by itself", extra={"zookeeper": self._connect})

    # ---- reading. ZooKeeper's followers lag behind its leader; a sync before a read makes it see all that was written.

    async def get(self, path: str) -> Versioned:
        check_path(path)
        self._sync()
        data, stat = await self._ask(path, partial(self._client.get_async, self._full(path)))
        return Versioned(data, stat.version)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return sorted(await self.list_children(path))

    async def children_with_data(self, path: str) -> dict[str, Versioned]:
        check_path(path)
        found = await self.read_children(path, await self.list_children(path))
        return {name: child.content for name, child in found if child is not None}

    async def list_children(self, folder: str, watch: Watch | None = None) -> list[str]:
        self._sync()
        names: list[str] = await self._ask(folder, partial(self._client.get_children_async, self._full(folder), watch))
        return names

    async def read_children(
        self, folder: str, names: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[str, Found | None]]:
        """Those that are gone meanwhile are None."""
        found: list[tuple[str, Found | None]] = []
        prefix = folder.rstrip("/")
        for start in range(0, len(names), READS_AT_ONCE):
            batch = names[start : start + READS_AT_ONCE]
            paths = [f"{prefix}/{name}" for name in batch]
            asked = [self._ask(path, partial(self._client.get_async, self._full(path), watch)) for path in paths]
            for name, answer in zip(batch, await asyncio.gather(*asked, return_exceptions=True)):
                if isinstance(answer, NoNode):
                    found.append((name, None))
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    data, stat = answer
                    found.append((name, Found(Versioned(data, stat.version), stat.mzxid)))
        return found

    async def follow(self, path: str, told: Told) -> dict[str, Versioned]:
        check_path(path)
        following = Following(self, path, told)
        self._followings.append(following)  # first: it must hear of a connection that is lost while it starts
        try:
            contents = await following.start()
            if self._closed:
                raise Disconnected(f"{path}: the connection to {self._connect} is closed")
            return contents
        except BaseException:
            self._followings.remove(following)
            await following.stop()
            raise

    # ---- writing

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        zookeeper_multi.check(self._root, operations)
        if not operations:
            return []
        transaction = self._client.transaction()
        zookeeper_multi.fill(transaction, self._root, operations)
        paths = ", ".join(operation.path for operation in operations[:3])
        answers = await self._ask(paths, transaction.commit_async)
        return zookeeper_multi.results(self._root, operations, answers)

    # ---- asking

    def _full(self, path: str) -> str:
        return zookeeper_multi.full_path(self._root, path)

    def _ask(self, path: str, send: Callable[[], Any]) -> asyncio.Future[Any]:
        """`send` gives kazoo a request. The path is for people who read the error."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.connected:
            future.set_exception(Disconnected(f"{path}: there is no connection to {self._connect}"))
            return future
        self._asked[future] = self._loop.time()
        future.add_done_callback(self._asked.pop)
        send().rawlink(partial(self.post, self._answered, future, path))
        return future

    def _answered(self, future: asyncio.Future[Any], path: str, result: Any) -> None:
        if future.done():
            return  # cancelled, or failed with the connection
        if result.exception is None:
            future.set_result(result.value)
        else:
            future.set_exception(translated(result.exception, path))

    def _sync(self) -> None:
        """Its answer is not waited for: ZooKeeper answers in order."""
        synced = self._ask("/", partial(self._client.sync_async, self._full("/")))
        synced.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def _make_root(self) -> None:
        if not self._root or await self._ask(self._root, partial(self._client.exists_async, self._root)):
            return
        parts = self._root.split("/")
        for depth in range(2, len(parts) + 1):
            path = "/".join(parts[:depth])
            try:
                await self._ask(path, partial(self._client.create_async, path))
            except NodeExists:
                pass

    # ---- the connection

    @property
    def connected(self) -> bool:
        return self._connected and bool(self._client.connected)

    def on_session(self, callback: Callable[[Session], None]) -> None:
        self._listeners.append(callback)

    def post(self, callback: Callable[..., object], *args: object) -> None:
        """From any thread to the event loop."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told

    def _state_heard(self, state: str) -> None:
        """On kazoo's thread."""
        client_id = self._client.client_id
        self.post(self._state_changed, state, client_id[0] if client_id else None)

    def _state_changed(self, state: str, session_id: int | None) -> None:
        if self._closed:
            return
        if state != KazooState.CONNECTED:
            was_connected = self._connected
            self._lose(Disconnected(f"the connection to {self._connect} was lost"))
            if was_connected:
                log.warning("ZooKeeper can't be reached", extra={"zookeeper": self._connect})
                self._tell(Session.SUSPENDED)
            return
        before, self._session_id = self._session_id, session_id
        self._connected = True
        self._first_connected.set()
        if before is None:
            return
        for following in self._followings:
            following.connected_again()
        session = Session.RESUMED if session_id == before else Session.RENEWED
        log.info("ZooKeeper is back", extra={"zookeeper": self._connect, "session": session.value})
        self._tell(session)

    def _tell(self, session: Session) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(session)
            except Exception:
                log.exception("a listener of the session failed")

    def _lose(self, error: Disconnected) -> None:
        self._connected = False
        for future in tuple(self._asked):
            if not future.done():
                future.set_exception(error)

    def _tick(self) -> None:
        """Nobody waits for ever, and kazoo never gives up."""
        self._ticking = self._loop.call_later(TICK_S, self._tick)
        deadline = self._loop.time() - self._answer_s_max
        for future in [future for future, asked in self._asked.items() if asked < deadline]:
            if not future.done():
                future.set_exception(Disconnected(f"{self._connect} does not answer"))
        if self._session_id is not None and self._client.client_state == KeeperState.CLOSED:
            self._client.start_async()  # its thread has ended, on an error that kazoo did not expect

    def _end(self, ended: asyncio.Event) -> None:
        """On a thread of its own: kazoo waits until its thread is done, which may be in the middle of connecting."""
        try:
            self._client.stop()
            self._client.close()
        except Exception:
            log.debug("kazoo did not stop cleanly", exc_info=True)
        self.post(ended.set)
