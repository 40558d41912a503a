from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.server.handlers import describe_cluster
from tests.cluster.controlled_cluster import NODE_ID
from tests.server.admin_broker import AdminBroker


async def ask(broker: AdminBroker, request: DescribeClusterRequest, version: int = 2) -> DescribeClusterResponse:
    return await broker.ask(describe_cluster.handle, request, DescribeClusterResponse, version)


@pytest.mark.parametrize("version", range(3))
async def test_brokers_and_controller_are_told(admin_broker: AdminBroker, version: int) -> None:
    admin_broker.add_broker(2, rack="r2")
    admin_broker.add_broker(3, listener="INTERNAL")
    response = await ask(admin_broker, DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, admin_broker.image.cluster_id)
    assert response.controller_id == NODE_ID
    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (1, "host1", 9092, None),
        (2, "host2", 9092, "r2"),
    ]
    assert response.cluster_authorized_operations == -(2**31)


async def test_a_controller_that_the_client_can_not_reach_is_not_named(admin_broker: AdminBroker) -> None:
    admin_broker.add_broker(NODE_ID, listener="INTERNAL")
    assert (await ask(admin_broker, DescribeClusterRequest())).controller_id == -1


async def test_authorized_operations_are_told_when_asked_for(admin_broker: AdminBroker) -> None:
    response = await ask(admin_broker, DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert response.cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_brokers_are_all_there_is(admin_broker: AdminBroker, endpoint_type: int, code: ErrorCode) -> None:
    response = await ask(admin_broker, DescribeClusterRequest(endpoint_type=endpoint_type))
    assert response.error_code == code
    assert response.error_message
