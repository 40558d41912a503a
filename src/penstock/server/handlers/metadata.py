"""Metadata: the brokers, and the leaders of the topics that are asked for. Topics may come into being on the way."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from penstock.cluster.model import NO_LEADER, PartitionState, TopicState
from penstock.cluster.topic_names import INTERNAL_TOPICS, missing_topic_error, why_illegal
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.schema import ZERO_UUID
from penstock.server.authorized_operations import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from penstock.server.cluster_view import controller_on, departed_on, leadership, nodes_on
from penstock.server.context import Call, Context

LISTENER_ERRORS_SINCE = 6  # before, a leader without the client's listener was one that is not available


CREATED_MAX = 500  # by one request; a client that wants more asks again for what it was told is unknown


def handle(context: Context, call: Call[MetadataRequest]) -> MetadataResponse | Awaitable[MetadataResponse]:
    request, image = call.request, context.image
    view = _View(context, call)
    if request.topics is None or (not request.topics and call.version == 0):
        return view.respond([view.topic(topic) for topic in image.topics.values()])
    _check(call)
    if ids := [topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID]:
        return view.respond([view.by_id(topic_id) for topic_id in dict.fromkeys(ids)])
    names = list(dict.fromkeys(topic.name for topic in request.topics if topic.name is not None))
    if request.allow_auto_topic_creation and context.settings.get("auto.create.topics.enable"):
        creatable = [name for name in names if name not in image.topics and not why_illegal(name)]
        if creatable:
            return _respond_after_creating(context, view, names, creatable)
    return view.respond([view.by_name(name) for name in names])


def _check(call: Call[MetadataRequest]) -> None:
    for topic in call.request.topics or ():
        if call.version < 12 and topic.name is None:
            message = f"Topic name can not be null for version {call.version}"
        elif call.version < 12 and topic.topic_id != ZERO_UUID:
            message = f"Topic IDs are not supported in requests for version {call.version}"
        elif topic.name is None and topic.topic_id == ZERO_UUID:
            message = "Neither topic name nor id were specified."
        else:
            continue
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


async def _respond_after_creating(
    context: Context, view: _View, names: Sequence[str], creatable: Sequence[str]
) -> MetadataResponse:
    """Kafka answers at once with an error that makes the client ask again. Here the topic is part of the answer, unless
    one of its name was deleted: many who ask then want to see that it is gone, and do not know that they make it."""
    creatable = creatable[:CREATED_MAX]
    gone = {name for name in creatable if name in context.image.deleted_names}
    outcomes = dict(zip(creatable, await context.administration.auto_create_topics(creatable)))
    failed = {name: outcome.code for name, outcome in outcomes.items() if isinstance(outcome, ApiError)}
    failed.update((name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in gone - failed.keys())
    return view.respond([_missing(name, failed[name]) if name in failed else view.by_name(name) for name in names])


def _missing(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


class _View:
    """The cluster as this client is shown it."""

    def __init__(self, context: Context, call: Call[MetadataRequest]) -> None:
        self._image = context.image
        self._node_id = context.node_id
        self._version = call.version
        self._request = call.request
        self._nodes = list(nodes_on(context.image, call.listener))
        self._reachable = {node.node_id for node in self._nodes}
        self._departed = list(departed_on(context.image, call.listener))

    def respond(self, topics: list[MetadataResponseTopic]) -> MetadataResponse:
        asked = self._request.include_cluster_authorized_operations
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
                for node in (*self._nodes, *self._departed)
            ],
            cluster_id=self._image.cluster_id,
            controller_id=self._controller(),
            topics=topics,
            cluster_authorized_operations=ON_CLUSTER if asked else NOT_ASKED,
        )

    def _controller(self) -> int:
        """Whom clients send to what they want changed. Every broker can do that, so while none that they can reach is
        the controller, they are told to ask this one."""
        controller = controller_on(self._image, self._reachable)
        return self._node_id if controller == NO_LEADER else controller

    def by_name(self, name: str) -> MetadataResponseTopic:
        topic = self._image.topics.get(name)
        return self.topic(topic) if topic else _missing(name, missing_topic_error(name))

    def by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        if topic := self._image.topics_by_id.get(topic_id):
            return self.topic(topic)
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)

    def topic(self, topic: TopicState) -> MetadataResponseTopic:
        asked = self._request.include_topic_authorized_operations
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=[self._partition(index, partition) for index, partition in enumerate(topic.partitions)],
            topic_authorized_operations=ON_TOPIC if asked else NOT_ASKED,
        )

    def _partition(self, index: int, partition: PartitionState) -> MetadataResponsePartition:
        led = leadership(self._image, partition, self._reachable)
        error = led.error
        replicas, isr = list(partition.replicas), list(partition.isr)
        if error is ErrorCode.LISTENER_NOT_FOUND and self._version < LISTENER_ERRORS_SINCE:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        if self._version == 0 and led.offline:  # version 0 has no other place to say that a replica is gone
            error = error or ErrorCode.REPLICA_NOT_AVAILABLE
            replicas, isr = ([node for node in nodes if node in self._reachable] for nodes in (replicas, isr))
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=led.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=led.offline,
        )
