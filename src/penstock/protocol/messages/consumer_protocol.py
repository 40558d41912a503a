"""What consumers put in JoinGroup's metadata and SyncGroup's assignment: opaque to the group protocol itself.

Both are stored as an int16 version and then the body. A version from the future is read as the newest known here,
because newer versions only append fields.
"""

from __future__ import annotations

from penstock.protocol.schema import BYTES, INT32, STRING, Message, Struct, array, field


class TopicPartition(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ConsumerProtocolSubscription(Message, versions="0-3", flexible=None):
    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), "1+")
    generation_id: int = field(INT32, "2+", default=-1)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible=None):
    assigned_partitions: list[TopicPartition] = field(array(TopicPartition))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
