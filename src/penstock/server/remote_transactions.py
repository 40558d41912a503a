"""Asks the coordinator of a transaction that is another broker: AddPartitionsToTxn, in the form for brokers.

One request at a time is under way to each broker, and what comes meanwhile goes into the next: an answer waits for a
commit, and producers begin transactions faster than that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple
from weakref import WeakKeyDictionary

from penstock.coordinator.machine import ProducerStamp
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.transactions.transaction import TopicPartition
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


class RemoteTransactions:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._brokers: dict[int, _Outbox] = {}

    async def ask(self, node_id: int, question: Question) -> Codes:
        """A code for each partition; COORDINATOR_NOT_AVAILABLE if there was no answer."""
        outbox = self._brokers.get(node_id)
        if outbox is None:
            outbox = self._brokers[node_id] = _Outbox(self._peers, node_id)
        return await outbox.ask(question)


class _Outbox:
    def __init__(self, peers: Peers, node_id: int) -> None:
        self._peers = peers
        self._node_id = node_id
        self._queue: deque[tuple[Question, asyncio.Future[Codes]]] = deque()
        self._busy = False

    async def ask(self, question: Question) -> Codes:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Codes] = loop.create_future()
        self._queue.append((question, answer))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._send)  # with what else this turn brings
        return await answer

    def _send(self) -> None:
        batch = self._take()
        if not batch:
            self._busy = False
            return
        request = AddPartitionsToTxnRequest(transactions=[_transaction(question) for question, _ in batch.values()])
        self._peers.tell(
            self._node_id, request, VERSION, AddPartitionsToTxnResponse,
            lambda response: self._answered(batch, response),
        )  # fmt: skip

    def _take(self) -> dict[str, tuple[Question, asyncio.Future[Codes]]]:
        """An answer names the transactional id alone: of each one question at a time."""
        batch: dict[str, tuple[Question, asyncio.Future[Codes]]] = {}
        later = []
        count = 0
        while self._queue and (not batch or count + len(self._queue[0][0].partitions) <= PARTITIONS_PER_REQUEST):
            question, answer = self._queue.popleft()
            if answer.done():
                continue  # whoever asked has gone
            if question.transactional_id in batch:
                later.append((question, answer))
            else:
                batch[question.transactional_id] = (question, answer)
                count += len(question.partitions)
        self._queue.extendleft(reversed(later))
        return batch

    def _answered(
        self,
        batch: dict[str, tuple[Question, asyncio.Future[Codes]]],
        response: AddPartitionsToTxnResponse | None,
    ) -> None:
        found = _codes(response) if response is not None else {}
        for transactional_id, (question, answer) in batch.items():
            codes = found.get(transactional_id, {})
            if not answer.done():
                unknown = question.all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                answer.set_result({where: codes.get(where, code) for where, code in unknown.items()})
        if response is None:  # who else has asked had better look for another coordinator
            while self._queue:
                question, answer = self._queue.popleft()
                if not answer.done():
                    answer.set_result(question.all(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._send()


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
            (topic.name, partition.partition_index): _code(partition.partition_error_code)
            for topic in each.topic_results
            for partition in topic.results_by_partition
        }
        for each in response.results_by_transaction
    }


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


_of_peers: WeakKeyDictionary[Peers, RemoteTransactions] = WeakKeyDictionary()


def remote_transactions(peers: Peers) -> RemoteTransactions:
    """The one that asks through these peers: two would not share requests."""
    known = _of_peers.get(peers)
    if known is None:
        known = _of_peers[peers] = RemoteTransactions(peers)
    return known
