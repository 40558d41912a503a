"""TxnOffsetCommit: where a group has come to, if the transaction is committed."""

from __future__ import annotations

from penstock.cluster.topic_names import OFFSETS_TOPIC
from penstock.coordinator.machine import ProducerStamp
from penstock.groups.commands import CommitTransactionalOffsets, TransactionalOffset
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.server.context import Call, Context
from penstock.server.group_calls import partition_of
from penstock.server.transaction_calls import admit, ensure_coordinator
from penstock.transactions.transaction import TopicPartition

FIRST_VERSION_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS = 5


async def handle(context: Context, call: Call[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    request = call.request
    if not request.transactional_id or not request.group_id:
        code = ErrorCode.INVALID_REQUEST if request.group_id else ErrorCode.INVALID_GROUP_ID
        return _response(request, {}, code)
    if request.producer_id < 0 or request.producer_epoch < 0:
        return _response(request, {}, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    known = [_known(context, topic) for topic in request.topics]
    if not any(topic.partitions for topic in known):
        return _response(request, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        await ensure_coordinator(context, OFFSETS_TOPIC)
        index = partition_of(context, request.group_id)
        await _begin(context, call, index)
        stored = await context.groups.ask(
            index,
            lambda ticket: CommitTransactionalOffsets(
                ticket, request.group_id, request.member_id, request.group_instance_id, request.generation_id,
                request.producer_id, request.producer_epoch, [_offsets(topic) for topic in known if topic.partitions],
            ),
        )  # fmt: skip
    except ApiError as error:
        return _response(request, {}, ErrorCode(error.code))
    codes = {(topic, partition): code for topic, partitions in stored for partition, code in partitions}
    return _response(request, codes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _begin(context: Context, call: Call[TxnOffsetCommitRequest], index: int) -> None:
    """The coordinator of the transaction must know that it will commit offsets of this group."""
    request = call.request
    partition = context.partitions.get(OFFSETS_TOPIC, index)
    if partition is None or not partition.leads:
        raise ApiError(ErrorCode.NOT_COORDINATOR)
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    if not partition.admission.needs_verification(*producer):
        return
    refused = await admit(
        context, request.transactional_id, producer, [partition], adds=call.version >= FIRST_VERSION_THAT_ADDS,
        abortable=call.version >= FIRST_VERSION_ABORTABLE,
    )  # fmt: skip
    for code in refused.values():
        # To this request, an answer that asks for another try has another name.
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code == ErrorCode.NOT_ENOUGH_REPLICAS else code)


def _known(context: Context, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequestTopic:
    state = context.image.topics.get(topic.name)
    count = len(state.partitions) if state is not None else 0
    partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    return TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)


def _offsets(topic: TxnOffsetCommitRequestTopic) -> tuple[str, list[TransactionalOffset]]:
    return topic.name, [
        TransactionalOffset(
            each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata
        )
        for each in topic.partitions
    ]


def _response(
    request: TxnOffsetCommitRequest, codes: dict[TopicPartition, ErrorCode], others: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get((topic.name, each.partition_index), others),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
