"""Following a folder of ZooKeeper: what every child holds, through watches that fire once and connections that break.

A watch only says that something changed, so each is answered by reading again, with a new watch. One that was lost with
its connection is made up for by reading everything again after the next connect; what is the same then is not told.
Listing and reading take turns, and answers come in the order of ZooKeeper's history: nothing older is told after
something newer.

What is not there is told as gone only while ZooKeeper still has the node that says which cluster this is, with the same
content: one that was emptied, or holds another cluster by now, says nothing about this one, and nothing is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from penstock.cluster.coordination import Disconnected, NoNode, Told, Versioned

log = logging.getLogger("penstock.cluster")

READS_AT_ONCE = 500
RETRY_S = 1.0
IDENTITY = "cluster"  # the name of that node

Watch = Callable[[Any], None]  # called with kazoo's event, on kazoo's thread


class _Emptied(NoNode):
    """These are not the nodes of this cluster."""


class Found(NamedTuple):
    content: Versioned
    changed_by: int  # the transaction that wrote it: unlike a version it never repeats


class Reader(Protocol):
    """What following needs of the store."""

    @property
    def connected(self) -> bool: ...

    def post(self, callback: Callable[..., object], *args: object) -> None: ...

    async def list_children(self, folder: str, watch: Watch | None = None) -> list[str]: ...

    async def read_children(
        self, folder: str, names: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[str, Found | None]]: ...


class Following:
    def __init__(self, reader: Reader, folder: str, told: Told) -> None:
        self._reader = reader
        self._folder = folder
        self._told = told
        self._found: dict[str, Found] = {}
        self._cluster: bytes | None = None  # what the node that identifies it held at the start
        self._is_emptied = False
        self._list_due = self._all_due = True
        self._due: dict[str, None] = {}
        self._missed: set[str] = set()  # were not there when they were read
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> dict[str, Versioned]:
        """Nothing is told before whoever awaits this has the answer."""
        self._cluster = await self._identity()
        await self._catch_up()
        self._task = asyncio.create_task(self._keep_up())
        return {name: found.content for name, found in self._found.items()}

    def connected_again(self) -> None:
        """Every watch went with the connection."""
        self._list_due = self._all_due = True
        self._wake.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # ---- watches, on kazoo's thread. An event without a path is one of the connection, of which the store hears too.

    def _folder_watch(self, event: Any) -> None:
        if event.path is not None:
            self._reader.post(self._folder_changed)

    def _child_watch(self, event: Any) -> None:
        if event.path is not None:
            self._reader.post(self._child_changed, event.path.rpartition("/")[2])

    # ---- on the event loop

    def _folder_changed(self) -> None:
        self._list_due = True
        self._wake.set()

    def _child_changed(self, name: str) -> None:
        self._due[name] = None
        self._wake.set()

    async def _keep_up(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._catch_up()
            except Disconnected:
                self._try_again()
            except NoNode:
                self._complain()
                self._try_again()
            except Exception as error:
                log.warning("a folder can't be followed", extra={"folder": self._folder, "error": repr(error)})
                self._try_again()

    def _complain(self) -> None:
        if not self._is_emptied:
            self._is_emptied = True
            problem = (
                "ZooKeeper has lost the nodes of this cluster: brokers go on with what they knew, and decide nothing"
            )
            log.error(problem, extra={"folder": self._folder})

    async def _identity(self) -> bytes | None:
        ((_, found),) = await self._reader.read_children("/", [IDENTITY])
        return None if found is None else found.content.data

    async def _make_sure(self) -> None:
        """Raises _Emptied, else what is read may be told."""
        if self._cluster is not None and await self._identity() != self._cluster:
            raise _Emptied(self._folder)
        self._is_emptied = False

    def _try_again(self) -> None:
        """At the next connect or, if it was not the connection that failed, soon."""
        self._list_due = self._all_due = True
        if self._reader.connected:
            asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)

    async def _catch_up(self) -> None:
        while self._list_due or self._due:
            if self._list_due:
                await self._list()
            names = list(islice(self._due, READS_AT_ONCE))
            for name in names:
                del self._due[name]  # before it is read: what changes while it is read is due again
            for name, found in await self._reader.read_children(self._folder, names, self._child_watch):
                if found is None:
                    self._missed.add(name)  # it may be there again by now, or all may be gone: the list says
                    self._list_due = True
                elif name not in self._found or self._found[name].changed_by != found.changed_by:
                    self._found[name] = found
                    self._tell(name, found.content)

    async def _list(self) -> None:
        self._list_due = False
        names = await self._reader.list_children(self._folder, self._folder_watch)
        listed = set(names)
        gone = [name for name in self._found if name not in listed]
        if gone or (self._all_due and self._task is not None):  # at the start it was looked at just now
            await self._make_sure()
        self._forget(gone)
        if self._all_due:
            self._all_due = False
            self._due = dict.fromkeys(names)
        else:
            self._due.update((name, None) for name in names if name not in self._found or name in self._missed)
        self._missed.clear()

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            if self._found.pop(name, None) is not None:
                self._tell(name, None)

    def _tell(self, name: str, content: Versioned | None) -> None:
        if self._task is None:
            return  # still starting
        try:
            self._told(name, content)
        except Exception:
            log.exception("a follower failed", extra={"folder": self._folder, "node": name})
