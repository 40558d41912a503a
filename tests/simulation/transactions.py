"""A producer with transactions under simulation, as patient as a good client, and what came of each transaction.

Of version 1 (it adds partitions before it writes to them) or 2 (KIP-890: it just writes, and every end brings another
epoch). What it may try again, it does. An error that would end a real client is raised: whoever has done nothing wrong
must never see one, whatever became of the coordinator meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.record_batch import Record, build_batch, read_batches, read_records
from penstock.protocol.schema import Message
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import AGAIN_S, ANSWER_S_MAX, FETCH_BYTES, PRODUCE_TIMEOUT_MS, Client, GaveUp

CLASSIC, BUMPING = 1, 2
TRANSACTION = 1  # a type of coordinator
TIMEOUT_MS = 600_000  # no transaction takes so long
PATIENCE_S = 120.0
READ_COMMITTED = 1

_PRODUCE_VERSION = {CLASSIC: 11, BUMPING: 12}
_END_VERSION = {CLASSIC: 3, BUMPING: 5}
_TWO_PHASE_INIT = 6

COORDINATOR_AWAY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
LEADER_AWAY = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
M = TypeVar("M", bound=Message)


class Refused(AssertionError):
    """An error that a client does not try again on."""


class TransactionalWriter:
    def __init__(self, client: Client, cluster: SimulatedBrokers, topic: str, name: str, version: int) -> None:
        self._client = client
        self._cluster = cluster
        self._topic = topic
        self.name = name
        self._version = version
        self._coordinator: int | None = None
        self.stamp = (-1, -1)
        self._sequence = 0
        self._number = 0
        self._open: list[str] = []
        self.committed: list[str] = []
        self.aborted: list[str] = []

    async def begin(self, *, two_phase: bool = False, timeout_ms: int = TIMEOUT_MS) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, enable_2pc=two_phase
        )
        found = await self._ask_coordinator(request, _TWO_PHASE_INIT if two_phase else 4, InitProducerIdResponse)
        self._become((found.producer_id, found.producer_epoch))

    async def keep(self) -> tuple[int, int]:
        """As another producer of the same id, which will end what is open (KIP-939); who has written that."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS, enable_2pc=True, keep_prepared_txn=True
        )
        found = await self._ask_coordinator(request, _TWO_PHASE_INIT, InitProducerIdResponse)
        self._become((found.producer_id, found.producer_epoch))
        return found.ongoing_txn_producer_id, found.ongoing_txn_producer_epoch

    async def transact(self, size: int, *, commit: bool) -> None:
        await self.open(size)
        await self.end(commit=commit)

    async def open(self, size: int) -> None:
        """Begins one, and writes so many values."""
        values = [f"{self.name}-{self._number + slot}" for slot in range(size)]
        self._number += size
        if self._version == CLASSIC:
            await self._add()
        for value in values:
            await self._write(value)
        self._open = values

    async def write_on(self, chance: float = 0.3) -> None:
        """Until it is cancelled, with some transactions that are aborted."""
        await self.begin()
        while True:
            random = self._cluster.random
            await self.transact(random.randrange(1, 4), commit=random.random() >= chance)
            await asyncio.sleep(random.uniform(0, 0.1))

    async def prepare_on(self, chance: float = 0.3) -> None:
        """Likewise in two phases: most of what is prepared is ended by who comes after."""
        await self.begin(two_phase=True)
        while True:
            random = self._cluster.random
            await self.open(random.randrange(1, 4))
            prepared = self.stamp
            for _ in range(random.randrange(3)):
                await asyncio.sleep(random.uniform(0, 0.5))
                assert await self.keep() == prepared, "it was prepared, and is not there"
            await self.end(commit=random.random() >= chance)

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.stamp[0], producer_epoch=self.stamp[1], committed=commit
        )
        found = await self._ask_coordinator(request, _END_VERSION[self._version], EndTxnResponse)
        if self._version == BUMPING:
            self._become((found.producer_id, found.producer_epoch))
        ended, self._open = self._open, []
        (self.committed if commit else self.aborted).extend(ended)

    def _become(self, stamp: tuple[int, int]) -> None:
        if stamp != self.stamp:
            self.stamp, self._sequence = stamp, 0

    async def _add(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.stamp[0],
            v3_and_below_producer_epoch=self.stamp[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        await self._ask_coordinator(request, 3, AddPartitionsToTxnResponse)

    # ---- the coordinator

    def believe(self, coordinator: int) -> None:
        """It was told so, by someone who knew no better."""
        self._coordinator = coordinator

    def forget_coordinator(self) -> None:
        self._coordinator = None

    async def _ask_coordinator(self, request: Message, version: int, response: type[M]) -> M:
        deadline = self._cluster.loop.time() + PATIENCE_S
        while self._cluster.loop.time() < deadline:
            coordinator = await self._find()
            found = await self._client.ask(coordinator, request, version, response) if coordinator else None
            code = ErrorCode(_code(found)) if found is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
            if found is not None and not code:
                return found
            what = f"{self.name}: {type(request).__name__} of {self.stamp} at {coordinator}: {code.name}"
            self._client.note(what)
            if code in COORDINATOR_AWAY:
                self.forget_coordinator()
            elif code != ErrorCode.CONCURRENT_TRANSACTIONS:
                raise Refused(what)
            await asyncio.sleep(AGAIN_S)
        raise GaveUp(f"{self.name}: nobody answers {type(request).__name__}")

    async def _find(self) -> int | None:
        """As any broker says who says anything."""
        if self._coordinator is None:
            number = self._cluster.random.choice(list(self._cluster.brokers))
            request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.name])
            found = await self._client.ask(number, request, 4, FindCoordinatorResponse, timeout_s=0.5)
            if found is not None and not found.coordinators[0].error_code:
                self._coordinator = found.coordinators[0].node_id
        return self._coordinator

    # ---- the partition

    async def _write(self, value: str) -> None:
        deadline = self._cluster.loop.time() + PATIENCE_S
        while self._cluster.loop.time() < deadline:
            leader = await self._client.leader(self._topic, deadline)
            code = await self._produce(leader, value)
            if not code:
                self._sequence += 1
                return
            what = f"{self.name}: {value} of {self.stamp} to {leader}: {code.name}"
            self._client.note(what)
            if code not in LEADER_AWAY:
                raise Refused(what)
            self._client.forget_leader(self._topic)
            await asyncio.sleep(AGAIN_S)
        raise GaveUp(f"{value} was not acknowledged")

    async def _produce(self, leader: int, value: str) -> ErrorCode:
        now_ms = self._cluster.loop.wall_ns() // 1_000_000
        producer_id, epoch = self.stamp
        batch = build_batch(
            [Record(0, now_ms, None, value.encode())], producer_id=producer_id, producer_epoch=epoch,
            base_sequence=self._sequence, transactional=True,
        )  # fmt: skip
        data = [PartitionProduceData(index=0, records=memoryview(bytearray(batch)))]
        request = ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )  # fmt: skip
        version = _PRODUCE_VERSION[self._version]
        found = await self._client.ask(leader, request, version, ProduceResponse, ANSWER_S_MAX)
        if found is None:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode(found.responses[0].partition_responses[0].error_code)


def _code(response: Message) -> int:
    if isinstance(response, AddPartitionsToTxnResponse):
        return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert isinstance(response, (InitProducerIdResponse, EndTxnResponse))
    return response.error_code


async def read_committed(client: Client, cluster: SimulatedBrokers, topic: str) -> list[str]:
    """All that a reader of committed transactions sees, when nothing is open any more."""
    deadline = cluster.loop.time() + PATIENCE_S
    values: list[str] = []
    offset = 0
    while cluster.loop.time() < deadline:
        leader = await client.leader(topic, deadline)
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        topics = [FetchTopic(topic_id=client._ids[topic], partitions=[partition])]
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=READ_COMMITTED, topics=topics
        )
        found = await client.ask(leader, request, 16, FetchResponse)
        data = found.responses[0].partitions[0] if found is not None and found.responses else None
        if data is None or data.error_code:
            client.forget_leader(topic)
            await asyncio.sleep(AGAIN_S)
            continue
        aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions or []}
        open_aborted: set[int] = set()
        for header, batch in read_batches(data.records):
            open_aborted |= {each for each, first in aborted if first <= header.last_offset}
            if header.is_control:
                open_aborted.discard(header.producer_id)
                aborted = {each for each in aborted if each[0] != header.producer_id or each[1] > header.last_offset}
            elif header.producer_id not in open_aborted:
                for record in read_records(batch, 1 << 20, check_crc=True, compacted=True):
                    assert record.value is not None
                    values.append(record.value.decode())
            offset = header.last_offset + 1
        if data.last_stable_offset == data.high_watermark and offset >= data.high_watermark:
            return values
    raise GaveUp(f"{topic} can't be read to its end: a transaction is open still")
