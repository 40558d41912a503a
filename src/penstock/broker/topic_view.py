"""The topics of the cluster as the group coordinator asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.cluster.model import ClusterImage, TopicState

HOLD_GROUP = "retention.hold.group"

if TYPE_CHECKING:
    from penstock.groups.assignors import TopicShape


class ImageTopics:
    """A view of the image. Shapes are kept as long as nothing in the cluster changes."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._shapes: dict[bytes, TopicShape] = {}
        self._shapes_of = -1

    @property
    def generation(self) -> int:
        return self._image.generation

    def shape(self, name: str) -> TopicShape | None:
        topic = self._image.topics.get(name)
        return self._shape(topic) if topic else None

    def by_id(self, topic_id: bytes) -> TopicShape | None:
        topic = self._image.topics_by_id.get(topic_id)
        return self._shape(topic) if topic else None

    def names(self) -> Iterable[str]:
        return [topic.name for topic in self._image.topics.values() if not topic.internal]

    def awaited_groups(self) -> Iterable[str]:
        return [group for topic in self._image.topics.values() if (group := topic.config.get(HOLD_GROUP, "").strip())]

    def _shape(self, topic: TopicState) -> TopicShape:
        if self._shapes_of != self._image.generation:
            self._shapes, self._shapes_of = {}, self._image.generation
        shape = self._shapes.get(topic.topic_id)
        if shape is None:
            from penstock.groups.assignors import TopicShape

            shape = TopicShape(topic.topic_id, topic.name, len(topic.partitions), self._racks(topic))
            self._shapes[topic.topic_id] = shape
        return shape

    def _racks(self, topic: TopicState) -> tuple[frozenset[str], ...]:
        """Of the replicas of each partition; nothing where no broker says its rack."""
        racks = {broker.node_id: broker.rack for broker in self._image.brokers.values() if broker.rack}
        if not racks:
            return ()
        return tuple(
            frozenset(racks[replica] for replica in partition.replicas if replica in racks)
            for partition in topic.partitions
        )
