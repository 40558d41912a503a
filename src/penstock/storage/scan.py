"""Reading a segment that nothing vouches for: every batch is checked, and the first bad one ends the walk.

The checksum of a batch does not cover its base offset and leader epoch, which a leader stamps. A batch that leaves
offsets out is therefore only believed once the next one agrees with it. An epoch that never began in this log is put
right from the record of those that did.
"""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from penstock.protocol.record_batch import ATTRIBUTES_AT, HEADER_SIZE, MAGIC_AT
from penstock.storage.disk import File
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.segment import Batch, CorruptSegment, Segment, parse

CHUNK = 1024 * 1024
SEARCH_BYTES_MAX = 64 * 1024 * 1024
OFFSETS_AHEAD_MAX = 2**32


class Scan:
    """A walk over the batches of a file; afterwards `position` is behind the last good one."""

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.bytes_read = 0
        self.torn = True  # what the walk ended at is short, as a process that is killed leaves it
        self.wrong_epochs: list[Batch] = []  # as they should be

    def batches(
        self, expected_offset: int, offset_max: int, leader_epoch: int, epochs: LeaderEpochs, *, gap_at_end: bool
    ) -> Iterator[Batch]:
        """Good batches in order. `gap_at_end` says whether to believe a last batch that leaves offsets out before it,
        which nothing behind it can agree with any more."""
        doubted: Batch | None = None
        for batch in self._sound_batches():
            if batch.leader_epoch != leader_epoch:
                batch = self._with_right_epoch(batch, leader_epoch, epochs)
            if batch.last_offset > offset_max:
                break
            if batch.base_offset < expected_offset or batch.leader_epoch < leader_epoch:
                doubted = None  # it and the one before disagree: if that one was in doubt, neither is believed
                break
            if doubted is not None:
                self.position = doubted.end
                yield doubted
                doubted = None
            if batch.base_offset > expected_offset:
                doubted = batch
            else:
                self.position = batch.end
                yield batch
            expected_offset, leader_epoch = batch.last_offset + 1, batch.leader_epoch
        if doubted is not None and gap_at_end:
            self.position = doubted.end
            yield doubted

    def _with_right_epoch(self, batch: Batch, leader_epoch: int, epochs: LeaderEpochs) -> Batch:
        """An epoch is recorded before its first batch is written, so one that is not on record can't be right."""
        if batch.leader_epoch in epochs.epochs:
            return batch
        recorded = epochs.epoch_of(batch.base_offset)
        if recorded < max(leader_epoch, 0):
            return batch
        self.wrong_epochs.append(batch._replace(leader_epoch=recorded))
        return self.wrong_epochs[-1]

    def _sound_batches(self) -> Iterator[Batch]:
        """Batches that are complete and match their checksum."""
        position, size = self.position, self.size
        chunk, chunk_at = memoryview(b""), position
        while size - position >= HEADER_SIZE:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = memoryview(self._read(position)), position, 0
            try:
                batch = parse(chunk, at, position)
            except CorruptSegment:
                self.torn = False
                return
            if batch.end > size:
                return
            checksum = crc32c(chunk[at + ATTRIBUTES_AT : at + batch.size])
            while chunk_at + len(chunk) < batch.end:  # it goes on in the next chunk
                chunk_at += len(chunk)
                chunk = memoryview(self._read(chunk_at))
                if not chunk:
                    return
                checksum = crc32c(chunk[: batch.end - chunk_at], checksum)
            if checksum != batch.crc:
                self.torn = False
                return
            yield batch
            position = batch.end

    def _read(self, position: int) -> bytes:
        data = self.file.read(min(CHUNK, self.size - position), position)
        self.bytes_read += len(data)
        return data

    def has_batch_behind(self, expected_offset: int) -> bool:
        """Whether a sound batch stands anywhere behind the position: then this was no torn end, but damage.

        Looks for the magic byte, which a search in C finds at once where a crash left zeros.
        """
        position, stop = self.position + 1, min(self.size, self.position + SEARCH_BYTES_MAX)
        while stop - position >= HEADER_SIZE:
            data = self._read(position)
            at = data.find(b"\x02", MAGIC_AT)
            while at >= 0 and at - MAGIC_AT + HEADER_SIZE <= len(data):
                if self._is_batch(data, at - MAGIC_AT, position + at - MAGIC_AT, expected_offset):
                    return True
                at = data.find(b"\x02", at + 1)
            position += max(len(data) - HEADER_SIZE + 1, 1)
        return stop < self.size  # more than a crash leaves behind

    def _is_batch(self, data: bytes, at: int, position: int, expected_offset: int) -> bool:
        if not 0 <= int.from_bytes(data[at : at + 8], "big") - expected_offset < OFFSETS_AHEAD_MAX:
            return False
        try:
            batch = parse(data, at, position)
        except CorruptSegment:
            return False
        if batch.end > self.size:
            return False
        inner = Scan(self.file, position, batch.end)
        found = next(inner._sound_batches(), None)
        self.bytes_read += inner.bytes_read
        return found is not None


def check(segment: Segment, position: int, end: int) -> None:
    """Before bytes are served that this process did not write: every batch must match its checksum.

    Each is checked once, as long as readers go through the segment in order.
    """
    end = min(end, segment.trusted_from)
    if not segment.checked_from <= position <= segment.checked_to:
        segment.checked_from = segment.checked_to = position
    start = segment.checked_to
    if end <= start:
        return
    sound = start
    for batch in Scan(segment.file, start, end)._sound_batches():
        sound = batch.end
    if sound != end:
        raise CorruptSegment(f"{segment.path('log')}: the batch at {sound} does not match its checksum")
    segment.checked_to = end
