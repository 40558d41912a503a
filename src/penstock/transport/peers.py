"""The other brokers, by number, for questions that are answered at once. Fetches have connections of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.protocol.schema import Message
from penstock.transport.peer import Address, Answered, Network, Peer

M = TypeVar("M", bound=Message)

ANSWER_S_MAX = 5.0


class Peers:
    def __init__(self, network: Network, address_of: Callable[[int], Address | None]) -> None:
        self._network = network
        self._address_of = address_of
        self._peers: dict[int, Peer] = {}

    def tell(
        self,
        node_id: int,
        request: Message,
        version: int,
        response: type[Message],
        answered: Answered,
        timeout_s: float = ANSWER_S_MAX,
    ) -> None:
        """Calls back with the response, or with None if there is none."""
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = self._network.peer(lambda: self._address_of(node_id))
        peer.ask(request, version, response, answered, timeout_s)

    async def ask(
        self, node_id: int, request: Message, version: int, response: type[M], timeout_s: float = ANSWER_S_MAX
    ) -> M | None:
        future: asyncio.Future[M | None] = asyncio.get_running_loop().create_future()

        def answered(message: M | None) -> None:
            if not future.done():
                future.set_result(message)

        self.tell(node_id, request, version, response, answered, timeout_s)
        return await future

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
