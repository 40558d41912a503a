"""Asks the coordinator of a transaction that is another broker: AddPartitionsToTxn, in the form for brokers.

One request at a time is under way to each: an answer waits for a commit, and producers begin transactions faster than
that.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.coordinator.machine import ProducerStamp
from penstock.protocol.errors import ErrorCode, code_of
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.transactions.transaction import TopicPartition
from penstock.transport.outboxes import Outboxes
from penstock.transport.peers import Peers

VERSION = 5
PARTITIONS_PER_REQUEST = 3_000

Codes = dict[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """Whether partitions are part of a transaction, or that they shall be."""

    transactional_id: str
    producer: ProducerStamp
    partitions: frozenset[TopicPartition]
    verify_only: bool

    def all(self, code: ErrorCode) -> Codes:
        return dict.fromkeys(self.partitions, code)


class _Asked(NamedTuple):
    question: Question
    answer: asyncio.Future[Codes]

    @property
    def size(self) -> int:
        return len(self.question.partitions)

    @property
    def subject(self) -> str:
        return self.question.transactional_id

    @property
    def matter(self) -> asyncio.Future[Codes]:
        return self.answer

    def is_void(self) -> bool:
        return self.answer.done()  # whoever asked has gone


class RemoteTransactions(Outboxes[_Asked, AddPartitionsToTxnResponse]):
    def __init__(self, peers: Peers) -> None:
        super().__init__(peers, VERSION, AddPartitionsToTxnResponse, PARTITIONS_PER_REQUEST)

    async def ask(self, node_id: int, question: Question) -> Codes:
        """A code for each partition; COORDINATOR_NOT_AVAILABLE if there was no answer."""
        asked = _Asked(question, asyncio.get_running_loop().create_future())
        self.put(node_id, asked)
        return await asked.answer

    def request(self, batch: list[_Asked]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(transactions=[_transaction(each.question) for each in batch])

    def answered(self, node_id: int, batch: list[_Asked], response: AddPartitionsToTxnResponse | None) -> None:
        found = _codes(response) if response is not None else {}
        for question, answer in batch:
            codes = found.get(question.transactional_id, {})
            if not answer.done():
                unknown = question.all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                answer.set_result({where: codes.get(where, code) for where, code in unknown.items()})


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(question.partitions):
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.producer_epoch,
        verify_only=question.verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in by_topic.items()],
    )


def _codes(response: AddPartitionsToTxnResponse) -> dict[str, Codes]:
    if response.error_code:
        return {}
    return {
        each.transactional_id: {
            (topic.name, partition.partition_index): code_of(partition.partition_error_code)
            for topic in each.topic_results
            for partition in topic.results_by_partition
        }
        for each in response.results_by_transaction
    }
