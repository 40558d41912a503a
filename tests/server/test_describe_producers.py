from __future__ import annotations

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from penstock.server.handlers import describe_producers
from tests.server.admin_broker import AdminBroker, FakeProducerEntry


async def ask(broker: AdminBroker, name: str, *indexes: int) -> DescribeProducersResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(indexes))])
    return await broker.ask(describe_producers.handle, request, DescribeProducersResponse)


async def test_producers_that_a_partition_remembers_are_told(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t", 2)
    admin_broker.partitions.producers = {("t", 0): [FakeProducerEntry(7, 1, 41, 1700, 12, 3)], ("t", 1): []}
    (topic,) = (await ask(admin_broker, "t", 0, 1)).topics
    busy, idle = topic.partitions
    assert busy.active_producers == [
        ProducerState(
            producer_id=7,
            producer_epoch=1,
            last_sequence=41,
            last_timestamp=1700,
            coordinator_epoch=3,
            current_txn_start_offset=12,
        )
    ]
    assert (idle.error_code, idle.active_producers) == (ErrorCode.NONE, [])


async def test_partitions_that_are_not_here_are_errors(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    for name, index, code in (
        ("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        (topic,) = (await ask(admin_broker, name, index)).topics
        (partition,) = topic.partitions
        assert (partition.partition_index, partition.error_code) == (index, code)
