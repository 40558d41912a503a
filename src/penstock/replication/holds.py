"""Partitions that wait for a group: what it has committed, what is kept for it, and what it has lost.

A topic with `retention.hold.group` loses nothing to retention or compaction that the group has not committed, up to
`retention.hold.max.bytes`. Only the group's coordinator knows its offsets, which may be another broker: it is asked,
once for all partitions that wait for the group, and only while there is something that would go. As long as it does
not answer, everything stays. What goes because there is no more room for it is told with a warning, and remembered
until the group has committed what is behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.replication.partition import Partition
from penstock.storage.hold import Piece, judge

log = logging.getLogger("penstock.upkeep")

NOTHING = -1  # in place of an offset
WARN_AGAIN_MS = 5 * 60 * 1000
PARTITIONS_PER_QUESTION = 5_000
QUESTIONS_AT_ONCE = 100

Key = tuple[str, int]
Committed = Callable[[str, Sequence[Key]], Awaitable[dict[Key, int]]]
"""What a group has committed of partitions, or NOTHING. A partition of which that is not known now is left out."""


async def nobody_knows(group: str, partitions: Sequence[Key]) -> dict[Key, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Hold:
    """What a partition keeps for a group, when it was last looked at."""

    group: str
    committed: int  # or NOTHING
    held_bytes: int
    lost_to: int = NOTHING  # what lies below has gone, though the group had not committed it
    warned_ms: int = 0

    @property
    def over_limit(self) -> bool:
        return self.committed < self.lost_to


class Holds:
    """Of one kind of work that takes records away. `doing` says what it does, for the log."""

    def __init__(self, doing: str, committed: Committed, now_ms: Callable[[], int]) -> None:
        self._doing = doing
        self._committed = committed
        self._now_ms = now_ms
        self._holds: dict[Partition, Hold] = {}
        self._silent: dict[str, int] = {}  # groups whose coordinator does not answer, and when that was told

    def known(self) -> dict[Key, Hold]:
        return {(each.topic, each.index): hold for each, hold in self._holds.items()}

    async def released(
        self, partitions: Iterable[Partition], going: Callable[[Partition], Sequence[Piece]]
    ) -> AsyncIterator[tuple[Partition, int]]:
        """The partitions of which something may go, each with the offset below which it may. `going` says what would
        go if there were no group, and is asked again when it is known what the group has committed."""
        waiting = []
        for each in partitions:
            await asyncio.sleep(0)
            if each in self._holds or going(each):
                waiting.append(each)
        self._holds = {each: self._holds[each] for each in waiting if each in self._holds}
        groups = {each: each.log.settings.retention_hold_group for each in waiting}
        answers = await self._ask(groups)
        for partition, committed in answers.items():
            await asyncio.sleep(0)
            if partition.deleted or partition.log.settings.retention_hold_group != groups[partition]:
                self._holds.pop(partition, None)
                continue
            offset = self._look(partition, committed, going(partition))
            if offset != NOTHING:
                yield partition, offset

    async def _ask(self, groups: dict[Partition, str]) -> dict[Partition, int]:
        by_group: dict[str, list[Partition]] = {}
        for partition, group in groups.items():
            by_group.setdefault(group, []).append(partition)
        self._silent = {group: told_ms for group, told_ms in self._silent.items() if group in by_group}
        questions = [
            (group, partitions[start : start + PARTITIONS_PER_QUESTION])
            for group, partitions in by_group.items()
            for start in range(0, len(partitions), PARTITIONS_PER_QUESTION)
        ]
        answers: dict[Partition, int] = {}
        for start in range(0, len(questions), QUESTIONS_AT_ONCE):
            asked = (self._ask_one(*question) for question in questions[start : start + QUESTIONS_AT_ONCE])
            for found in await asyncio.gather(*asked):
                answers.update(found)
        return answers

    async def _ask_one(self, group: str, partitions: list[Partition]) -> dict[Partition, int]:
        found = await self._committed(group, [(each.topic, each.index) for each in partitions])
        if len(found) == len(partitions):
            self._silent.pop(group, None)
        else:
            now_ms = self._now_ms()
            if now_ms - self._silent.get(group, now_ms - WARN_AGAIN_MS) >= WARN_AGAIN_MS:
                self._silent[group] = now_ms
                facts = {"group": group, "partitions": len(partitions) - len(found)}
                log.warning("%s waits: what the group has committed is not known now", self._doing, extra=facts)
        return {each: found[each.topic, each.index] for each in partitions if (each.topic, each.index) in found}

    def _look(self, partition: Partition, committed: int, pieces: Sequence[Piece]) -> int:
        """The offset below which records may go, or NOTHING."""
        store, before = partition.log, self._holds.get(partition)
        group, max_bytes = store.settings.retention_hold_group, store.settings.retention_hold_max_bytes
        if committed > store.end_offset:
            committed = NOTHING  # of a log that ended later: this one is not meant
        verdict = judge(pieces, max(committed, store.start_offset), max_bytes)
        offset = pieces[verdict.may_go - 1].end_offset if verdict.may_go else NOTHING
        hold = Hold(group, committed, verdict.held_bytes)
        if before is not None and before.group == group:
            hold = Hold(group, committed, verdict.held_bytes, before.lost_to, before.warned_ms)
        if verdict.given_up_bytes:
            hold = self._give_up(partition, hold, offset, verdict.given_up_bytes)
        if hold.held_bytes or hold.over_limit:
            self._holds[partition] = hold
        else:
            self._holds.pop(partition, None)
        return offset

    def _give_up(self, partition: Partition, before: Hold, offset: int, size: int) -> Hold:
        now_ms, warned_ms = self._now_ms(), before.warned_ms
        if not before.over_limit or now_ms - warned_ms >= WARN_AGAIN_MS:
            warned_ms = now_ms
            facts = {
                "partition": partition.name, "group": before.group,
                "committed": before.committed if before.committed != NOTHING else "nothing", "below": offset,
                "bytes": size, "held": before.held_bytes,
                "max": partition.log.settings.retention_hold_max_bytes,
            }  # fmt: skip
            log.warning(
                "%s goes over what the group has not committed: retention.hold.max.bytes is reached",
                self._doing,
                extra=facts,
            )
        return Hold(before.group, before.committed, before.held_bytes, offset, warned_ms)
