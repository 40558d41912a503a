"""What a start makes of a log that is gone, or is another topic's, or ends too soon."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.replication.partitions import Partitions
from penstock.storage import truncation
from tests.replication.holding import Holding
from tests.replication.test_partitions import folders
from tests.replication.test_upkeep import Kept
from tests.storage.disks import ForgetfulDisk
from tests.storage.logs import batch_at

PLACE = ("t", 0)
SMALL_SEGMENTS = {"internal_segment_bytes": "200", "cleanup_policy": "delete"}


def damaged_and_lost(partitions: Partitions) -> tuple[bool, bool]:
    assert partitions.damaged <= {PLACE}
    assert partitions.lost <= partitions.damaged
    return PLACE in partitions.damaged, PLACE in partitions.lost


def followed(folder: Path, count: int = 6) -> Holding:
    held = Holding(folder)
    held.create_followed("t")
    held.copy("t", *(batch_at(n) for n in range(count)))
    return held


def log_file(folder: Path) -> Path:
    return folder / f"{0:020}.log"


def flip_a_bit_of_its_id(folder: Path) -> None:
    content = bytearray((folder / "topic-id").read_bytes())
    content[3] ^= 1
    (folder / "topic-id").write_bytes(content)


def cut_short(folder: Path) -> None:
    log_file(folder).write_bytes(log_file(folder).read_bytes()[:200])


LOSSES: dict[str, Callable[[Path], object]] = {
    "the folder": shutil.rmtree,
    "the log": lambda folder: log_file(folder).unlink(),
    "its id": lambda folder: (folder / "topic-id").unlink(),
    "a bit of its id": flip_a_bit_of_its_id,
}


# ---- after a crash


@pytest.mark.parametrize("what", LOSSES)
def test_a_replica_whose_log_is_gone_is_damaged_and_has_nothing_left(tmp_path: Path, what: str) -> None:
    held = followed(tmp_path)
    held.save_high_watermarks()
    LOSSES[what](tmp_path / "t-0")
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (True, True)
    assert held.get("t").log.end_offset == 0


def test_a_start_that_did_not_get_to_tell_of_a_loss_leaves_it_to_the_next(tmp_path: Path) -> None:
    held = followed(tmp_path)
    held.save_high_watermarks()
    shutil.rmtree(tmp_path / "t-0")
    for _ in range(2):
        held.start_again(cleanly=False)
        assert damaged_and_lost(held.partitions) == (True, True)
        assert held.get("t").high_watermark == 0
        held.partitions.close(vouch=False)


@pytest.mark.parametrize("what", ["its id", "a bit of its id"])
def test_a_folder_that_is_set_aside_is_damage_though_nobody_knows_what_was_committed(tmp_path: Path, what: str) -> None:
    held = followed(tmp_path)
    LOSSES[what](tmp_path / "t-0")
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (True, False)


def test_a_log_that_ends_below_what_was_committed_is_damaged_though_its_end_looks_torn(tmp_path: Path) -> None:
    held = followed(tmp_path)
    held.save_high_watermarks()
    cut_short(tmp_path / "t-0")
    held.start_again(cleanly=False)
    assert held.get("t").log.end_offset == 2
    assert damaged_and_lost(held.partitions) == (True, False)


def test_a_log_that_has_all_that_was_committed_may_end_torn(tmp_path: Path) -> None:
    held = followed(tmp_path, 2)
    held.save_high_watermarks()
    held.copy("t", *(batch_at(n) for n in range(2, 6)))
    cut_short(tmp_path / "t-0")
    held.start_again(cleanly=False)
    assert held.get("t").log.end_offset == 2
    assert damaged_and_lost(held.partitions) == (False, False)


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_replica_that_never_had_anything_is_not_damaged(tmp_path: Path, has_folder: bool) -> None:
    held = followed(tmp_path, 0)
    held.save_high_watermarks()
    if has_folder:
        (tmp_path / "t-0").mkdir()
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (False, False)


def test_what_a_follower_took_back_is_not_missed(tmp_path: Path) -> None:
    held = followed(tmp_path)
    held.save_high_watermarks()
    partition = held.get("t")
    truncation.truncate_to(partition.log, 3)
    partition.was_cut()
    held.save_high_watermarks()
    held.start_again(cleanly=False)
    assert held.get("t").log.end_offset == 3
    assert damaged_and_lost(held.partitions) == (False, False)


async def test_a_log_without_a_segment_is_known_for_its_own_by_where_it_begins(tmp_path: Path) -> None:
    """As of a follower whose leader has deleted every record."""
    kept = Kept(tmp_path)
    kept.held.create_followed("t")
    await kept.upkeep.cut(kept.held.get("t"), 500, 0, 0, restart=True)
    kept.held.save_high_watermarks()
    kept.held.start_again(cleanly=False)
    assert damaged_and_lost(kept.held.partitions) == (False, False)
    log = kept.held.get("t").log
    assert (log.start_offset, log.end_offset) == (500, 500)
    assert folders(tmp_path) == {"t-0"}


async def test_a_replica_that_went_away_and_came_back_begins_with_nothing(tmp_path: Path) -> None:
    held = followed(tmp_path)
    held.save_high_watermarks()
    topic = held.delete("t")
    held.save_high_watermarks()
    held.image.put_topic(topic)
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (False, False)


@pytest.mark.parametrize("what", LOSSES)
def test_the_only_replica_goes_on_with_what_there_is(tmp_path: Path, what: str) -> None:
    held = Holding(tmp_path)
    held.create("t")
    held.write("t", count=6)
    held.save_high_watermarks()
    LOSSES[what](tmp_path / "t-0")
    held.start_again(cleanly=False)
    assert held.read("t") == []
    assert held.write("t") == 0


# ---- another topic of the same name


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("made_again", ["while it was stopped", "behind its start"])
def test_a_topic_made_again_does_not_begin_with_the_log_of_the_former_one(
    tmp_path: Path, made_again: str, cleanly: bool
) -> None:
    """It was moved off this broker while that was stopped, then it was deleted: nobody told this broker."""
    held = Holding(tmp_path)
    former = held.create("t")
    held.write("t", count=4)
    if cleanly:
        held.partitions.close()
    held.image.drop_topic("t")
    if made_again == "while it was stopped":
        held.create("t")
        held.start_again(cleanly=False)  # that is: as it was left
    else:
        held.start_again(cleanly=False)
        held.create("t")
    assert held.read("t") == []
    assert held.write("t") == 0
    assert folders(tmp_path) == {"t-0", f"{former.topic_id.hex()}-0.stray"}
    for again in (True, False):
        held.start_again(cleanly=again)
        assert held.read("t") == [0]


def test_a_folder_that_nobody_has_asked_for_is_told_apart_after_several_clean_stops(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    former = held.create("t")
    held.write("t", count=4)
    held.start_again()
    held.image.drop_topic("t")
    for _ in range(3):
        held.start_again()
    held.create("t")
    assert held.partitions.sizes() == {PLACE: 0}
    assert held.read("t") == []
    assert folders(tmp_path) == {f"{former.topic_id.hex()}-0.stray"}


async def test_a_deletion_takes_only_what_is_of_the_topic(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    former = held.create("t")
    held.write("t", count=4)
    held.partitions.close()
    held.image.drop_topic("t")
    held.create("t")
    held.start_again(cleanly=False)
    held.delete("t")
    assert folders(tmp_path) == {f"{former.topic_id.hex()}-0.stray"}


# ---- gaps


def copy_with_gaps(held: Holding) -> int:
    """As a leader has them that compacted once, between segments, within one, and before the last batch."""
    held.copy("t", *(batch_at(n) for n in (0, 1, 5, 6, 9, 12, 13, 20)))
    assert len(held.get("t").log.segments) > 2
    return held.get("t").log.end_offset


@pytest.mark.parametrize("sealed", [False, True])
def test_gaps_that_were_copied_are_no_damage_though_this_replica_never_compacted(tmp_path: Path, sealed: bool) -> None:
    held = Holding(tmp_path)
    held.create_followed("t", **SMALL_SEGMENTS)
    end = copy_with_gaps(held)
    held.save_high_watermarks()
    if sealed:
        held.partitions.close()
        (tmp_path / "clean-shutdown").unlink()
    held.start_again(cleanly=False)
    assert held.get("t").log.end_offset == end
    assert damaged_and_lost(held.partitions) == (False, False)


def test_the_note_of_gaps_is_on_the_device_when_the_batches_are(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    held = Holding(tmp_path, disk)
    held.create_followed("t", **SMALL_SEGMENTS)
    end = copy_with_gaps(held)
    disk.crash(keep_names=0.0)
    held.start_again(cleanly=False)
    assert held.get("t").log.end_offset == end
    assert (tmp_path / "t-0" / "copied-gaps").exists()


def test_a_log_without_gaps_has_no_note_of_them_and_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create_followed("t", **SMALL_SEGMENTS)
    held.copy("t", *(batch_at(n) for n in range(8)))
    assert not (tmp_path / "t-0" / "copied-gaps").exists()
    middle = held.get("t").log.segments[1].base_offset
    (tmp_path / "t-0" / f"{middle:020}.log").unlink()
    held.start_again(cleanly=False)
    assert held.get("t").log.end_offset == middle
    assert damaged_and_lost(held.partitions) == (True, False)
