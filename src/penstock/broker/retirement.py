"""What keeps a broker that stops: partitions that it leads and that others could."""

from __future__ import annotations

from penstock.cluster.model import ClusterImage, PartitionState


class Leaderships:
    """Asked again and again while they move, and looks at each partition about once: one that was found to be left is
    looked at until it is not, and then the next."""

    def __init__(self, image: ClusterImage, node_id: int) -> None:
        self._image = image
        self._node_id = node_id
        self._found: list[tuple[str, int]] = []

    def are_left(self) -> bool:
        brokers = self._image.brokers.values()
        ready = {broker.node_id for broker in brokers if not broker.stopping} - {self._node_id}
        while self._found:
            if self._is_left(*self._found[-1], ready):
                return True
            self._found.pop()
        self._found = [
            (topic.name, index)
            for topic in self._image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._could_move(state, ready)
        ]
        return bool(self._found)

    def _is_left(self, name: str, index: int, ready: set[int]) -> bool:
        topic = self._image.topics.get(name)
        return topic is not None and index < len(topic.partitions) and self._could_move(topic.partitions[index], ready)

    def _could_move(self, state: PartitionState, ready: set[int]) -> bool:
        return state.leader == self._node_id and not ready.isdisjoint(state.isr)
