"""Notices at once when a broker's process has died, without waiting for its session to expire.

The controller holds a connection to every other broker, and every other broker one to the controller. When it breaks
and the port then refuses connections, the machine is there and the process is not: its announcement is taken back, as
ZooKeeper would do a moment later. A machine that is gone answers nothing, so that is left to the session. If it was a
mistake, the broker announces itself anew: leaders may move for nothing, but nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.cluster.coordination import BadVersion, Coordination, CoordinationError, Delete, NoNode, Operation
from penstock.cluster.model import BrokerState, ClusterImage
from penstock.cluster.nodes import BrokerNode, ControllerNode, ForeignNode
from penstock.transport.peer import Address

log = logging.getLogger("penstock.broker")

CONNECT_S_MAX = 3.0
AGAIN_S = 0.5
REFUSED_AGAIN_S = 0.01  # a port that refuses twice is closed

Life = tuple[int, int]  # a broker and its epoch


class Watchman:
    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        store: Coordination,
        address_of: Callable[[int], Address | None],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._store = store
        self._address_of = address_of
        self._watched: dict[Life, asyncio.Task[None]] = {}
        self._closed = False

    def look(self) -> None:
        """Brokers have come or gone, or there is another controller."""
        if self._closed:
            return
        wanted = {(broker.node_id, broker.epoch): broker for broker in self._image.brokers.values()
                  if self._is_mine(broker)}  # fmt: skip
        for life in [life for life in self._watched if life not in wanted]:
            self._watched.pop(life).cancel()
        for life in wanted:
            if life not in self._watched:
                self._watched[life] = asyncio.get_running_loop().create_task(self._watch(life))

    def _is_mine(self, broker: BrokerState) -> bool:
        controller = self._image.controller_id
        return broker.node_id != self._node_id and self._node_id in self._image.brokers and (
            controller == self._node_id or broker.node_id == controller
        )  # fmt: skip

    async def _watch(self, life: Life) -> None:
        refused = False
        while True:
            address = self._address_of(life[0])
            if address is None:
                return
            began = asyncio.get_running_loop().time()
            try:
                await self._until_broken(address)
                refused = False
                if asyncio.get_running_loop().time() - began < AGAIN_S:  # it takes no more connections, perhaps
                    await asyncio.sleep(AGAIN_S)
            except ConnectionRefusedError:
                if refused:
                    break
                refused = True
                await asyncio.sleep(REFUSED_AGAIN_S)
            except (OSError, TimeoutError):
                refused = False
                await asyncio.sleep(AGAIN_S)
        await self._take_back(life)

    async def _until_broken(self, address: Address) -> None:
        """A broker says nothing unless it is asked, so whatever comes is the end of the connection."""
        async with asyncio.timeout(CONNECT_S_MAX):
            reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            await reader.read(1)
        except ConnectionResetError:
            pass
        finally:
            writer.close()

    async def _take_back(self, life: Life) -> None:
        node_id, epoch = life
        path = f"/brokers/{node_id}"
        try:
            stored = await self._store.get(path)
            if BrokerNode.decode(str(node_id), stored).broker.epoch != epoch:
                return
            log.warning("a broker has died: its port is closed", extra={"broker": node_id})
            await self._store.multi([Delete(path, stored.version), *await self._post_of(node_id)])
        except (NoNode, BadVersion, ForeignNode):
            pass  # someone else was faster
        except CoordinationError as error:
            log.info("left to the session: %s", error)

    async def _post_of(self, node_id: int) -> list[Operation]:
        """What ends its term, if it was the controller."""
        try:
            stored = await self._store.get(ControllerNode.path)
        except NoNode:
            return []
        held = ControllerNode.decode(stored).node_id == node_id
        return [Delete(ControllerNode.path, stored.version)] if held else []

    async def close(self) -> None:
        self._closed = True
        for task in self._watched.values():
            task.cancel()
        await asyncio.gather(*self._watched.values(), return_exceptions=True)
