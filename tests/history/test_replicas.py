from __future__ import annotations

from pathlib import Path

import pytest

from penstock.replication.partition import TOPIC_ID_FILE
from penstock.storage.checkpoint import CLEANER_OFFSET
from penstock.storage.log import Log, LogSettings
from tests.history.replicas import replicas_identical
from tests.storage.logs import append, batch_at, fill, new_log

LARGE = LogSettings(segment_bytes=1 << 20)
SMALL = LogSettings(segment_bytes=500)


class Replicas:
    """The same batches in the folders of three brokers, whose segments begin at different places."""

    def __init__(self, root: Path, batches: int = 20) -> None:
        self.folders = [root / f"broker-{number}" for number in (1, 2, 3)]
        self.logs = [self._log(folder, SMALL if slot else LARGE) for slot, folder in enumerate(self.folders)]
        for log in self.logs:
            fill(log, batches)

    def _log(self, folder: Path, settings: LogSettings) -> Log:
        directory = folder / "topic-0"
        directory.mkdir(parents=True)
        (directory / TOPIC_ID_FILE).write_bytes(b"id")
        return new_log(directory, settings)

    def segments(self, slot: int) -> list[Path]:
        return sorted((self.folders[slot] / "topic-0").glob("*.log"))


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path)


def test_the_same_batches_are_identical_wherever_segments_begin(replicas: Replicas) -> None:
    assert len(replicas.segments(0)) < len(replicas.segments(1))
    comparison = replicas_identical(replicas.folders)
    assert comparison.is_identical, str(comparison)
    assert (comparison.partitions, comparison.batches) == (1, 40)
    assert comparison.behind == {}


def test_a_replica_may_be_behind(replicas: Replicas) -> None:
    fill(replicas.logs[1], 2)
    comparison = replicas_identical(replicas.folders)
    assert comparison.is_identical
    assert sorted(comparison.behind.values()) == [4, 4]


def test_a_replica_may_have_deleted_what_is_old(replicas: Replicas) -> None:
    for old in replicas.segments(1)[:3]:
        old.unlink()
    comparison = replicas_identical(replicas.folders)
    assert comparison.is_identical
    assert 0 < comparison.batches < 40


def test_a_flipped_bit_is_found(replicas: Replicas) -> None:
    path = replicas.segments(2)[1]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    comparison = replicas_identical(replicas.folders)
    assert len(comparison.differences) == 1
    assert f"differ at offset {int(path.stem)}" in comparison.differences[0]


def test_another_epoch_at_the_same_offset_is_a_difference(replicas: Replicas) -> None:
    for slot, log in enumerate(replicas.logs):
        append(log, batch_at(log.next_offset, 2, epoch=1 if slot else 2))
    comparison = replicas_identical(replicas.folders)
    assert comparison.differences
    assert "differ at offset 40: byte 15 of the batch" in comparison.differences[0]


def test_batches_of_other_sizes_are_a_difference(replicas: Replicas) -> None:
    for slot, log in enumerate(replicas.logs):
        append(log, *(batch_at(log.next_offset + n, 1) for n in range(2)) if slot else [batch_at(log.next_offset, 2)])
    assert any("40 to 41 against 40 to 40" in each or "40 to 40 against 40 to 41" in each
               for each in replicas_identical(replicas.folders).differences)  # fmt: skip


def test_what_is_no_batch_is_a_difference(replicas: Replicas) -> None:
    path = replicas.segments(0)[0]
    path.write_bytes(path.read_bytes() + b"garbage")
    assert len(replicas_identical(replicas.folders).differences) >= 1


def test_topics_of_one_name_are_compared_only_if_they_are_one(replicas: Replicas) -> None:
    (replicas.folders[0] / "topic-0" / TOPIC_ID_FILE).write_bytes(b"other")
    append(replicas.logs[0], batch_at(40, 1, epoch=9))
    comparison = replicas_identical(replicas.folders)
    assert (comparison.partitions, comparison.differences) == (1, [])


def test_what_was_compacted_is_left_out(replicas: Replicas) -> None:
    (replicas.folders[0] / "topic-0" / CLEANER_OFFSET).write_bytes(b"0")
    assert replicas_identical(replicas.folders).partitions == 0
