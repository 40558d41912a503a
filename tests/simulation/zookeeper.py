"""The server's side of a simulated coordination service: one tree, sessions that expire, connections that break.

A request reaches the server after a while and so does its answer, in order; watches fire once and travel between the
answers. When a link is cut, its connections break: of the requests under way the first few have still arrived, which
nobody is told, and the others have not. A session from which nothing is heard for its time-out ends, and with it the
nodes that it kept. While the server is down no session ends, and when it is back all have their full time again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.cluster.coordination import CoordinationError, Delete, Disconnected
from penstock.cluster.zookeeper_follow import Watch
from penstock.testing.tree import Changes, Tree
from tests.simulation.channel import Channel, Parcel
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import NOBODY

DELAY_S = (0.0002, 0.003)
FIRST_SESSION = 1


class WatchEvent(NamedTuple):
    path: str


@dataclass(slots=True)
class ServerSession:
    number: int
    timeout_s: float
    heard_at: float


class ServerConnection:
    """What lies between a client and the server."""

    def __init__(self, server: SimulatedZooKeeper, loop: VirtualLoop, host: str, context: Context) -> None:
        self.host = host
        self.session = 0
        self.is_broken = False
        self.on_broken: Callable[[], None] = lambda: None
        self._server = server
        self._loop = loop
        self._context = context
        self._up = Channel(loop, server.delay_s)
        self._down = Channel(loop, server.delay_s)

    def to_server(self, callback: Callable[..., object], *args: Any) -> None:
        if not self.is_broken:
            self._up.send(callback, *args)
        elif self._server.reaches(self.host):  # the server knows nothing of this connection any more, and says so
            self._loop.call_later(self._server.delay_s(), self.on_broken, context=self._context)

    def to_client(self, callback: Callable[..., object], *args: Any) -> None:
        if not self.is_broken:
            self._down.send(callback, *args, context=self._context)

    def tear(self) -> list[Parcel]:
        """Both ways, for good; what was on its way to the server."""
        self.is_broken = True
        self._down.drop()
        return self._up.drop()


class SimulatedZooKeeper:
    def __init__(self, loop: VirtualLoop, seed: int = 0, delay_s: tuple[float, float] = DELAY_S) -> None:
        self._loop = loop
        self._random = random.Random(seed)
        self._delays_s = delay_s
        self.tree = Tree()
        self.sessions: dict[int, ServerSession] = {}
        self._next_session = FIRST_SESSION
        self._connections: dict[ServerConnection, None] = {}
        self._cut: set[str] = set()
        self._is_up = True
        self._node_watches: dict[str, dict[tuple[ServerConnection, Watch], None]] = {}
        self._folder_watches: dict[str, dict[tuple[ServerConnection, Watch], None]] = {}

    def delay_s(self) -> float:
        return self._random.uniform(*self._delays_s)

    # ---- faults

    def reaches(self, host: str) -> bool:
        return self._is_up and host not in self._cut

    def cut(self, host: str) -> None:
        self._cut.add(host)
        self._tear([each for each in self._connections if each.host == host])

    def heal(self, host: str) -> None:
        """Whoever has not noticed yet that its connection broke is told so when it next sends something."""
        self._cut.discard(host)

    def stop(self) -> None:
        self._is_up = False
        self._tear(list(self._connections))

    def start(self) -> None:
        self._is_up = True
        for session in self.sessions.values():
            session.heard_at = self._loop.time()
            self._look_at_later(session)

    def expire(self, host: str) -> None:
        """Ends the session of a client that has done nothing wrong."""
        for connection in [each for each in self._connections if each.host == host]:
            self.end_session(connection.session)

    def _tear(self, connections: list[ServerConnection]) -> None:
        for connection in connections:
            self._connections.pop(connection, None)
            self._forget_watches(connection)
            under_way = connection.tear()
            arrived = self._random.randint(0, len(under_way))
            for parcel in under_way[:arrived]:
                NOBODY.copy().run(parcel.callback, *parcel.args)

    # ---- sessions

    def connect(
        self, connection: ServerConnection, session: int, timeout_s: float, answer: Callable[..., None]
    ) -> None:
        """Goes on with a session if it still lives, or begins another."""
        if not self.reaches(connection.host):
            return  # the link was cut while the request was under way
        known = self.sessions.get(session)
        if known is None:
            known = ServerSession(self._next_session, timeout_s, 0.0)
            self._next_session += 1
            self.sessions[known.number] = known
            self._look_at_later(known, timeout_s)
        known.heard_at = self._loop.time()
        connection.session = known.number
        self._connections[connection] = None
        connection.to_client(answer, known.number)

    def _look_at_later(self, session: ServerSession, seconds: float | None = None) -> None:
        left = session.heard_at + session.timeout_s - self._loop.time() if seconds is None else seconds
        self._loop.call_later(max(left, 0.0), self._look_at, session, context=NOBODY)

    def _look_at(self, session: ServerSession) -> None:
        if session.number not in self.sessions or not self._is_up:
            return
        if self._loop.time() >= session.heard_at + session.timeout_s:
            self.end_session(session.number)
        else:
            self._look_at_later(session)

    def end_session(self, number: int) -> None:
        if self.sessions.pop(number, None) is None:
            return
        for path in self.tree.owned_by(number):
            _, changes = self.tree.apply([Delete(path)], number)
            self._fire(changes)
        for connection in [each for each in self._connections if each.session == number]:
            connection.to_client(connection.on_broken)
            del self._connections[connection]
            self._forget_watches(connection)

    # ---- requests, as they arrive

    def serve(self, connection: ServerConnection, work: Callable[[], object], answer: Callable[..., None]) -> None:
        session = self.sessions.get(connection.session)
        if session is None:
            connection.to_client(answer, None, Disconnected("the session has expired"))
            connection.to_client(connection.on_broken)
            return
        session.heard_at = self._loop.time()
        try:
            result = work()
        except CoordinationError as error:
            connection.to_client(answer, None, error)
        else:
            connection.to_client(answer, result, None)

    def write(self, connection: ServerConnection, operations: Any) -> Any:
        results, changes = self.tree.apply(operations, connection.session)
        self._fire(changes)
        return results

    def list_children(self, connection: ServerConnection, path: str, watch: Watch | None) -> list[str]:
        names = self.tree.children(path)
        if watch is not None and not connection.is_broken:
            self._folder_watches.setdefault(path, {})[connection, watch] = None
        return names

    def read(self, connection: ServerConnection, path: str, watch: Watch | None) -> Any:
        found = self.tree.find(path)
        if watch is not None and not connection.is_broken:
            self._node_watches.setdefault(path, {})[connection, watch] = None
        return found

    # ---- watches

    def _fire(self, changes: Changes) -> None:
        for watches, paths in ((self._node_watches, changes.nodes), (self._folder_watches, changes.folders)):
            for path in paths:
                for connection, watch in watches.pop(path, {}):
                    connection.to_client(watch, WatchEvent(path))

    def _forget_watches(self, connection: ServerConnection) -> None:
        for watches in (self._node_watches, self._folder_watches):
            for path, waiting in list(watches.items()):
                watches[path] = {key: None for key in waiting if key[0] is not connection}
