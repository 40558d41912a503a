"""What a log remembers of each producer, so that a batch sent twice is stored once and a gap is refused.

For each producer id: its epoch, its newest five batches (KIP-98: as many as a client may have in flight) and the first
offset of an open transaction. A snapshot stands for the log up to an offset; replaying the batch headers and the
markers behind it gives the state again.

Readers of committed data go no further than the first transaction that is undecided, or whose decision is not committed
itself yet.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from penstock.storage.aborted import AbortedTransaction, Marker

if TYPE_CHECKING:
    from penstock.storage.segment import Batch

BATCHES_KEPT: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
NO_PRODUCER: Final = -1

_VERSION: Final = 1
_HEAD = struct.Struct(">HIQ")  # version, CRC32C of what follows it, number of producers
_CHECKED_FROM: Final = 6
_PRODUCER = struct.Struct(">qhqqiB")
_BATCH = struct.Struct(">iiqqq")


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class EndedTransaction(NamedTuple):
    """Decided by the marker at `last_offset`, which may still be lost."""

    producer_id: int
    first_offset: int
    last_offset: int


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: deque[ProducedBatch] = deque(maxlen=BATCHES_KEPT)
        self.last_timestamp_ms = -1
        self.current_transaction_first_offset = -1
        self.coordinator_epoch = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


def _old_epoch(entry: ProducerEntry, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {entry.producer_id} is {epoch}, which is smaller than the last seen epoch "
        f"{entry.producer_epoch}",
    )


def _out_of_order(entry: ProducerEntry, sequence: int, *, begins: bool) -> ApiError:
    """The batch begins a transaction, or not."""
    last = entry.last_sequence
    problem = (
        f"for producer {entry.producer_id}: {sequence} (incoming seq. number), {last} (current end sequence number)"
    )
    if begins and (last - sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2:
        # Clients begin a new epoch when they are told this; a sequence out of order ends librdkafka's for good.
        return ApiError(ErrorCode.UNKNOWN_PRODUCER_ID, f"Sequence number of a transaction that has ended {problem}")
    return ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"Out of order sequence number {problem}")


def sequence_after(sequence: int, count: int) -> int:
    """Sequences wrap to 0 behind 2^31-1."""
    return (sequence + count) & SEQUENCE_MAX


class Producers:
    __slots__ = ("_ended", "_open", "_replayed_to", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # first offsets of open transactions by producer, rising
        self._ended: deque[EndedTransaction] = deque()  # whose markers are not committed yet, oldest first
        self._replayed_to = 0

    # ---- transactions

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction here, in this epoch."""
        return producer_id in self._open and self.entries[producer_id].producer_epoch == epoch

    def has_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    @property
    def any_open(self) -> bool:
        return len(self._open) > 0

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.producer_epoch:
            raise _old_epoch(entry, epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch {coordinator_epoch} for producer {producer_id}: {entry.coordinator_epoch} "
                f"is known",
            )

    def end_transaction(
        self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp_ms: int
    ) -> AbortedTransaction | None:
        """The marker stands at the offset. A transaction that was aborted by it, if there was any."""
        entry = self._entry(producer_id, epoch)
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        entry.last_timestamp_ms = timestamp_ms
        first_offset = self._open.pop(producer_id, -1)
        entry.current_transaction_first_offset = -1
        if first_offset < 0:
            return None
        self._ended.append(EndedTransaction(producer_id, first_offset, offset))
        if marker.committed:
            return None
        stable = next(iter(self._open.values()), offset)
        return AbortedTransaction(producer_id, first_offset, offset, min(stable, offset))

    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is undecided, or whose decision is not committed."""
        first = next(iter(self._open.values()), None)
        if self._ended:
            ended = min(each.first_offset for each in self._ended)
            return ended if first is None or ended < first else first
        return first

    def committed_to(self, high_watermark: int) -> bool:
        """Forgets decisions that are committed now; whether there were any."""
        ended = self._ended
        if not ended or ended[0].last_offset >= high_watermark:
            return False
        while ended and ended[0].last_offset < high_watermark:
            ended.popleft()
        return True

    def _reopen_from(self, offset: int) -> None:
        """Markers at the offset and behind it are gone, and so are transactions that began there."""
        ended = self._ended
        while ended and ended[-1].last_offset >= offset:
            each = ended.pop()
            self._open[each.producer_id] = self.entries[each.producer_id].current_transaction_first_offset = (
                each.first_offset
            )
        for producer_id, first_offset in list(self._open.items()):
            if first_offset >= offset:
                del self._open[producer_id]
                self.entries[producer_id].current_transaction_first_offset = -1
        self._sort_open()

    def _sort_open(self) -> None:
        self._open = dict(sorted(self._open.items(), key=lambda each: each[1]))

    # ---- batches

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, count: int, transactional: bool = False
    ) -> ProducedBatch | None:
        """None if the batch may be appended; the batch that was stored before if this is a repetition. Coordinators
        repeat nothing, and give no sequences.

        A repetition is of the transaction that is open: whoever ended one has given up on what was not answered in it,
        and a sequence that comes again behind the marker stands for other records."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None  # state expired or never seen: Kafka takes any sequence then
        if epoch < entry.producer_epoch:
            raise _old_epoch(entry, epoch)
        if first_sequence < 0:
            return None
        if epoch != entry.producer_epoch:
            if first_sequence != 0:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {producer_id}: {first_sequence}",
                )
            return None
        if first_sequence == (entry.last_sequence + 1) & SEQUENCE_MAX:
            return None
        last_sequence = sequence_after(first_sequence, count - 1)
        transaction_from = entry.current_transaction_first_offset
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                if not transactional or 0 <= transaction_from <= batch.base_offset:
                    return batch
                break
        raise _out_of_order(entry, first_sequence, begins=transactional and transaction_from < 0)

    def _entry(self, producer_id: int, epoch: int) -> ProducerEntry:
        """Known from now on by this epoch."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.producer_epoch != epoch:
            entry.producer_epoch = epoch
            entry.batches.clear()
        return entry

    def add(
        self, producer_id: int, epoch: int, first_sequence: int, base_offset: int, last_offset: int, timestamp_ms: int,
        transactional: bool = False,
    ) -> None:  # fmt: skip
        entry = self._entry(producer_id, epoch)
        if transactional and entry.current_transaction_first_offset < 0:
            entry.current_transaction_first_offset = self._open[producer_id] = base_offset
        if first_sequence < 0:  # a coordinator's, which is never sent again
            entry.last_timestamp_ms = timestamp_ms
            return
        last_sequence = sequence_after(first_sequence, last_offset - base_offset)
        entry.batches.append(ProducedBatch(first_sequence, last_sequence, base_offset, last_offset, timestamp_ms))
        entry.last_timestamp_ms = timestamp_ms

    def replay(
        self, batches: Iterable[Batch], offset_min: int, read_marker: Callable[[Batch], Marker | None]
    ) -> list[AbortedTransaction]:
        """From batches that are in the log, in order; what was replayed already does not count again. The transactions
        that they abort."""
        aborted = []
        for batch in batches:
            if batch.producer_id < 0 or batch.base_offset < max(offset_min, self._replayed_to):
                continue
            self._replayed_to = batch.last_offset + 1
            if batch.attributes & CONTROL_BIT:
                marker = read_marker(batch)
                if marker is not None and (
                    ended := self.end_transaction(
                        batch.producer_id, batch.producer_epoch, marker, batch.last_offset, batch.max_timestamp
                    )
                ):
                    aborted.append(ended)
            elif batch.base_sequence >= 0 or batch.attributes & TRANSACTIONAL_BIT:
                self.add(
                    batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.base_offset,
                    batch.last_offset, batch.max_timestamp, bool(batch.attributes & TRANSACTIONAL_BIT),
                )  # fmt: skip
        return aborted

    def cut_end(self, offset: int) -> None:
        """Takes back what was added for the newest batches, at the offset and behind it: they could not be written.

        Older batches that these pushed out are not needed again: a producer with five in flight has had their answers.
        What is needed is where each producer must go on, even if nothing else of it is left.
        """
        self._reopen_from(offset)
        for entry in self.entries.values():
            batches, first_sequence = entry.batches, 0
            while batches and batches[-1].base_offset >= offset:
                first_sequence = batches.pop().first_sequence
            if batches:
                entry.last_timestamp_ms = batches[-1].timestamp_ms
            elif first_sequence > 0:
                batches.append(ProducedBatch(first_sequence - 1, first_sequence - 1, -1, -1, entry.last_timestamp_ms))

    def active(self) -> Iterable[ProducerEntry]:
        return self.entries.values()

    def expire(self, older_than_ms: int) -> None:
        """Forgets producers that wrote nothing since then, unless a transaction of theirs is open."""
        gone = [
            e.producer_id
            for e in self.entries.values()
            if e.last_timestamp_ms < older_than_ms and e.current_transaction_first_offset < 0
        ]
        for producer_id in gone:
            del self.entries[producer_id]

    def dump(self) -> bytes:
        body = bytearray(len(self.entries).to_bytes(8, "big"))
        for e in self.entries.values():
            body += _PRODUCER.pack(
                e.producer_id, e.producer_epoch, e.last_timestamp_ms, e.current_transaction_first_offset,
                e.coordinator_epoch, len(e.batches),
            )  # fmt: skip
            for batch in e.batches:
                body += _BATCH.pack(*batch)
        return _HEAD.pack(_VERSION, crc32c(body), 0)[:_CHECKED_FROM] + body


def load(data: bytes) -> Producers | None:
    """None if the snapshot can't be trusted: the state is then rebuilt from the log."""
    if len(data) < _HEAD.size:
        return None
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum:
        return None
    producers = Producers()
    for entry in _entries(data, count):
        producers.entries[entry.producer_id] = entry
        if entry.current_transaction_first_offset >= 0:
            producers._open[entry.producer_id] = entry.current_transaction_first_offset
    producers._sort_open()
    return producers


def _entries(data: bytes, count: int) -> Iterator[ProducerEntry]:
    position = _HEAD.size
    for _ in range(count):
        producer_id, epoch, last_timestamp, first_offset, coordinator_epoch, batches = _PRODUCER.unpack_from(
            data, position
        )
        position += _PRODUCER.size
        entry = ProducerEntry(producer_id, epoch)
        entry.last_timestamp_ms = last_timestamp
        entry.current_transaction_first_offset = first_offset
        entry.coordinator_epoch = coordinator_epoch
        for _ in range(batches):
            entry.batches.append(ProducedBatch(*_BATCH.unpack_from(data, position)))
            position += _BATCH.size
        yield entry
