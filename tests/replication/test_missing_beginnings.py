"""What a start makes of a log that has lost its first segments: with it as leader, the others would delete theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.replication.holding import Holding
from tests.replication.test_missing_logs import PLACE, SMALL_SEGMENTS, damaged_and_lost
from tests.replication.test_upkeep import Kept, fill
from tests.storage.disks import ForgetfulDisk
from tests.storage.logs import batch_at


def without_its_beginning(folder: Path, *, followed: bool = True) -> Holding:
    held = Holding(folder)
    if followed:
        held.create_followed("t", **SMALL_SEGMENTS)
        held.copy("t", *(batch_at(n) for n in range(8)))
    else:
        held.create("t", **SMALL_SEGMENTS)
        fill(held, 8)
    held.save_high_watermarks()
    for suffix in ("log", "index"):
        (folder / "t-0" / f"{0:020}.{suffix}").unlink(missing_ok=True)
    held.start_again(cleanly=False)
    return held


def tell(held: Holding, isr: tuple[int, ...]) -> None:
    """What the cluster says of it now."""
    topic = held.image.topics["t"]
    state = replace(topic.partitions[0], isr=isr)
    held.image.put_topic(replace(topic, partitions=(state,)))
    held.partitions.settle()


def test_a_replica_without_its_beginning_is_damaged_until_that_was_told(tmp_path: Path) -> None:
    held = without_its_beginning(tmp_path)
    for _ in range(2):
        assert damaged_and_lost(held.partitions) == (True, False)
        assert held.get("t").log.start_offset > 0
        held.partitions.close(vouch=False)
        held.start_again(cleanly=False)


@pytest.mark.parametrize("is_open", [True, False])
def test_it_begins_anew_if_others_have_all_of_it(is_open: bool, tmp_path: Path) -> None:
    held = without_its_beginning(tmp_path)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")}
    if is_open:
        held.get("t")
    tell(held, isr=(2,))
    partition = held.get("t")
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (0, 0, 0)
    assert {f"{name}.cut-0" for name in kept} == {path.name for path in (tmp_path / "t-0").glob("*.cut-*")}
    assert all((tmp_path / "t-0" / f"{name}.cut-0").read_bytes() == data for name, data in kept.items())
    held.copy("t", *(batch_at(n) for n in range(10)))
    held.save_high_watermarks()
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (False, False)
    assert held.read("t") == list(range(10))


def test_it_keeps_what_there_is_if_nobody_is_known_to_have_all_of_it(tmp_path: Path) -> None:
    held = without_its_beginning(tmp_path)
    tell(held, isr=())
    left = held.read("t")
    assert left[0] > 0
    assert left[-1] == 7


def test_it_goes_on_with_what_there_is_if_nobody_else_has_all_of_it(tmp_path: Path) -> None:
    held = without_its_beginning(tmp_path)
    tell(held, isr=(1,))
    left = held.read("t")
    assert left[0] > 0
    assert left[-1] == 7
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (False, False)
    assert held.read("t") == left


def test_it_stays_as_it_is_where_the_cluster_was_not_told(tmp_path: Path) -> None:
    held = without_its_beginning(tmp_path)
    tell(held, isr=(1, 2))
    held.start_again(cleanly=False)
    assert held.get("t").log.start_offset > 0
    assert held.partitions.damaged == {PLACE}


def test_the_only_replica_goes_on_with_what_there_is(tmp_path: Path) -> None:
    held = without_its_beginning(tmp_path, followed=False)
    held.partitions.settle()
    left = held.read("t")
    assert left[0] > 0
    held.start_again(cleanly=False)
    assert held.partitions.damaged == set()
    assert held.write("t") == 8


# ---- no damage


@pytest.mark.parametrize("power_lost", [True, False])
@pytest.mark.parametrize("how", ["on request", "by retention", "to the end"])
async def test_what_was_deleted_is_not_missed(how: str, power_lost: bool, tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    kept = Kept(tmp_path, disk)
    held, upkeep = kept.held, kept.upkeep
    held.create(
        "t", **SMALL_SEGMENTS, retention_bytes="300" if how == "by retention" else "-1", file_delete_delay_ms="0"
    )
    fill(held, 8)
    if how == "by retention":
        await kept.retain()
    else:
        await upkeep.advance_start(held.get("t"), 8 if how == "to the end" else 5)
    await upkeep.close()
    assert not (tmp_path / "t-0" / f"{0:020}.log").exists()
    start = held.get("t").log.start_offset
    if power_lost:
        disk.crash(keep_names=0.5)
    held.start_again(cleanly=False)
    assert held.partitions.damaged == set()
    assert held.get("t").log.start_offset == start > 0


async def test_a_follower_that_began_where_its_leader_begins_has_lost_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.held.create_followed("t", **SMALL_SEGMENTS)
    await kept.upkeep.cut(kept.held.get("t"), 500, 0, 0, restart=True)
    kept.held.copy("t", *(batch_at(n) for n in range(500, 508)))
    kept.held.start_again(cleanly=False)
    assert damaged_and_lost(kept.held.partitions) == (False, False)
    log = kept.held.get("t").log
    assert (log.start_offset, log.end_offset) == (500, 508)


def test_a_gap_that_was_copied_may_be_the_first_of_all(tmp_path: Path) -> None:
    held = Holding(tmp_path)
    held.create_followed("t", **SMALL_SEGMENTS)
    held.copy("t", *(batch_at(n) for n in (5, 6, 7, 8)))
    held.start_again(cleanly=False)
    assert damaged_and_lost(held.partitions) == (False, False)
    assert held.get("t").log.end_offset == 9
