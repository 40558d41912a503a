"""A transactional producer as the wire sees it: what it would send, request by request, and what came of it.

Methods return a request with its version, for any connection to send now, later, or twice. Nothing is remembered but
what a test tells it: the stamp is what the broker gave, or what a zombie still believes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.fetch import PartitionData
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.protocol.record_batch import Record, build_batch, read_batches, read_records
from penstock.protocol.schema import Message
from tests.transactions.engine import BUMPING, CLASSIC, NOBODY, Stamp

Asked = tuple[Message, int]

# Which versions of requests mean which version of transactions (KIP-890).
VERSIONS = {
    CLASSIC: {"init": 4, "produce": 11, "offsets": 4, "end": 4},
    BUMPING: {"init": 5, "produce": 12, "offsets": 5, "end": 5},
}
TWO_PHASE_INIT = 6


@dataclass
class RawProducer:
    name: str
    version: int = BUMPING
    stamp: Stamp = NOBODY
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def as_it_was(self, stamp: Stamp | None = None) -> RawProducer:
        """One that believes what this one believes now, or something else, and hears no more."""
        return replace(self, stamp=stamp or self.stamp, sequences=dict(self.sequences))

    def heard(self, response: Any) -> RawProducer:
        """It goes on with what it was told."""
        assert response.error_code == 0, ErrorCode(response.error_code)
        if self.version == BUMPING or hasattr(response, "producer_id"):
            told = (response.producer_id, response.producer_epoch)
            if told[0] >= 0 and told != self.stamp:
                self.stamp = told
                self.sequences.clear()
        return self

    def initialize(
        self, *, recovers: bool = False, timeout_ms: int = 60_000, two_phase: bool = False, keeps: bool = False
    ) -> Asked:
        """In the version that nobody is told of, if it is about two phases (KIP-939)."""
        producer_id, epoch = self.stamp if recovers else NOBODY
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, producer_id=producer_id,
            producer_epoch=epoch, enable_2pc=two_phase, keep_prepared_txn=keeps,
        )  # fmt: skip
        return request, TWO_PHASE_INIT if two_phase or keeps else VERSIONS[self.version]["init"]

    def add(self, topic: str, *partitions: int) -> Asked:
        """What only classic producers send."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.stamp[0],
            v3_and_below_producer_epoch=self.stamp[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )  # fmt: skip
        return request, 3

    def batch(self, *values: bytes, sequence: int = 0, transactional: bool = True) -> bytes:
        return build_batch(
            [Record(place, self.now_ms, None, value) for place, value in enumerate(values)], producer_id=self.stamp[0],
            producer_epoch=self.stamp[1], base_sequence=sequence, transactional=transactional,
        )  # fmt: skip

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, sequence: int | None = None, transactional: bool = True
    ) -> Asked:
        """With the next sequence, unless another is given."""
        where = (topic, partition)
        if sequence is None:
            sequence = self.sequences.get(where, 0)
            self.sequences[where] = sequence + len(values)
        return self.produce_batch(
            topic, self.batch(*values, sequence=sequence, transactional=transactional), partition=partition
        )

    def produce_batch(self, topic: str, batch: bytes, *, partition: int = 0, name: str | None = "") -> Asked:
        data = [PartitionProduceData(index=partition, records=memoryview(bytearray(batch)))]
        request = ProduceRequest(
            transactional_id=self.name if name == "" else name, acks=-1, timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )  # fmt: skip
        return request, VERSIONS[self.version]["produce"]

    def add_offsets(self, group: str) -> Asked:
        """What only classic producers send."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.stamp[0], producer_epoch=self.stamp[1], group_id=group
        )
        return request, 3

    def commit_offsets(
        self, group: str, topic: str, offset: int, *, partition: int = 0, member: str = "", generation: int = -1
    ) -> Asked:
        committed = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name, group_id=group, producer_id=self.stamp[0], producer_epoch=self.stamp[1],
            member_id=member, generation_id=generation,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )  # fmt: skip
        return request, VERSIONS[self.version]["offsets"]

    def end(self, commit: bool = True) -> Asked:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.stamp[0], producer_epoch=self.stamp[1], committed=commit
        )
        return request, VERSIONS[self.version]["end"]


def error_of(response: Any) -> ErrorCode:
    """Of a response to a request that asked for one thing."""
    if hasattr(response, "responses"):
        return ErrorCode(response.responses[0].partition_responses[0].error_code)
    if getattr(response, "results_by_topic_v3_and_below", None):
        return ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if hasattr(response, "topics"):
        return ErrorCode(response.topics[0].partitions[0].error_code)
    return ErrorCode(response.error_code)


def committed_values(fetched: PartitionData, offset: int = 0) -> list[bytes | None]:
    """What a consumer makes of the answer to a fetch from the offset: it drops control batches, and the batches of
    producers whose transaction was aborted, from where the answer says that it began up to its marker."""
    begins = sorted((each.first_offset, each.producer_id) for each in fetched.aborted_transactions or [])
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for header, data in read_batches(bytes(fetched.records or b"")):
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        records = read_records(data, 1 << 20, check_crc=True)
        if header.is_control:
            if any(record.key == b"\0\0\0\0" for record in records):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in records if record.offset >= offset]
    return values
