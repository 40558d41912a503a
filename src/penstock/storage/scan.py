"""Reading a segment that nothing vouches for: every batch is checked, and the first bad one ends the walk.

The checksum of a batch does not cover its base offset and leader epoch, which a leader stamps. A batch whose offset or
epoch jumps is therefore only believed once the next batch agrees with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from crc32c import crc32c

from penstock.protocol.record_batch import ATTRIBUTES_AT, HEADER_SIZE, MAGIC_AT
from penstock.storage.disk import File
from penstock.storage.segment import Batch, CorruptSegment, parse

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

    def batches(
        self, expected_offset: int, offset_max: int, leader_epoch: int, known_epochs: Collection[int], *, is_last: bool,
        gaps: bool,
    ) -> Iterator[Batch]:  # fmt: skip
        """Good batches in order. At the end of the last segment nothing can agree with a jump any more: `gaps` says
        whether the log may lack offsets."""
        doubted: Batch | None = None
        believed_at_end = False
        for batch in self._sound_batches():
            if batch.last_offset > offset_max:
                break
            if batch.base_offset < expected_offset or batch.leader_epoch < leader_epoch:
                doubted = None  # it and the one before disagree: if that one was in doubt, neither is believed
                break
            if doubted is not None:
                yield self._passed(doubted)
                doubted = None
            new_epoch = (
                batch.leader_epoch > leader_epoch and bool(known_epochs) and batch.leader_epoch not in known_epochs
            )
            if batch.base_offset > expected_offset or new_epoch:
                doubted, believed_at_end = batch, not is_last or (gaps and not new_epoch)
            else:
                yield self._passed(batch)
            expected_offset, leader_epoch = batch.last_offset + 1, batch.leader_epoch
        if doubted is not None and believed_at_end:
            yield self._passed(doubted)

    def _passed(self, batch: Batch) -> Batch:
        self.position = batch.end
        return batch

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
