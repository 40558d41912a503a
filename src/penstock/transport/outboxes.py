"""Requests to other brokers, one at a time to each: what comes while one is under way goes into the next.

So a broker that many want something of is asked once for all of them. Nothing is tried twice: when a broker does not
answer, everyone who waits for it is told, since by now it may be another that has to be asked.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from penstock.protocol.schema import Message
from penstock.transport.peers import Peers

log = logging.getLogger("penstock.transport")


class Wanted(Protocol):
    """What one of many wants of a broker."""

    @property
    def size(self) -> int: ...

    @property
    def subject(self) -> Hashable:
        """By which alone an answer names it."""

    @property
    def matter(self) -> Hashable:
        """Of one subject, only what is the same matter goes into one request."""

    def is_void(self) -> bool:
        """Nobody wants it any more."""


W = TypeVar("W", bound=Wanted)
R = TypeVar("R", bound=Message)


class Outboxes(ABC, Generic[W, R]):
    """An outbox for each broker. `size_max` bounds a request that holds more than one thing."""

    def __init__(self, peers: Peers, version: int, response: type[R], size_max: int) -> None:
        self._peers = peers
        self._version = version
        self._response = response
        self._size_max = size_max
        self._queues: dict[int, deque[W]] = {}
        self._busy: set[int] = set()

    @abstractmethod
    def request(self, batch: list[W]) -> Message: ...

    @abstractmethod
    def answered(self, node_id: int, batch: list[W], response: R | None) -> None:
        """Tells those who wait; None is no answer."""

    def put(self, node_id: int, wanted: W) -> None:
        self._queues.setdefault(node_id, deque()).append(wanted)
        if node_id not in self._busy:
            self._busy.add(node_id)
            asyncio.get_running_loop().call_soon(self._send, node_id)  # with what else this turn brings

    def _send(self, node_id: int) -> None:
        batch = self._take(self._queues[node_id])
        if not batch:
            self._busy.discard(node_id)
            return

        def answered(response: R | None) -> None:
            waiting = batch
            if response is None:
                waiting = [*batch, *self._queues[node_id]]
                self._queues[node_id].clear()
            try:
                self.answered(node_id, waiting, response)
            finally:
                self._send(node_id)

        try:
            request = self.request(batch)
        except Exception:
            log.exception("nothing was asked of a broker", extra={"broker": node_id})
            answered(None)
            return
        self._peers.tell(node_id, request, self._version, self._response, answered)

    def _take(self, queue: deque[W]) -> list[W]:
        batch: list[W] = []
        matters: dict[Hashable, Hashable] = {}
        later: list[W] = []
        size = 0
        while queue and (not batch or size + queue[0].size <= self._size_max):
            wanted = queue.popleft()
            if wanted.is_void():
                continue
            if matters.setdefault(wanted.subject, wanted.matter) == wanted.matter:
                batch.append(wanted)
                size += wanted.size
            else:
                later.append(wanted)
        queue.extendleft(reversed(later))
        return batch
