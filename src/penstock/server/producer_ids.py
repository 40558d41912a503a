"""Producer ids, one at a time, from blocks that the administration has made durable.

The first block is asked for before anybody needs it, since coordination may be away by then, and the next one while a
tenth of the current one is left, so that a producer that starts rarely waits for a disk. Ids left over when the process
ends are never used: there are enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary, ref

from penstock.cluster.administration import PRODUCER_ID_BLOCK_SIZE, Administration

PREFETCH_BELOW = PRODUCER_ID_BLOCK_SIZE // 10


class ProducerIds:
    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        self._next_block = next_block
        self._blocks: list[range] = []
        self._fetch: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        if sum(map(len, self._blocks)) < PREFETCH_BELOW:
            self._fetching()

    async def next(self) -> int:
        """Raises what the fetch of a block raised, if there is no other."""
        while not self._blocks:
            await asyncio.shield(self._fetching())
        block = self._blocks[0]
        if len(block) > 1:
            self._blocks[0] = block[1:]
        else:
            del self._blocks[0]
        self.prepare()
        return block[0]

    def _fetching(self) -> asyncio.Task[None]:
        """One fetch at a time, for everyone who waits."""
        if self._fetch is None:
            self._fetch = asyncio.get_running_loop().create_task(self._fetch_block())
            self._fetch.add_done_callback(self._fetched)
        return self._fetch

    async def _fetch_block(self) -> None:
        self._blocks.append(await self._next_block())

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetch = None
        if not task.cancelled():
            task.exception()  # whoever waits has it; if nobody does, the next one asks again

    async def close(self) -> None:
        if self._fetch is not None:
            await asyncio.wait([self._fetch])


_allocators: WeakKeyDictionary[Administration, ProducerIds] = WeakKeyDictionary()


def producer_ids(administration: Administration) -> ProducerIds:
    """The one allocator that draws on this administration: two would be correct, but would waste blocks."""
    known = _allocators.get(administration)
    if known is None:
        known = _allocators[administration] = ProducerIds(_blocks_of(ref(administration)))
    return known


def _blocks_of(administration: ref[Administration]) -> Callable[[], Awaitable[range]]:
    """Does not keep the administration alive, which would keep its allocator alive."""

    def next_block() -> Awaitable[range]:
        alive = administration()
        assert alive is not None, "an allocator has outlived its source"
        return alive.next_producer_id_block()

    return next_block
