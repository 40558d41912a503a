"""This broker's place among the brokers: announced, announced anew after a lost session, given up at the end.

Whoever reads the announcement takes another epoch for another life of the broker. An epoch rises with every
announcement in the cluster, and its lower half is random: a client that claims to be a broker can't guess it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from penstock.cluster.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Session,
)
from penstock.cluster.identity import RandomBytes
from penstock.cluster.model import BrokerState, Endpoint
from penstock.cluster.nodes import BrokerEpochNode, BrokerNode, ForeignNode, save
from penstock.protocol.errors import ApiError

log = logging.getLogger("penstock.membership")

RANDOM_BITS = 31
AGAIN_S = 0.2  # between two attempts to announce this broker
TOLD_S_MAX = 1.0


class IdTaken(Exception):
    """Another broker uses this one's number."""


class Membership:
    def __init__(
        self,
        store: Coordination,
        node_id: int,
        folder: str,
        random_bytes: RandomBytes,
        of_cluster: Callable[[], Awaitable[Sequence[Operation]]],
        on_replaced: Callable[[BrokerState], None] = lambda other: None,
    ) -> None:
        """`of_cluster` says what an announcement depends on, and raises ApiError if the nodes are another cluster's.
        `on_replaced` is called when another process has announced itself as this broker."""
        self._of_cluster = of_cluster
        self._on_replaced = on_replaced
        self._store = store
        self._node_id = node_id
        self._folder = folder
        self._random_bytes = random_bytes
        self._announced: BrokerState | None = None
        self._announced_at = 0.0
        self._own_epochs: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        store.on_session(self._session)

    @property
    def epoch(self) -> int:
        """-1 before the first announcement."""
        return self._announced.epoch if self._announced else -1

    async def claim(self, patience_s: float) -> None:
        """Ends a former life of this broker, whose session may last for a while. Another broker of the same number is
        waited for, since it may have died just now; then IdTaken is raised."""
        attempts = max(int(patience_s / AGAIN_S), 1)
        while True:
            try:
                await self._end_former_life()
                return
            except IdTaken:
                attempts -= 1
                if not attempts:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def join(self, endpoints: tuple[Endpoint, ...], rack: str | None) -> BrokerState:
        """Announces the broker."""
        wanted = BrokerState(
            self._node_id, endpoints, rack, folder=self._folder, host=socket.gethostname(), pid=os.getpid()
        )
        self._announced = await self._announce(wanted)
        return self._announced

    async def _announce(self, wanted: BrokerState) -> BrokerState:
        while True:
            conditions = await self._of_cluster()
            counter = BrokerEpochNode.decode(await self._store.get(BrokerEpochNode.path))
            count = max(counter.count, wanted.epoch >> RANDOM_BITS) + 1  # what was counted may have been restored
            number = int.from_bytes(self._random_bytes(4), "big") >> (32 - RANDOM_BITS)
            broker = replace(wanted, epoch=count << RANDOM_BITS | number)
            self._own_epochs.add(broker.epoch)
            counted = save(BrokerEpochNode(count, counter.version))
            try:
                await self._store.multi([counted, BrokerNode(broker).announce(), *conditions])
                self._announced_at = asyncio.get_running_loop().time()
                return broker
            except BadVersion:
                continue  # another broker announced itself meanwhile
            except NodeExists:
                await self._end_former_life()

    async def _end_former_life(self) -> None:
        path = f"/brokers/{self._node_id}"
        try:
            stored = await self._store.get(path)
            other = BrokerNode.decode(str(self._node_id), stored).broker
            if other.folder != self._folder or not _is_gone(other):
                where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in other.endpoints)
                raise IdTaken(
                    f"broker {self._node_id} runs already, at {where} on {other.host} (process {other.pid}). "
                    "Stop it, or choose another number with --node-id."
                )
            await self._store.delete(path, stored.version)
        except NoNode:
            pass
        except ForeignNode as error:
            raise IdTaken(f"{error}. It is left alone: choose another number with --node-id.") from None

    async def retire(self) -> None:
        """Asks for this broker's leaderships to be moved to others."""
        if self._announced is not None:
            retiring = replace(self._announced, stopping=True)
            version = await self._stored_version(retiring)
            await self._store.set(f"/brokers/{self._node_id}", BrokerNode(retiring).encode(), version)
            self._announced = retiring

    async def _stored_version(self, announced: BrokerState) -> int:
        """Of the node, if it is of this life. Every life's first version is the same."""
        path = f"/brokers/{self._node_id}"
        stored = await self._store.get(path)
        try:
            if BrokerNode.decode(str(self._node_id), stored).broker.epoch == announced.epoch:
                return stored.version
        except ForeignNode as error:
            raise NoNode(str(error)) from None
        raise NoNode(f"{path} is of another life of this broker")

    def _session(self, session: Session) -> None:
        if session is Session.RENEWED:
            self._announce_again()

    def look(self, brokers: Mapping[int, BrokerState]) -> None:
        """Someone may have taken this broker for dead, and its announcement back, or announced itself in its place."""
        if self._announced is None:
            return
        known = brokers.get(self._node_id)
        if known is not None and known.epoch > self._announced.epoch and known.epoch not in self._own_epochs:
            self._announced = None
            self._on_replaced(known)
            return
        if known is not None or not self._store.connected:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._announced_at >= TOLD_S_MAX:
            self._announce_again()
        else:  # what was announced just now has not been told of yet, perhaps
            loop.call_later(TOLD_S_MAX, self.look, brokers)

    def _announce_again(self) -> None:
        if self._announced is not None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._join_again())

    async def _join_again(self) -> None:
        assert self._announced is not None
        told = ""
        while self._announced is not None:
            try:
                self._announced = await self._announce(self._announced)
                log.warning("announced again: others took it for dead", extra={"epoch": self._announced.epoch})
                return
            except (IdTaken, ForeignNode) as error:
                log.error("%s", error)
            except (CoordinationError, ApiError) as error:
                if str(error) != told:
                    log.warning("not announced yet: %s", error)
                told = str(error)
            await asyncio.sleep(AGAIN_S)

    async def leave(self) -> None:
        announced, self._announced = self._announced, None
        if self._task is not None:
            self._task.cancel()
        if announced is None or not self._store.connected:
            return
        try:
            version = await self._stored_version(announced)
            await self._store.multi([Delete(f"/brokers/{self._node_id}", version)])
        except CoordinationError as error:
            log.warning("not withdrawn: others learn of the stop when the session expires: %s", error)


def _is_gone(broker: BrokerState) -> bool:
    """Whether the process that announced it is known to be no more. One on another machine may live, with a copy of the
    same folder: its session tells."""
    if broker.host != socket.gethostname():
        return False
    if broker.pid == os.getpid():
        return True  # this very process, before it lost its session
    try:
        os.kill(broker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
