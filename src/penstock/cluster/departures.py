"""Brokers that have just gone: clients are told of them for a while longer.

One that forgets a broker at the moment when it moves away from it may lose sight of what it was about to send.
"""

from __future__ import annotations

import asyncio

from penstock.cluster.model import BrokerState, ClusterImage

TOLD_S = 3.0


class Departures:
    def __init__(self, image: ClusterImage, node_id: int) -> None:
        self._image = image
        self._node_id = node_id
        self._lives: dict[int, BrokerState] = {}

    def look(self) -> None:
        """Called when brokers come, change or go. This one is always told of."""
        before, self._lives = self._lives, dict(self._image.brokers)
        departed = self._image.departed
        for node_id in self._lives:
            departed.pop(node_id, None)
        for node_id in before.keys() - self._lives.keys() - {self._node_id}:
            departed[node_id] = before[node_id]
            asyncio.get_running_loop().call_later(TOLD_S, self._forget, before[node_id])

    def _forget(self, broker: BrokerState) -> None:
        if self._image.departed.get(broker.node_id) is broker:
            del self._image.departed[broker.node_id]
