"""WriteTxnMarkers: a coordinator's decision for partitions of this broker, or an operator's for one that hangs."""

from __future__ import annotations

import asyncio

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.coordinator.machine import ProducerStamp
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.server.context import Call, Context
from penstock.server.transaction_calls import BUMPING, COORDINATOR_AWAY
from penstock.storage.aborted import Marker

FIRST_VERSION_WITH_TRANSACTION_VERSION = 2
COMMIT_S_MAX = 4.0  # less than a broker waits for the answer: it loses nothing but the patience for one partition


async def handle(context: Context, call: Call[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    written = await asyncio.gather(*(_write(context, marker, call.version) for marker in call.request.markers))
    return WriteTxnMarkersResponse(markers=written)


async def _write(context: Context, asked: WritableTxnMarker, version: int) -> WritableTxnMarkerResult:
    producer = ProducerStamp(asked.producer_id, asked.producer_epoch)
    marker = Marker(asked.transaction_result, asked.coordinator_epoch)
    partitions = [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
    bumped = version >= FIRST_VERSION_WITH_TRANSACTION_VERSION and asked.transaction_version >= BUMPING
    codes: list[ErrorCode]
    if asked.coordinator_epoch > _newest_epoch(context):  # of no coordinator: it would shut out the real ones
        codes = [ErrorCode.INVALID_REQUEST] * len(partitions)
    else:
        codes = await asyncio.gather(*(_write_one(context, each, producer, marker, bumped) for each in partitions))
    results = dict(zip(partitions, codes))
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=results[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


def _newest_epoch(context: Context) -> int:
    topic = context.image.topics.get(TRANSACTIONS_TOPIC)
    return max((partition.leader_epoch for partition in topic.partitions), default=0) if topic is not None else 0


async def _write_one(
    context: Context, where: tuple[str, int], producer: ProducerStamp, marker: Marker, bumped: bool
) -> ErrorCode:
    written: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(error: ApiError | None) -> None:
        if not written.done():
            written.set_result(ErrorCode.NONE if error is None else ErrorCode(error.code))

    context.markers.write(where, producer, marker, done, bumped=bumped)
    try:
        code = await asyncio.wait_for(written, COMMIT_S_MAX)
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_AWAY else code
