"""The offsets that groups have committed, and when they expire.

An offset is kept while somebody may need it. Retention runs (KIP-211)
- for a classic group that is Empty: from when it became so;
- for a simple group, which has no members to become empty of: from each offset's own commit;
- for a classic group of consumers at work, and for a consumer group (KIP-848): from each offset's own commit too, but
  only for topics that nobody in it is subscribed to any more;
- for any other group, not at all: its members may be about to need any of them.
An offset that was committed with a retention of its own (OffsetCommit 2 to 4) expires at that time instead. Those of a
group that a topic names as its `retention.hold.group` never do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.kinds import AnyGroup
from penstock.groups.states import State
from penstock.protocol.schema import ZERO_UUID

NO_EXPIRE_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    committed_offset: int
    leader_epoch: int  # -1 where the consumer did not know it
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRE_TIMESTAMP
    topic_id: bytes = ZERO_UUID

    def is_of_topic(self, topic_id: bytes) -> bool:
        """False only if both ids are known and differ: the topic was deleted and made anew under its name."""
        return ZERO_UUID in (topic_id, self.topic_id) or topic_id == self.topic_id


TopicOffsets = Mapping[int, OffsetAndMetadata]
_NONE: Mapping[str, TopicOffsets] = {}


class Offsets:
    """By group, topic and partition. No level holds an empty one below it."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, OffsetAndMetadata]]] = {}

    def of_group(self, group_id: str) -> Mapping[str, TopicOffsets]:
        return self._by_group.get(group_id, _NONE)

    def by_group(self) -> Mapping[str, Mapping[str, TopicOffsets]]:
        return self._by_group

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if topics and not partitions:
            topics.pop(topic, None)
            if not topics:
                del self._by_group[group_id]


def is_expired(group: AnyGroup, topic: str, offset: OffsetAndMetadata, now_ms: int, retention_ms: int) -> bool:
    start_ms = _retention_start_ms(group, offset)
    if start_ms is None or group.is_subscribed_to(topic):
        return False
    if offset.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - start_ms >= retention_ms


def _retention_start_ms(group: AnyGroup, offset: OffsetAndMetadata) -> int | None:
    if isinstance(group, ConsumerGroup):
        return offset.commit_timestamp_ms
    if group.protocol_type is None:
        return offset.commit_timestamp_ms
    if group.state is State.EMPTY:
        # Records from before version 2 do not say since when the group is empty.
        since_ms = group.current_state_timestamp_ms
        return offset.commit_timestamp_ms if since_ms is None else since_ms
    if group.state is State.STABLE and group.uses_consumer_protocol and group.subscribed_topics is not None:
        return offset.commit_timestamp_ms
    return None
