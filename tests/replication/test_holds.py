"""Retention and compaction that wait for a group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.replication import holds
from penstock.replication.holds import NOTHING, WARN_AGAIN_MS, Hold, Key
from penstock.replication.partition import Partition
from penstock.replication.upkeep import Upkeep
from tests.fakes import FakeClock, FakeWorker
from tests.replication.holding import Holding
from tests.storage.logs import NOW_MS

GROUP = "archive"
ONE_A_SEGMENT = {"internal_segment_bytes": "200"}
AGED = {"retention_ms": "1000", **ONE_A_SEGMENT}


class FakeCoordinator:
    """In place of the coordinators of groups: what was committed, or no answer."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, Key], int] = {}
        self.asked: list[tuple[str, list[Key]]] = []
        self.silent: set[str] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    async def __call__(self, group: str, partitions: Sequence[Key]) -> dict[Key, int]:
        self.asked.append((group, list(partitions)))
        await asyncio.sleep(0)
        self.meanwhile()
        if group in self.silent:
            return {}
        return {key: self.offsets.get((group, key), NOTHING) for key in partitions}


class Kept:
    """Partitions whose retention and compaction happen when the test says so."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.clock = FakeClock(NOW_MS)
        self.held = Holding(folder, **settings)
        self.coordinator = FakeCoordinator()
        worker = cast(Any, FakeWorker())
        self.upkeep = Upkeep(self.held.partitions, self.held.settings, worker, self.clock, self.coordinator)

    def commit(self, offset: int, topic: str = "t", index: int = 0, group: str = GROUP) -> None:
        self.coordinator.offsets[group, (topic, index)] = offset

    def fill(self, records: int, topic: str = "t", index: int = 0, **options: Any) -> None:
        """Each in a segment of its own."""
        for _ in range(records):
            self.held.write(topic, index, size=100, **options)

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.held.get(topic, index)

    def hold(self, topic: str = "t", index: int = 0) -> Hold | None:
        return self.upkeep.holds().get((topic, index))

    async def retain(self, topic: str = "t", index: int = 0) -> int:
        """Where the log begins then."""
        await self.upkeep._retain()
        return self.partition(topic, index).log.start_offset

    async def compact(self, topic: str = "t") -> list[int]:
        """The offsets that are left."""
        await self.upkeep._seal_and_flush()
        await self.upkeep._compact()
        return self.held.read(topic)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    await kept.upkeep.close()


def sizes(kept: Kept) -> list[int]:
    return [segment.size for segment in kept.partition().log.segments]


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.levelno == logging.WARNING]


# ---- retention


async def test_nothing_goes_before_the_first_commit_and_then_what_was_committed(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(6)
    kept.clock.now += 1001
    total = sum(sizes(kept))
    assert await kept.retain() == 0
    assert kept.hold() == Hold(GROUP, NOTHING, total)
    kept.commit(0)
    assert await kept.retain() == 0
    assert kept.hold() == Hold(GROUP, 0, total)
    kept.commit(4)
    assert await kept.retain() == 4
    assert kept.hold() == Hold(GROUP, 4, sum(sizes(kept)))
    kept.commit(6)
    assert await kept.retain() == 6
    assert kept.hold() is None


async def test_a_group_that_has_committed_everything_changes_nothing(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, retention_bytes="400", **ONE_A_SEGMENT)
    kept.held.create("other", retention_bytes="400", **ONE_A_SEGMENT)
    for topic in ("t", "other"):
        kept.fill(6, topic)
    kept.commit(6)
    assert await kept.retain() == await kept.retain("other") > 0


async def test_only_who_would_lose_something_asks_and_once_for_all_partitions(kept: Kept) -> None:
    kept.held.create("t", 3, retention_hold_group=GROUP, **AGED)
    kept.held.create("u", retention_hold_group="other", **AGED)
    kept.held.create("without", **AGED)
    for index in range(2):
        kept.fill(2, "t", index)
    kept.fill(2, "u")
    kept.fill(2, "without")
    await kept.retain()
    assert kept.coordinator.asked == []
    kept.clock.now += 1001
    assert await kept.retain("without") == 2
    assert kept.coordinator.asked == [(GROUP, [("t", 0), ("t", 1)]), ("other", [("u", 0)])]


async def test_as_long_as_nobody_answers_nothing_goes(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.held.create("t", retention_hold_group=GROUP, retention_hold_max_bytes="0", **AGED)
    kept.held.create("u", retention_hold_group="other", **AGED)
    for topic in ("t", "u"):
        kept.fill(3, topic)
    kept.commit(3)
    kept.commit(3, "u", group="other")
    kept.clock.now += 1001
    kept.coordinator.silent = {GROUP}
    for _ in range(3):
        assert await kept.retain() == 0
    assert await kept.retain("u") == 3, "other groups are not waited for"
    (told,) = warnings(caplog)
    assert "retention waits" in told.getMessage()
    assert (told.group, told.partitions) == (GROUP, 1)
    kept.clock.now += WARN_AGAIN_MS
    await kept.retain()
    assert len(warnings(caplog)) == 2
    kept.coordinator.silent = set()
    assert await kept.retain() == 3


async def test_beyond_the_limit_the_oldest_go_and_that_is_told(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(6)
    kept.commit(1)
    size = sizes(kept)[0]
    kept.held.change("t", retention_hold_group=GROUP, retention_hold_max_bytes=str(3 * size + 1), **AGED)
    kept.clock.now += 1001
    assert await kept.retain() == 3
    assert kept.hold() == Hold(GROUP, 1, 3 * size, lost_to=3, warned_ms=kept.clock.now)
    assert kept.hold().over_limit
    (told,) = warnings(caplog)
    assert "not committed" in told.getMessage()
    assert (told.partition, told.group, told.committed) == ("t-0", GROUP, 1)
    assert (told.below, told.bytes, told.held, told.max) == (3, 2 * size, 3 * size, 3 * size + 1)


async def test_it_is_told_again_only_now_and_then_and_until_the_group_has_caught_up(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.held.create("t", retention_hold_group=GROUP, retention_hold_max_bytes="0", **AGED)
    kept.fill(1)
    kept.clock.now += 1001
    assert await kept.retain() == 1
    for _ in range(3):
        kept.fill(1)
        await kept.retain()
    assert kept.partition().log.start_offset == 4
    assert [told.committed for told in warnings(caplog)] == ["nothing"]
    kept.clock.now += WARN_AGAIN_MS
    kept.fill(1)
    assert await kept.retain() == 5
    assert len(warnings(caplog)) == 2
    assert await kept.retain() == 5
    assert kept.hold().over_limit, "nothing more is lost, but the group has not got over it"
    kept.commit(4)
    await kept.retain()
    assert kept.hold().over_limit
    kept.commit(5)
    await kept.retain()
    assert kept.hold() is None
    kept.fill(1)
    await kept.retain()
    assert len(warnings(caplog)) == 3, "it begins anew"


async def test_whoever_follows_leaves_it_to_the_leader(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, retention_hold_max_bytes="0", **AGED)
    kept.fill(3)
    kept.commit(3)
    kept.clock.now += 1001
    kept.partition().follow(1)
    assert await kept.retain() == 0
    assert kept.coordinator.asked == []
    kept.partition().lead(2, None)
    assert await kept.retain() == 3


async def test_who_leads_no_more_when_the_answer_comes_deletes_nothing(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(3)
    kept.commit(3)
    kept.clock.now += 1001
    kept.coordinator.meanwhile = lambda: kept.partition().follow(1)
    assert await kept.retain() == 0


async def test_an_answer_for_another_group_than_the_present_one_counts_for_nothing(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(3)
    kept.commit(3)
    kept.clock.now += 1001
    kept.coordinator.meanwhile = lambda: kept.held.change("t", retention_hold_group="other", **AGED)
    assert await kept.retain() == 0
    kept.coordinator.meanwhile = lambda: None
    assert await kept.retain() == 0
    assert kept.hold().group == "other"


async def test_a_topic_is_deleted_whatever_it_holds(kept: Kept, tmp_path: Path) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(3)
    kept.clock.now += 1001
    await kept.retain()
    kept.coordinator.meanwhile = lambda: kept.held.delete("t") and None
    await kept.upkeep._retain()
    assert kept.upkeep.holds() == {}
    assert not (tmp_path / "t-0").exists()


async def test_without_a_group_a_topic_holds_nothing_any_more(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(3)
    kept.clock.now += 1001
    assert await kept.retain() == 0
    kept.held.change("t", **AGED)
    assert await kept.retain() == 3
    assert kept.hold() is None


async def test_a_commit_behind_the_end_is_of_another_log(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(3)
    kept.commit(4)
    kept.clock.now += 1001
    assert await kept.retain() == 0
    assert kept.hold().committed == NOTHING


async def test_a_request_to_delete_records_does_not_wait(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(6)
    kept.clock.now += 1001
    await kept.retain()
    await kept.upkeep.advance_start(kept.partition(), 4)
    assert await kept.retain() == 4
    assert kept.hold() == Hold(GROUP, NOTHING, sum(sizes(kept)[:2])), "the limit has not done it"


async def test_what_lies_below_the_start_is_kept_for_nobody(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **AGED)
    kept.fill(6)
    kept.clock.now += 1001
    kept.partition().log.advance_start(2)  # its segments are still there
    await kept.retain()
    assert kept.hold().held_bytes == sum(sizes(kept)[2:])


async def test_many_partitions_are_asked_for_in_several_questions(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "PARTITIONS_PER_QUESTION", 2)
    monkeypatch.setattr(holds, "QUESTIONS_AT_ONCE", 2)
    kept.held.create("t", 5, retention_hold_group=GROUP, **AGED)
    for index in range(5):
        kept.fill(2, "t", index)
        kept.commit(2, "t", index)
    kept.clock.now += 1001
    await kept.retain()
    assert [len(partitions) for _, partitions in kept.coordinator.asked] == [2, 2, 1]
    assert [kept.partition("t", index).log.start_offset for index in range(5)] == [2] * 5


# ---- compaction

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", **ONE_A_SEGMENT}


async def test_compaction_leaves_what_is_not_committed(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **COMPACTED)
    kept.fill(6, keys=["same"])
    assert await kept.compact() == [0, 1, 2, 3, 4, 5]
    assert kept.hold() == Hold(GROUP, NOTHING, sum(sizes(kept)[:-1]))
    kept.commit(3)
    assert await kept.compact() == [2, 3, 4, 5]
    kept.commit(6)
    assert await kept.compact() == [4, 5]  # the active segment is never compacted
    assert kept.hold() is None


async def test_compaction_on_a_follower_waits_too(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **COMPACTED)
    kept.fill(6, keys=["same"])
    kept.partition().follow(1)
    assert await kept.compact() == [0, 1, 2, 3, 4, 5]
    kept.commit(6)
    assert await kept.compact() == [4, 5]


async def test_beyond_the_limit_compaction_goes_on_and_that_is_told(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **COMPACTED)
    kept.fill(6, keys=["same"])
    size = sizes(kept)[0]
    kept.held.change("t", retention_hold_group=GROUP, retention_hold_max_bytes=str(2 * size), **COMPACTED)
    assert await kept.compact() == [2, 3, 4, 5]
    assert kept.hold().over_limit
    (told,) = warnings(caplog)
    assert told.getMessage().startswith("compaction")
    assert (told.partition, told.committed, told.below) == ("t-0", "nothing", 3)


async def test_compaction_waits_for_an_answer(kept: Kept) -> None:
    kept.held.create("t", retention_hold_group=GROUP, **COMPACTED)
    kept.fill(6, keys=["same"])
    kept.commit(6)
    kept.coordinator.silent = {GROUP}
    assert await kept.compact() == [0, 1, 2, 3, 4, 5]


async def test_of_retention_and_compaction_the_worse_is_shown(kept: Kept) -> None:
    policy = {**COMPACTED, "cleanup_policy": "compact,delete", "retention_ms": "1000"}
    kept.held.create("t", retention_hold_group=GROUP, **policy)
    kept.fill(4, keys=["same"])
    await kept.compact()
    held = kept.hold()
    kept.clock.now += 1001
    await kept.retain()
    assert kept.hold().held_bytes == sum(sizes(kept)) > held.held_bytes


def test_a_hold_is_over_its_limit_until_the_group_has_passed_what_it_lost() -> None:
    hold = Hold(GROUP, 5, 0, lost_to=6)
    assert hold.over_limit
    assert not replace(hold, committed=6).over_limit
    assert not Hold(GROUP, NOTHING, 10).over_limit
