"""Which partitions there are, when their files are touched, and what a restart makes of them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.protocol.compression import Compression
from penstock.replication import leaving
from penstock.replication.partition_settings import Flush
from penstock.replication.partitions import Partitions
from penstock.replication.unsynced_topics import EVERY_TOPIC, UnsyncedTopics
from penstock.storage import checkpoint
from tests.fakes import until
from tests.replication.holding import Holding
from tests.storage.disks import CountingDisk, FailingDisk, ForgetfulDisk
from tests.storage.logs import NOW_MS, batch_at


def folders(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir()}


# ---- opening


def test_a_partition_is_opened_when_it_is_first_asked_for_and_then_is_the_same(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", 3)
    assert list(held.partitions.opened()) == []
    partition = held.get("t", 1)
    assert list(held.partitions.opened()) == [partition]
    assert held.get("t", 1) is partition
    assert folders(tmp_path) == set(), "a folder is made by the first record"


@pytest.mark.parametrize(("topic", "index"), [("t", 3), ("t", -1), ("other", 0), ("", 0), ("../t", 0)])
def test_what_is_not_there_is_not_opened(tmp_path: Path, topic: str, index: int) -> None:
    held = Holding(tmp_path)
    held.create("t", 3)
    assert held.partitions.get(topic, index) is None


def test_partitions_of_a_topic_are_logs_of_their_own(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", 2)
    assert [held.write("t", 0), held.write("t", 1), held.write("t", 0)] == [0, 0, 1]
    assert folders(tmp_path) == {"t-0", "t-1"}
    assert held.partitions.sizes() == {("t", 0): held.get("t", 0).log.size, ("t", 1): held.get("t", 1).log.size}


# ---- settings


def test_settings_of_the_topic_and_of_the_broker_reach_the_partition(tmp_path: Path) -> None:
    held = Holding(tmp_path, message_max_bytes="5000", log_roll_ms="77")
    held.create("t", compression_type="zstd", compression_zstd_level="7", cleanup_policy="compact", flush="os")
    partition = held.get("t")
    assert partition.settings.max_message_bytes == 5000
    assert partition.settings.compression == Compression.ZSTD
    assert partition.settings.compression_level == 7
    assert partition.settings.require_keys
    assert partition.commits_on_write
    assert partition.log.settings.compact
    assert not partition.log.settings.delete
    assert partition.log.settings.segment_ms == 77


@pytest.mark.parametrize(
    ("config", "flush", "flush_ms"),
    [
        ({}, Flush.COMMIT, 1000),
        ({"flush": "os"}, Flush.OS, 1000),
        ({"flush": "interval"}, Flush.INTERVAL, 1000),
        ({"flush": "interval", "flush_ms": "50"}, Flush.INTERVAL, 50),
        ({"flush": "os", "flush_ms": "50"}, Flush.INTERVAL, 50),
        ({"flush": "os", "flush_messages": "1"}, Flush.INTERVAL, 1000),
        ({"flush": "commit", "flush_messages": "1"}, Flush.COMMIT, 1000),
    ],
)
def test_kafkas_flush_settings_count_where_the_operating_system_would_decide(
    tmp_path: Path, config: dict[str, str], flush: Flush, flush_ms: int
) -> None:
    held = Holding(tmp_path)
    held.create("t", **config)
    assert (held.get("t").settings.flush, held.get("t").settings.flush_ms) == (flush, flush_ms)


def test_a_change_of_the_topic_reaches_open_partitions(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    partition = held.get("t")
    held.change("t", max_message_bytes="77", retention_ms="5", flush="os")
    assert held.get("t") is partition
    assert (partition.settings.max_message_bytes, partition.log.settings.retention_ms) == (77, 5)
    assert partition.commits_on_write


def test_a_change_of_the_brokers_defaults_reaches_open_partitions(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.create("own", max_message_bytes="99")
    partition, own = held.get("t"), held.get("own")
    held.settings.set_dynamic(cluster={"message.max.bytes": "77"}, broker={})
    assert (partition.settings.max_message_bytes, own.settings.max_message_bytes) == (77, 99)


def test_a_change_before_the_first_use_counts_whatever_the_last_stop_was(tmp_path: Path) -> None:
    for cleanly in (True, False):
        held = Holding(tmp_path / str(cleanly))
        held.folder.mkdir()
        held.create("t")
        held.write("t")
        held.start_again(cleanly=cleanly)
        held.change("t", retention_ms="5")
        assert held.get("t").log.settings.retention_ms == 5


# ---- deleting


async def test_a_deleted_topic_is_gone_at_once_and_its_files_soon(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", 2, file_delete_delay_ms="20")
    held.write("t", 0)
    partition = held.get("t", 0)
    topic = held.delete("t")
    assert partition.deleted
    assert held.partitions.get("t", 0) is None
    assert folders(tmp_path) == {f"{topic.topic_id.hex()}-0.deleted"}
    await until(lambda: not folders(tmp_path))


@pytest.mark.parametrize(
    ("setting", "value", "stay"), [("SPARE_SHARE", 0, True), ("SPARE_SHARE", 1 << 40, False), ("SPARE_BYTES", 0, False)]
)
async def test_files_of_a_deleted_topic_stay_longer_only_if_they_are_few_and_the_disk_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: int, stay: bool
) -> None:
    monkeypatch.setattr(leaving, "SPARE_SHARE", 0)
    monkeypatch.setattr(leaving, setting, value)
    monkeypatch.setattr(leaving, "SPARE_DELAYS", 21)
    held = Holding(tmp_path)
    held.create("t", file_delete_delay_ms="20")
    held.write("t", 0)
    held.delete("t")
    await asyncio.sleep(0.2)
    assert bool(folders(tmp_path)) is stay
    await until(lambda: not folders(tmp_path))


async def test_a_reader_may_finish_with_what_it_holds_of_a_deleted_topic(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", file_delete_delay_ms="0")
    held.write("t", count=3)
    partition = held.get("t")
    found = partition.log.read(0, 1000, partition.committed)
    held.delete("t")
    await until(lambda: not folders(tmp_path))
    assert found is not None
    assert len(found.read()) == found.size > 0


async def test_what_is_written_takes_the_place_of_deleted_topics_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "AHEAD", 0)
    monkeypatch.setattr(leaving, "PIECE", 100)
    held = Holding(tmp_path)
    held.create("new")
    held.create("old", file_delete_delay_ms="60000")
    held.write("old", count=10)
    held.get("new")
    topic = held.delete("old")
    file = tmp_path / f"{topic.topic_id.hex()}-0.deleted" / f"{0:020d}.log"
    before = file.stat().st_size
    await asyncio.sleep(3 * leaving.LOOK_EVERY_S)
    assert file.stat().st_size == before, "nothing was written meanwhile"
    written = held.disk.written
    held.write("new", count=5)
    written = held.disk.written - written
    await until(lambda: before - written <= file.stat().st_size < before)
    held.write("new", count=5)
    await until(lambda: file.stat().st_size == 0)


async def test_a_deleted_topic_that_is_being_read_stays_though_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "PIECE", 100)
    held = Holding(tmp_path)
    held.create("new")
    held.create("old", file_delete_delay_ms="60000")
    held.write("old", count=10)
    partition = held.get("old")
    found = partition.log.read(0, 1000, partition.committed)
    assert found is not None
    topic = held.delete("old")
    file = tmp_path / f"{topic.topic_id.hex()}-0.deleted" / f"{0:020d}.log"
    held.write("new", count=10)
    await asyncio.sleep(3 * leaving.LOOK_EVERY_S)
    assert len(found.read()) == found.size > 0
    del found
    held.write("new", count=50)
    await until(lambda: file.stat().st_size == 0)


async def test_nothing_is_looked_for_when_all_that_was_deleted_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "PIECE", 100)
    held = Holding(tmp_path)
    held.create("new")
    held.create("old", file_delete_delay_ms="60000")
    held.write("old")
    topic = held.delete("old")
    held.write("new", count=10)
    file = tmp_path / f"{topic.topic_id.hex()}-0.deleted" / f"{0:020d}.log"
    await until(lambda: file.stat().st_size == 0)
    looks: list[int] = []
    monkeypatch.setattr(held.disk, "shrink", lambda path, size: looks.append(size) or 0)
    await asyncio.sleep(3 * leaving.LOOK_EVERY_S)
    assert looks == []


async def test_what_is_empty_is_not_looked_at_again_though_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "AHEAD", 0)
    monkeypatch.setattr(leaving, "PIECE", 100)
    held = Holding(tmp_path)
    held.create("new")
    for name, count in (("old", 1), ("older", 30)):
        held.create(name, file_delete_delay_ms="60000")
        held.write(name, count=count)
    gone = [tmp_path / f"{held.delete(name).topic_id.hex()}-0.deleted" for name in ("old", "older")]
    looked: list[Path] = []
    shrink = held.disk.shrink
    monkeypatch.setattr(held.disk, "shrink", lambda path, size: looked.append(path) or shrink(path, size))
    for _ in range(3):
        before = len(looked)
        held.write("new", count=5)
        await until(lambda: len(looked) > before)  # noqa: B023
        await asyncio.sleep(2 * leaving.LOOK_EVERY_S)
    assert looked == [*gone, gone[1], gone[1]]


async def test_a_topic_made_again_under_its_name_knows_nothing_of_the_old_one(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    for sequence in range(3):
        held.write("t", producer=(7, 0, sequence))
    old = held.get("t")
    held.delete("t")
    held.create("t")
    assert held.get("t") is not old
    assert held.read("t") == []
    assert held.write("t", producer=(7, 0, 0)) == 0
    for cleanly in (True, False):
        held.start_again(cleanly=cleanly)
        assert held.read("t") == [0]


async def test_a_topic_made_again_does_not_inherit_the_beginning_of_an_emptied_one(tmp_path: Path) -> None:
    """A log whose every record was deleted has no segment after a crash, but files that say where it begins."""
    held = Holding(tmp_path)
    held.create("t")
    held.write("t", count=5)
    checkpoint.save(held.disk, tmp_path / "t-0" / checkpoint.START_OFFSET, 500, durable=True)
    held.start_again(cleanly=False)
    assert held.get("t").log.start_offset == 500
    held.delete("t")
    held.create("t")
    assert held.write("t") == 0
    held.start_again(cleanly=False)
    assert held.read("t") == [0]


async def test_a_topic_that_was_never_opened_since_the_start_is_deleted_too(tmp_path: Path) -> None:
    for cleanly in (True, False):
        folder = tmp_path / str(cleanly)
        held = Holding(folder)
        folder.mkdir()
        held.create("t")
        held.write("t")
        held.start_again(cleanly=cleanly)
        held.delete("t")
        held.create("t")
        assert held.read("t") == []
        assert "t-0" not in folders(folder)


def test_what_was_left_of_a_deletion_goes_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "0123-0.deleted").mkdir()
    (tmp_path / "0123-0.deleted" / "x.log").write_bytes(b"old")
    Holding(tmp_path)
    assert folders(tmp_path) == set()


# ---- stopping and starting


def test_after_a_clean_stop_nothing_is_read_until_it_is_needed(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", 50)
    for index in range(50):
        held.write("t", index, count=3, producer=(7, 0, 0))
    disk = CountingDisk()
    held.start_again(disk)
    at_start = disk.calls
    assert at_start <= 4, "the summary, the high watermarks, the unsynced topics, and no more"
    for index in range(50):
        assert held.get("t", index).high_watermark == 3
    assert disk.calls == at_start
    assert disk.bytes_read == {}
    assert held.write("t", 7, producer=(7, 0, 3)) == 3
    assert held.write("t", 7, producer=(7, 0, 0), count=3) == 0
    assert held.read("t", 7) == [0, 1, 2, 3]


def test_a_clean_stop_may_follow_another_without_use_between(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", 2)
    held.write("t", 0, count=2)
    held.write("t", 1, count=3)
    for _ in range(3):
        held.start_again()
        assert held.read("t", 0) == [0, 1]
    assert held.read("t", 1) == [0, 1, 2]


@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b"half a batch, or less"])
def test_after_any_other_stop_logs_are_recovered_before_they_are_served(tmp_path: Path, garbage: bytes) -> None:
    held = Holding(tmp_path)
    held.create("t", 2)
    for sequence in range(5):
        held.write("t", 0, producer=(7, 0, sequence))
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(garbage)
    held.start_again(cleanly=False)
    assert held.partitions.sizes()[("t", 0)] == (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size > 0
    assert held.read("t", 0) == [0, 1, 2, 3, 4]
    assert held.write("t", 0, producer=(7, 0, 5)) == 5
    assert held.write("t", 0, producer=(7, 0, 4)) == 4


def test_a_crash_after_a_clean_stop_is_not_taken_for_one(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.write("t")
    held.start_again()
    held.write("t")
    held.start_again(cleanly=False)
    assert held.read("t") == [0, 1]


def test_a_summary_that_is_damaged_means_recovery(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.write("t")
    held.partitions.close()
    summary = tmp_path / "clean-shutdown"
    data = bytearray(summary.read_bytes())
    data[-1] ^= 1
    summary.write_bytes(data)
    held.start_again(cleanly=False)
    assert held.read("t") == [0]


def test_folders_that_belong_to_no_topic_are_set_aside_and_nothing_else_is(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.create("u")
    held.write("t")
    held.write("u")
    (tmp_path / "not-a-partition").mkdir()
    shutil.copytree(tmp_path / "t-0", tmp_path / "t-7")
    stranger = held.image.topics["u"]
    held.image.drop_topic("u")
    held.create("u")
    held.start_again(cleanly=False)
    held.partitions.settle()
    own = held.image.topics["t"].topic_id.hex()
    assert folders(tmp_path) == {"t-0", "not-a-partition", f"{own}-7.stray", f"{stranger.topic_id.hex()}-0.stray"}
    assert (held.read("t"), held.read("u")) == ([0], [])
    assert held.write("u") == 0
    held.start_again(cleanly=False)
    assert held.read("u") == [0]


def test_a_topic_that_is_told_of_too_late_does_not_begin_with_nothing(tmp_path: Path) -> None:
    """Its node could not be read when the broker started."""
    held = Holding(tmp_path)
    topic = held.create("t")
    held.write("t", count=3)
    held.image.drop_topic("t")
    held.start_again(cleanly=False)
    held.find(topic)
    assert held.partitions.get("t", 0) is None
    held.start_again(cleanly=False)
    assert held.read("t") == [0, 1, 2]


@pytest.mark.parametrize("torn", [None, b"", bytes(32), b"\xff\xfe", b"../../x", b"0" * 31], ids=repr)
def test_a_folder_whose_topic_id_was_torn_is_set_aside_and_the_partition_can_be_written(
    tmp_path: Path, torn: bytes | None
) -> None:
    """Nothing in it can have been acknowledged: the id is on the device before that."""
    held = Holding(tmp_path)
    held.create("t", 2)
    for _ in range(2):
        held.write("t")
        (tmp_path / "t-0" / "topic-id").unlink()
        if torn is not None:
            (tmp_path / "t-0" / "topic-id").write_bytes(torn)
        (tmp_path / "t-1").mkdir(exist_ok=True)  # with nothing in it
        held.start_again(cleanly=False)
        held.partitions.settle()
        assert held.read("t") == []
        assert held.write("t") == 0
        held.write("t", 1)
        held.start_again(cleanly=False)
        assert (held.read("t"), held.read("t", 1)[0]) == ([0], 0)
    assert folders(tmp_path) == {"t-0", "t-1", "unknown-0.stray", "unknown-0.1.stray"}


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("found_while_it_runs", [True, False])
def test_a_lost_topic_is_set_aside_and_taken_back_by_the_start_at_which_it_is_there_again(
    cleanly: bool, found_while_it_runs: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = Holding(tmp_path)
    held.create("t", 2)
    held.write("t", count=3)
    lost = held.lose("t")
    held.create("t", 2)  # another topic of the name
    held.write("t")
    assert folders(tmp_path) == {"t-0", f"{lost.topic_id.hex()}-0.stray"}
    held.start_again(cleanly=cleanly)
    assert held.read("t") == [0]
    held.lose("t")
    if found_while_it_runs:
        held.find(lost)
        assert held.partitions.get("t", 0) is None, "what it holds would not be found"
        assert "start this broker again" in caplog.text
    else:
        held.image.put_topic(lost)
    held.start_again(cleanly=cleanly)
    assert held.read("t") == [0, 1, 2]
    assert held.write("t") == 3
    held.start_again(cleanly=cleanly)
    assert held.read("t") == [0, 1, 2, 3]


async def test_when_a_lost_topic_turns_out_to_be_deleted_its_folders_go_and_no_others(tmp_path: Path) -> None:
    held = Holding(tmp_path, log_segment_delete_delay_ms="0")
    held.create("t")
    held.write("t")
    lost = held.lose("t")
    held.create("t")
    held.write("t", count=2)
    held.partitions.lost_topic_deleted(lost)
    await until(lambda: folders(tmp_path) == {"t-0"})
    assert held.read("t") == [0, 1]


def test_a_partition_that_failed_keeps_the_stop_from_being_clean(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    held = Holding(tmp_path, disk)
    held.create("good")
    held.create("bad")
    held.write("good")
    held.write("bad")
    disk.fail_sync = "bad-0/*.log"
    held.write("bad")
    assert held.get("bad").error is not None
    held.partitions.close()
    assert not (tmp_path / "clean-shutdown").exists()
    held.start_again(cleanly=False)
    assert held.read("good") == [0]


@pytest.mark.parametrize("flush", ["commit", "interval"])
def test_what_a_failed_sync_did_not_bring_to_the_device_is_not_believed_after_the_restart(
    flush: str, tmp_path: Path
) -> None:
    """Memory has it still, and the next sync would succeed."""
    disk = ForgetfulDisk(tmp_path)
    held = Holding(tmp_path, disk)
    held.create("t", flush=flush, flush_messages="1")
    held.write("t")
    disk.fail_sync = "*.log"
    held.write("t")
    assert held.get("t").error is not None
    held.partitions.close()
    held.start_again(cleanly=False)
    assert held.read("t") == [0]
    assert held.partitions.damaged == {("t", 0)}, "it may have been acknowledged"
    assert held.write("t", count=2) == 1
    held.get("t").log.segments[0].seal()
    disk.crash(keep_names=1.0)
    held.start_again(cleanly=False)
    assert held.read("t") == [0, 1, 2]


def test_a_disk_that_fails_during_the_stop_keeps_it_from_being_clean(tmp_path: Path) -> None:
    disk = FailingDisk()
    held = Holding(tmp_path, disk, flush="os")
    held.create("t")
    held.write("t")
    disk.fail_sync = disk.syncs
    held.partitions.close()
    assert not (tmp_path / "clean-shutdown").exists()


async def test_a_deletion_in_the_middle_of_a_sync_is_no_failure(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.write("t")
    held.get("t").append(memoryview(bytearray(batch_at(0))), NOW_MS)
    held.turn.flush()
    assert held.committer.under_way
    held.delete("t")
    held.committer.end_all()
    held.create("t")
    assert held.write("t") == 0
    await asyncio.sleep(0)


# ---- what may be lost with the power


def noted(held: Holding) -> set[bytes]:
    """On the device, as far as the file goes."""
    again = UnsyncedTopics(held.disk, held.folder)
    again.load()
    return set(again.ids)


def test_a_topic_is_noted_before_anything_is_written_to_it_that_is_not_synced(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    safe, first, second = held.create("safe"), held.create("t", flush="os"), held.create("u", flush="interval")
    held.get("safe")
    assert noted(held) == set()
    held.get("t")
    assert noted(held) == {first.topic_id, second.topic_id}, "all at once: there may be thousands"
    held.get("safe")
    held.change("safe", flush="os")
    assert noted(held) == {safe.topic_id, first.topic_id, second.topic_id}


def test_the_note_goes_when_the_topic_is_synced_under_commit_or_gone(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    topic = held.create("t", flush="os")
    held.create("gone", flush="os")
    held.write("t")
    held.partitions.forget_synced()
    assert len(noted(held)) == 2
    held.delete("gone")
    held.change("t", flush="commit")
    held.partitions.forget_synced()
    assert noted(held) == {topic.topic_id}, "its sync is under way"
    held.committer.end_all()
    held.partitions.forget_synced()
    assert noted(held) == set()


def test_a_start_that_has_told_what_may_be_lost_begins_with_notes_of_its_own(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    topic = held.create("t", flush="os")
    other = held.create("u", flush="os")
    held.write("t")
    held.start_again(cleanly=False)
    held.change("t", flush="commit")
    assert held.partitions.unsynced_topics == {topic.topic_id, other.topic_id}
    held.partitions.settle()
    assert noted(held) == {other.topic_id}


def test_notes_that_are_damaged_speak_of_every_topic(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t", flush="os")
    held.write("t")
    path = tmp_path / "unsynced-topics"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    held.start_again(cleanly=False)
    assert held.partitions.unsynced_topics == {EVERY_TOPIC}


def test_what_can_not_be_noted_is_synced_at_every_commit(tmp_path: Path) -> None:
    disk = FailingDisk()
    held = Holding(tmp_path, disk)
    held.create("t", flush="os")
    disk.fail_write = disk.writes
    partition = held.get("t")
    assert partition.settings.flush is Flush.COMMIT
    disk.heal()
    held.change("t", flush="os", retention_ms="1000")
    assert partition.settings.flush is Flush.OS


def overwrite_its_beginning(folder: Path) -> None:
    path = folder / f"{0:020}.log"
    path.write_bytes(bytes(200) + path.read_bytes())


@pytest.mark.parametrize("damage", [overwrite_its_beginning, lambda folder: (folder / "topic-id").unlink()])
def test_what_may_be_lost_is_missed_until_that_was_told(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Also if the log is mended, or its folder set aside, by a start that comes no further."""
    held = Holding(tmp_path)
    held.create("t")
    held.write("t")
    damage(tmp_path / "t-0")
    for _ in range(2):
        held.start_again(cleanly=False)
        assert held.partitions.damaged == {("t", 0)}
        held.partitions.close(vouch=False)
    held.start_again(cleanly=False)
    held.partitions.settle()
    held.start_again(cleanly=False)
    assert held.partitions.damaged == set()


def test_where_flush_is_os_by_default_all_topics_are_noted_at_once(tmp_path: Path) -> None:
    held = Holding(tmp_path, flush="os")
    for name in ("t", "u"):
        held.create(name)
        held.write(name)
        assert held.partitions.unsynced_topics == {EVERY_TOPIC}
    held.settings.set_dynamic(cluster={"flush": "commit"}, broker={})
    held.turn.flush()
    held.committer.end_all()
    held.partitions.forget_synced()
    assert held.partitions.unsynced_topics == set()


async def test_a_replica_that_came_back_and_goes_again_does_not_meet_its_former_folder(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    topic = held.create("t", file_delete_delay_ms="60000")
    for _ in range(3):
        held.write("t")
        held.image.drop_topic("t")
        held.partitions.topic_deleted(topic)
        held.image.put_topic(topic)
    assert held.read("t") == []
    assert len([name for name in folders(tmp_path) if name.endswith(".deleted")]) == 3


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize(("flush", "power_lost"), [("os", True), ("os", False), ("commit", True)])
def test_what_is_aside_when_the_power_is_lost_is_damaged_where_it_had_something_to_lose(
    flush: str, power_lost: bool, cleanly: bool, tmp_path: Path
) -> None:
    """The start that notices it knows nothing of the topic, and the first that does is killed."""
    held = Holding(tmp_path)
    held.create("t", flush=flush)
    held.write("t", count=3)
    lost = held.lose("t")
    held.partitions.forget_synced()
    for _ in range(2):
        held.start_again(cleanly=False)
        held.partitions.settle()
    if power_lost:
        held.partitions.suspect_aside()
    held.image.put_topic(lost)
    held.start_again(cleanly=cleanly)
    for _ in range(2):
        assert held.partitions.damaged == ({("t", 0)} if flush == "os" and power_lost else set())
        assert held.read("t") == [0, 1, 2]
        held.partitions.close(vouch=False)
        held.start_again(cleanly=False)


def test_a_clean_stop_syncs_what_is_aside_and_may_not_be_synced(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    held = Holding(tmp_path, disk)
    held.create("t", flush="os")
    held.write("t", count=3)
    lost = held.lose("t")
    held.partitions.close()
    disk.crash(keep_names=1.0)
    held.image.put_topic(lost)
    held.start_again(cleanly=False)
    assert held.partitions.damaged == set()
    assert held.read("t") == [0, 1, 2]


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_folder_that_is_aside_and_has_lost_its_id_is_missed(cleanly: bool, tmp_path: Path) -> None:
    held = Holding(tmp_path)
    topic = held.create_followed("t")
    held.copy("t", batch_at(0), batch_at(1))
    held.lose("t")
    (tmp_path / f"{topic.topic_id.hex()}-0.stray" / "topic-id").unlink()
    held.image.put_topic(topic)
    held.start_again(cleanly=cleanly)
    assert held.partitions.damaged == {("t", 0)}
    assert held.get("t").log.end_offset == 0


def test_a_lost_topic_is_told_from_a_copy_that_was_set_aside_before(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.write("t")
    shutil.copytree(tmp_path / "t-0", tmp_path / "copy-0")
    held.start_again(cleanly=False)
    held.write("t")
    lost = held.lose("t")
    own = lost.topic_id.hex()
    assert folders(tmp_path) == {f"{own}-0.stray", f"{own}-0.1.stray"}
    held.find(lost)
    assert held.partitions.get("t", 0) is None
    held.start_again(cleanly=False)
    assert held.read("t") == [0, 1]


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_note_that_a_topic_was_deleted_takes_nothing_of_one_that_is_there_again(
    cleanly: bool, tmp_path: Path
) -> None:
    held = Holding(tmp_path)
    topic = held.create_followed("t")
    held.copy("t", batch_at(0), batch_at(1))
    held.partitions.close(vouch=cleanly)
    held.partitions = Partitions(
        held.disk, tmp_path, held.image, held.settings, held.turn, cast(Any, held.committer), 1
    )
    held.partitions.load([topic.topic_id.hex()])
    assert held.get("t").log.end_offset == 2
    assert held.partitions.damaged == set()


@pytest.mark.parametrize("copy", ["t-old-0", "t-0.bak"])
def test_a_copy_of_a_folder_is_set_aside_and_nothing_is_taken_for_it(tmp_path: Path, copy: str) -> None:
    held = Holding(tmp_path)
    held.create("t", 2)
    held.write("t", 0)
    shutil.copytree(tmp_path / "t-0", tmp_path / copy)
    for _ in range(2):
        held.start_again(cleanly=False)
        assert (held.read("t", 0), held.read("t", 1)) == ([0], [])
