"""Answers that say no, as clients are used to them: where the error stands that a broker would have given.

`server.failures` knows where most responses have their error. A fetch gets its errors by partition, and a session of
fetches goes on; metadata without a broker in it would leave the client without anyone to ask again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from penstock.protocol.schema import ZERO_UUID, Message, Struct
from penstock.server.cluster_view import controller_on, nodes_on
from penstock.server.context import Context
from penstock.server.failures import UNKNOWN, error_response
from penstock.server.fetch_sessions import flatten

_OF_A_WHOLE_FETCH = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}  # fmt: skip

_LISTS_OF_TOPICS = ("topic_data", "topics", "topic_names", "topic_partitions", "v3_and_below_topics")
_LISTS_AROUND_TOPICS = ("groups", "transactions", "markers")


def refusal(context: Context, request: Message, version: int, code: ErrorCode, listener: str) -> Message | None:
    """None where the client waits for no answer."""
    if isinstance(request, FetchRequest) and code not in _OF_A_WHOLE_FETCH:
        return _fetch_refusal(context, request, code)
    response = error_response(request, version, ApiError(code, "the test asked for it"))
    if isinstance(response, MetadataResponse):
        nodes = list(nodes_on(context.image, listener))
        response.brokers = [
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ]
        response.cluster_id = context.image.cluster_id
        response.controller_id = controller_on(context.image, {node.node_id for node in nodes})
    return response


def _fetch_refusal(context: Context, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    try:
        session, _ = context.fetch_sessions.begin(request)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    keys = list(session.partitions) if session is not None else [key for key, _ in flatten(request.topics)]
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for name, topic_id, index in keys:
        topic = topics.setdefault((name, topic_id), FetchableTopicResponse(topic=name, topic_id=topic_id))
        topic.partitions.append(
            PartitionData(partition_index=index, error_code=code, high_watermark=UNKNOWN, records=memoryview(b""))
        )
    return FetchResponse(session_id=session.session_id if session else 0, responses=list(topics.values()))


def topics_of(context: Context, request: Message) -> set[str]:
    """The names of the topics that a request speaks of."""
    found = set(_topics(context, request))
    if isinstance(request, FetchRequest) and request.session_id:
        session = context.fetch_sessions.known(request.session_id)
        for name, topic_id, _ in session.partitions if session is not None else ():
            found.add(name or _name_of(context, topic_id))
    return found - {""}


def _topics(context: Context, listing: Struct) -> Iterator[str]:
    for field in _LISTS_OF_TOPICS:
        for element in getattr(listing, field, None) or ():
            yield element if isinstance(element, str) else _name(context, element)
    for field in _LISTS_AROUND_TOPICS:
        for element in getattr(listing, field, None) or ():
            if isinstance(element, Struct):
                yield from _topics(context, element)


def _name(context: Context, element: Any) -> str:
    name = getattr(element, "name", None) or getattr(element, "topic", None)
    return str(name) if name else _name_of(context, getattr(element, "topic_id", ZERO_UUID))


def _name_of(context: Context, topic_id: bytes) -> str:
    known = context.image.topics_by_id.get(topic_id)
    return known.name if known is not None else ""
