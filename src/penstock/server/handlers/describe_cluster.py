"""DescribeCluster: the brokers, and which of them is the controller."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.server.authorized_operations import NOT_ASKED, ON_CLUSTER
from penstock.server.cluster_view import controller_on, nodes_on
from penstock.server.context import Call, Context

BROKERS = 1
CONTROLLERS = 2


def handle(context: Context, call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    request, image = call.request, context.image
    if request.endpoint_type == CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        raise ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    brokers = [
        DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in nodes_on(image, call.listener)
    ]
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=controller_on(image, {broker.broker_id for broker in brokers}),
        brokers=brokers,
        cluster_authorized_operations=ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED,
    )
