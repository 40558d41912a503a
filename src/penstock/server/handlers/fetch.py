"""Fetch: raw batches from the log, at once or when enough has arrived or the wait is over."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.replication.partition import Partition
from penstock.server import replica_fetch
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.fetch_sessions import Key, Session, flatten
from penstock.server.leadership import MOVED, absence, leader_of
from penstock.storage.log import READ_NOW_MAX, FileRange
from penstock.storage.segment import CorruptSegment

READ_COMMITTED = 1
FIRST_VERSION_FROM_FOLLOWERS = 11
READ_NOW_TOTAL_MAX = 1024 * 1024  # what stands behind this much in one answer is not read either
WAIT_MS_MAX = 10 * 60 * 1000
NO_RECORDS = b""  # librdkafka takes null records for a broken response


def handle(context: Context, call: Call[FetchRequest]) -> FetchResponse | Deferred[FetchResponse]:
    if call.request.replica_id >= 0 or call.request.replica_state is not None:
        return replica_fetch.handle(context, call)
    try:
        session, full = context.fetch_sessions.begin(call.request)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(context, call, session, full)
    if fetch.evaluate():
        return fetch.response()
    return fetch.wait()


class _Fetch:
    """One request: what it asks of which partitions, and what was found."""

    __slots__ = (
        "_asked", "_call", "_context", "_deferred", "_endpoints", "_found", "_full", "_seen", "_session", "_timer",
        "_touched", "_wanted",
    )  # fmt: skip

    def __init__(self, context: Context, call: Call[FetchRequest], session: Session | None, full: bool) -> None:
        self._context = context
        self._call = call
        self._session = session
        self._full = full
        self._asked: list[tuple[Key, FetchPartition]] = (
            [(key, p.request) for key, p in session.partitions.items()]
            if session
            else list(dict(flatten(call.request.topics)).items())  # what is asked twice is answered once
        )
        self._found: list[tuple[Key, PartitionData]] = []
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._touched: list[Partition] = []
        self._deferred: Deferred[FetchResponse] = Deferred()
        self._timer: asyncio.TimerHandle | None = None
        self._wanted = 0  # bytes that are missing until the answer is worth sending
        self._seen = 0  # committed bytes when it was last looked

    def evaluate(self) -> bool:
        """Looks at every partition; True if the answer should go out now."""
        request = self._call.request
        room = min(request.max_bytes, self._context.settings.get("fetch.max.bytes"))
        total, urgent = 0, request.max_wait_ms <= 0 or not self._asked
        self._found, self._touched = [], []
        for key, asked in self._asked:
            data, size = self._read(key, asked, room - total, total)
            total += size
            urgent = urgent or data.error_code != 0 or data.diverging_epoch is not None
            urgent = urgent or data.preferred_read_replica >= 0
            self._found.append((key, data))
        self._wanted = request.min_bytes - total
        return urgent or self._wanted <= 0

    def _read(self, key: Key, asked: FetchPartition, room: int, total: int) -> tuple[PartitionData, int]:
        data = PartitionData(
            partition_index=asked.partition, high_watermark=-1, aborted_transactions=None, records=NO_RECORDS
        )
        if self._call.request.isolation_level == READ_COMMITTED:
            data.aborted_transactions = []
        try:
            partition = self._partition(key, asked)
            self._touched.append(partition)
            found = self._read_partition(partition, asked, data, room, total == 0)
            if found is not None and data.aborted_transactions is not None:
                data.aborted_transactions = _aborted(partition, asked.fetch_offset, found.end_offset)
            records: Any = memoryview(b"")
            if found is not None:
                now = found.size <= READ_NOW_MAX and total < READ_NOW_TOTAL_MAX
                records = found.read() if now else found
        except ApiError as error:
            data.error_code = error.code
            if error.code in MOVED:
                self._hint(key, data)
            return data, 0
        except (CorruptSegment, OSError) as error:
            self._context.replicas.unreadable(partition, asked.fetch_offset, error)
            data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return data, 0
        data.records = records
        return data, len(records)

    def _partition(self, key: Key, asked: FetchPartition) -> Partition:
        name, index = self._name(key), key[2]
        if not name and self._call.version >= 13:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._context.partitions.get(name, index)
        if partition is None:
            raise ApiError(absence(self._context, name, index))
        if not partition.leads and self._call.version < FIRST_VERSION_FROM_FOLLOWERS:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        check_leader_epoch(partition, asked.current_leader_epoch)
        return partition

    def _name(self, key: Key) -> str:
        if self._call.version < 13:
            return key[0]
        topic = self._context.image.topics_by_id.get(key[1])
        return topic.name if topic is not None else ""

    def _hint(self, key: Key, data: PartitionData) -> None:
        """Whoever asked the wrong broker learns which is the right one (KIP-951)."""
        leader, epoch, node = leader_of(self._context, self._name(key), key[2], self._call.listener)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if node is not None:
            self._endpoints[leader] = NodeEndpoint(node_id=leader, host=node.host, port=node.port, rack=node.rack)

    def _read_partition(
        self, partition: Partition, asked: FetchPartition, data: PartitionData, room: int, first: bool
    ) -> FileRange | None:
        store, offset = partition.log, asked.fetch_offset
        data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = store.start_offset
        if partition.error is not None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition.deleted else ErrorCode.KAFKA_STORAGE_ERROR)
        if asked.last_fetched_epoch >= 0:
            epoch, end = store.epochs.end_offset(asked.last_fetched_epoch, store.end_offset)
            if epoch < asked.last_fetched_epoch or end < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                return None
        if not store.start_offset <= offset <= store.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        nearest = self._nearest(partition, offset)
        if nearest is not None:
            data.preferred_read_replica = nearest
            return None
        size_max = min(asked.partition_max_bytes, room)
        if size_max <= 0 and not first:
            return None
        try:
            until = partition.committed if data.aborted_transactions is None else partition.stable
            return store.read(offset, size_max, until, at_least_one=first)
        except (CorruptSegment, OSError) as error:
            self._context.replicas.unreadable(partition, offset, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None

    def _nearest(self, partition: Partition, offset: int) -> int | None:
        """A replica in the consumer's rack that has what it asks for, where the leader is in another (KIP-392)."""
        rack, in_sync, brokers = self._call.request.rack_id, partition.in_sync, self._context.image.brokers
        here = brokers.get(self._context.node_id)
        if not rack or in_sync is None or here is None or here.rack == rack:
            return None
        for replica in in_sync.members:
            broker = brokers.get(replica)
            if broker is not None and broker.rack == rack and in_sync.position(replica) >= offset:
                return replica
        return None

    def response(self) -> FetchResponse:
        session, response = self._session, FetchResponse(node_endpoints=list(self._endpoints.values()))
        if session is not None:
            response.session_id = session.session_id
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for key, data in self._found:
            if session is not None and not session.changed(key, data) and not self._full:
                continue
            topic = topics.get(key[:2])
            if topic is None:
                topic = topics[key[:2]] = FetchableTopicResponse(topic=key[0], topic_id=key[1])
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    # ---- waiting

    def wait(self) -> Deferred[FetchResponse]:
        wait_ms = min(self._call.request.max_wait_ms, WAIT_MS_MAX)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._finish)
        self._deferred.cancel = self._leave
        self._seen = self._committed_bytes()
        for partition in self._touched:
            partition.fetchers[self._arrived] = None
        return self._deferred

    def _committed_bytes(self) -> int:
        return sum(partition.committed_bytes for partition in self._touched)

    def _arrived(self) -> None:
        """Reads again only when enough can have come: many partitions may each bring a little."""
        if self._committed_bytes() - self._seen < self._wanted:
            return
        waited = self._touched
        if self.evaluate():
            self._leave(waited)
            self._deferred.resolve(self.response())
        else:
            self._seen = self._committed_bytes()

    def _finish(self) -> None:
        waited = self._touched
        self.evaluate()
        self._leave(waited)
        self._deferred.resolve(self.response())

    def _leave(self, waited: list[Partition] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in waited or self._touched:
            partition.fetchers.pop(self._arrived, None)


def _aborted(partition: Partition, offset: int, end_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in partition.log.aborted_between(offset, end_offset)
    ]


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """A client that knows of another leader epoch must learn of this one first (KIP-320)."""
    if epoch >= 0 and epoch != partition.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
