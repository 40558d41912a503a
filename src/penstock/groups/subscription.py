"""What the coordinator reads of a consumer's metadata, which is the members' own business otherwise.

Only the topics, and only to know which offsets nobody needs any more. They stand first in every version of the
format, so that version 0 reads them all, those of the future too.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.protocol.codec import DecodeError, decode
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None for bytes that are not a consumer's subscription."""
    try:
        return frozenset(decode(ConsumerProtocolSubscription, metadata, 0, _VERSION_BYTES).topics)
    except DecodeError:
        return None


def all_subscribed_topics(metadata_of_members: Iterable[bytes]) -> frozenset[str] | None:
    """None if that of any member can't be read: the group may then be subscribed to anything."""
    together: set[str] = set()
    for metadata in metadata_of_members:
        topics = subscribed_topics(metadata)
        if topics is None:
            return None
        together |= topics
    return frozenset(together)
