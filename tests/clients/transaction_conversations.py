"""For every API of transactions and of consumer groups a request that makes sense, in any of its versions."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.protocol.messages import add_partitions_to_txn as adding
from penstock.protocol.messages import txn_offset_commit as committing
from penstock.protocol.messages import write_txn_markers as marking
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from tests.clients.wire import Wire


class Producer:
    """One that has a transaction open, which writes to a topic's only partition."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.transactional_id = f"txn-{uuid.uuid4().hex[:10]}"
        wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id]), 4)
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=10_000)
        known = wire.ask(request, 4)
        assert known.error_code == 0
        self.producer_id, self.producer_epoch = known.producer_id, known.producer_epoch
        self.fields = {
            "transactional_id": self.transactional_id, "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }  # fmt: skip
        (added,) = self.add(wire, topic, 3).results_by_topic_v3_and_below
        assert added.results_by_partition[0].partition_error_code == 0

    def add(self, wire: Wire, topic: str, version: int) -> Any:
        topics = [adding.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
        if version >= 4:
            each = adding.AddPartitionsToTxnTransaction(**self.fields, topics=topics)
            return wire.ask(adding.AddPartitionsToTxnRequest(transactions=[each]), version)
        old = {f"v3_and_below_{name}": value for name, value in self.fields.items()}
        return wire.ask(adding.AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics), version)


def add_partitions_to_txn(wire: Wire, version: int, place: Any) -> Any:
    return Producer(wire, place.topic).add(wire, place.topic, version)


def add_offsets_to_txn(wire: Wire, version: int, place: Any) -> Any:
    producer = Producer(wire, place.topic)
    return wire.ask(AddOffsetsToTxnRequest(**producer.fields, group_id=place.fresh("group")), version)


def end_txn(wire: Wire, version: int, place: Any) -> Any:
    producer = Producer(wire, place.topic)
    response = wire.ask(EndTxnRequest(**producer.fields, committed=True), version)
    if version >= 5:
        assert (response.producer_id, response.producer_epoch) == (producer.producer_id, producer.producer_epoch + 1)
    return response


def write_txn_markers(wire: Wire, version: int, place: Any) -> Any:
    producer = Producer(wire, place.topic)
    marker = marking.WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, transaction_result=False,
        topics=[marking.WritableTxnMarkerTopic(name=place.topic, partition_indexes=[0])],
    )  # fmt: skip
    return wire.ask(marking.WriteTxnMarkersRequest(markers=[marker]), version)


def txn_offset_commit(wire: Wire, version: int, place: Any) -> Any:
    producer, group = Producer(wire, place.topic), place.fresh("group")
    wire.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    assert wire.ask(AddOffsetsToTxnRequest(**producer.fields, group_id=group), 3).error_code == 0
    offset = committing.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = committing.TxnOffsetCommitRequestTopic(name=place.topic, partitions=[offset])
    return wire.ask(committing.TxnOffsetCommitRequest(**producer.fields, group_id=group, topics=[topic]), version)


def describe_transactions(wire: Wire, version: int, place: Any) -> Any:
    producer = Producer(wire, place.topic)
    response = wire.ask(DescribeTransactionsRequest(transactional_ids=[producer.transactional_id]), version)
    assert response.transaction_states[0].transaction_state == "Ongoing"
    return response


def list_transactions(wire: Wire, version: int, place: Any) -> Any:
    producer = Producer(wire, place.topic)
    pattern = producer.transactional_id if version >= 2 else None
    response = wire.ask(ListTransactionsRequest(transactional_id_pattern=pattern), version)
    assert producer.transactional_id in {each.transactional_id for each in response.transaction_states}
    return response


def consumer_group_heartbeat(wire: Wire, version: int, place: Any, group: str | None = None) -> Any:
    group = group or place.fresh("group")
    wire.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=str(uuid.uuid4()), member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=[place.topic], topic_partitions=[],
    )  # fmt: skip
    response = wire.ask(request, version)
    assert response.member_epoch > 0
    return response


def consumer_group_describe(wire: Wire, version: int, place: Any) -> Any:
    group = place.fresh("group")
    consumer_group_heartbeat(wire, 1, place, group)
    response = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group]), version)
    assert response.groups[0].group_state == "Stable"
    return response


CONVERSATIONS = {
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_txn_markers,
    28: txn_offset_commit,
    65: describe_transactions,
    66: list_transactions,
    68: consumer_group_heartbeat,
    69: consumer_group_describe,
}
