"""Where the first of a partition's replicas begins, for those who wait until all have deleted what is to go."""

from __future__ import annotations

import asyncio

from penstock.cluster.model import ClusterImage
from penstock.replication.partition import Partition


class LowWatermarks:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._waiting: dict[Partition, list[asyncio.Event]] = {}

    def begins_at(self, partition: Partition, replica: int, start: int) -> None:
        """A follower says where its log begins."""
        in_sync = partition.in_sync
        if in_sync is not None and in_sync.begins_at(replica, start):
            for event in self._waiting.get(partition, ()):
                event.set()

    def look(self) -> None:
        """Brokers or leaders have changed: whoever is gone is waited for no longer."""
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def wait(self, partition: Partition, offset: int, timeout_s: float) -> int:
        """The low watermark, as soon as no replica that lives begins below the offset, or when the time is over."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(partition, [])
        waiting.append(event)
        try:
            async with asyncio.timeout(timeout_s):
                while self._of(partition) < offset and partition.leads and not partition.deleted:
                    await event.wait()
                    event.clear()
        except TimeoutError:
            pass
        finally:
            waiting.remove(event)
            if not waiting:
                self._waiting.pop(partition, None)
        return self._of(partition)

    def _of(self, partition: Partition) -> int:
        start, in_sync = partition.log.start_offset, partition.in_sync
        return start if in_sync is None else in_sync.lowest_start(start, lambda replica: replica in self._image.brokers)
