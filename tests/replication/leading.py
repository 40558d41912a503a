"""A partition with its log on a real disk, whose turns and syncs end when the test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import read_batches, read_records
from penstock.replication.partition import Appended, Partition
from penstock.replication.partition_settings import Flush, PartitionSettings
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogSettings
from penstock.transport.turn import Turn
from tests.fakes import FakeCommitter, FakeLoop
from tests.storage.logs import NOW_MS, batch_at

TOPIC_ID = bytes(range(16))
ROOMY = LogSettings(segment_bytes=1 << 20)


def batch(count: int = 1, **options: Any) -> memoryview:
    """As it comes from a producer: offsets from 0, in memory that may be written to."""
    return memoryview(bytearray(batch_at(0, count, epoch=-1, **options)))


class Led:
    def __init__(
        self, folder: Path, *, disk: Disk | None = None, log: LogSettings = ROOMY, epoch: int = 0, **settings: Any
    ) -> None:
        self.turn = Turn(cast(Any, FakeLoop()))
        self.committer = FakeCommitter()
        self.disk = disk or Disk()
        self.partition = Partition(
            "t", TOPIC_ID, 0, Log(self.disk, folder / "t-0", log, [], 0, 0), PartitionSettings(**settings), epoch,
            self.turn, cast(Any, self.committer),
        )  # fmt: skip

    def append(self, data: memoryview | None = None, now_ms: int = NOW_MS) -> Appended:
        return self.partition.append(batch() if data is None else data, now_ms)

    def refused(self, data: memoryview, now_ms: int = NOW_MS) -> ErrorCode:
        """The error that an append ends in; it must leave nothing behind."""
        before = self.partition.log.next_offset
        try:
            self.append(data, now_ms)
        except ApiError as error:
            assert self.partition.log.next_offset == before
            return error.code
        raise AssertionError("it was accepted")

    def end_turn(self) -> None:
        self.turn.flush()

    def write(self, *batches: memoryview) -> list[Appended]:
        """In one turn."""
        appended = [self.append(each) for each in batches or (batch(),)]
        self.end_turn()
        return appended

    def visible(self) -> list[tuple[int, bytes | None]]:
        """What a consumer can read: offsets and values."""
        partition = self.partition
        found: list[tuple[int, bytes | None]] = []
        offset = partition.log.start_offset
        while (piece := partition.log.read(offset, 1 << 20, partition.committed)) is not None:
            for header, data in read_batches(piece.read()):
                found += [(r.offset, r.value) for r in read_records(data, 1 << 20, check_crc=True)]
                offset = header.last_offset + 1
        return found

    def await_all(self, *appended: Appended) -> list[str]:
        """Waits for each of them as acks=all does; says, in the order of the answers, what they were."""
        answers: list[str] = []
        for base_offset, next_offset, _ in appended:

            def answer(base_offset: int = base_offset, next_offset: int = next_offset) -> None:
                stored = self.partition.high_watermark >= next_offset
                answers.append(f"{base_offset} {'stored' if stored else 'lost'}")

            self.partition.when_committed(next_offset, answer)
        return answers


OS = {"flush": Flush.OS}
