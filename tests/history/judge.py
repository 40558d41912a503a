"""The verdict on a history: which promises were broken, and how long nothing went on.

    python -m tests.history.judge FILE...

What was acknowledged must be in every final read; everything else follows from comparing what different parties saw of
one place. A history without a final read proves nothing, which is a violation too.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tests.history.events import (
    ABORTED,
    COMMITTED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    BadHistory,
    Event,
    FinalRead,
    Message,
    load_all,
)
from tests.history.pauses import Pause, longest_pauses
from tests.history.tally import Partition, Tally

EXAMPLES_MAX = 5
PAUSES_SHOWN = 4


class Broken(Enum):
    """A promise, by what became of it."""

    LOST = "acknowledged, but lost"
    PARTIAL = "transactions that were done in part"
    ABORTED = "read, though aborted"
    DUPLICATE = "written twice by an idempotent producer"
    ORDER = "out of order"
    CHANGED = "offsets whose content changed"
    VANISHED = "read once, and gone later"
    SKIPPED = "left out by a reader"
    INVENTED = "read or acknowledged, but never sent so"
    HANGING = "transactions that never ended"
    UNPROVEN = "not read to the end"


@dataclass(slots=True)
class Verdict:
    counts: Counter[Broken] = field(default_factory=Counter)
    examples: dict[Broken, list[str]] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
    pauses: list[Pause] = field(default_factory=list)  # overall, then by partition, the longest first

    @property
    def is_clean(self) -> bool:
        return not self.counts

    def add(self, broken: Broken, what: str) -> None:
        self.counts[broken] += 1
        examples = self.examples.setdefault(broken, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(what)

    def __str__(self) -> str:
        lines = ["KEPT" if self.is_clean else "BROKEN"]
        for broken in Broken:
            if count := self.counts[broken]:
                lines += [f"  {count} {broken.value}:", *(f"    {example}" for example in self.examples[broken])]
        lines.append("  " + ", ".join(f"{name} {count}" for name, count in self.facts.items()))
        for title, counter in (("failed", self.failures), ("troubles", self.troubles)):
            if counter:
                lines.append(f"  {title}: " + ", ".join(f"{what} ({count})" for what, count in counter.most_common(10)))
        lines += [f"  longest without an acknowledgement: {pause}" for pause in self.pauses[:PAUSES_SHOWN]]
        return "\n".join(lines)


def judge(events: Iterable[Event]) -> Verdict:
    tally = Tally().take_all(events)
    verdict = Verdict(failures=tally.failures, troubles=tally.troubles, pauses=longest_pauses(tally))
    for what in tally.changed:
        verdict.add(Broken.CHANGED, what)
    for what in (*tally.invented, *tally.never_sent()):
        verdict.add(Broken.INVENTED, what)
    _judge_readers(tally, verdict)
    _judge_aborted(tally, verdict)
    for final in tally.final_reads:
        _judge_final(tally, final, verdict)
    _judge_coverage(tally, verdict)
    verdict.facts = _facts(tally)
    return verdict


def _judge_readers(tally: Tally, verdict: Verdict) -> None:
    for (reader, partition), reading in tally.readings.items():
        before = -1
        for slot, offset in enumerate(reading.offsets):
            if slot not in reading.began_anew and offset <= before:
                verdict.add(Broken.ORDER, f"{reader.name} read {offset} of {partition} behind {before}")
            before = offset


def _judge_aborted(tally: Tally, verdict: Verdict) -> None:
    for message, sending in tally.sendings.items():
        if sending.was_read_committed is not None and tally.outcome(message) == ABORTED:
            verdict.add(Broken.ABORTED, f"{message} by {sending.was_read_committed}")


# ---- a final read


def _judge_final(tally: Tally, final: FinalRead, verdict: Verdict) -> None:
    found = tally.messages_of(final)
    messages = {message for pairs in found.values() for _, message in pairs}
    _judge_lost(tally, final, messages, verdict)
    if final.isolation == READ_COMMITTED:
        _judge_whole_transactions(tally, final, messages, verdict)
    _judge_order(tally, final, found, verdict)
    _judge_vanished(tally, final, found, verdict)
    _judge_skipped(tally, final, found, verdict)


def _judge_lost(tally: Tally, final: FinalRead, messages: set[Message], verdict: Verdict) -> None:
    for message, sending in tally.sendings.items():
        if sending.place is None or message in messages or sending.sent_to[0] != final.topic:
            continue
        outcome = tally.outcome(message)
        if outcome in (None, COMMITTED) or final.isolation == READ_UNCOMMITTED:
            verdict.add(Broken.LOST, f"{message}, acknowledged at {sending.place}, is not in {final.reader}")


def _judge_whole_transactions(tally: Tally, final: FinalRead, messages: set[Message], verdict: Verdict) -> None:
    """A committed one is there with all that was sent in it; one whose outcome nobody knows is there whole or not."""
    parts: dict[tuple[str, int], list[Message]] = defaultdict(list)
    for message, sending in tally.sendings.items():
        if sending.transaction is not None and sending.was_taken and sending.sent_to[0] == final.topic:
            parts[message.producer, sending.transaction].append(message)
    for (producer, number), members in parts.items():
        there = sum(message in messages for message in members)
        outcome = tally.outcome(members[0])
        if there == len(members) or outcome == ABORTED or (there == 0 and outcome != COMMITTED):
            continue
        what = f"transaction {number} of {producer} ({outcome})"
        verdict.add(Broken.PARTIAL, f"{what}: {there} of {len(members)} messages are in {final.reader}")


def _judge_order(
    tally: Tally, final: FinalRead, found: dict[Partition, list[tuple[int, Message]]], verdict: Verdict
) -> None:
    seen: dict[Message, str] = {}
    for partition, pairs in found.items():
        highest: dict[str, int] = {}
        for offset, message in pairs:
            if not tally.is_idempotent(message.producer):
                continue
            where = f"offset {offset} of {partition}"
            if message in seen:
                verdict.add(Broken.DUPLICATE, f"{message} at {seen[message]} and at {where} in {final.reader}")
            elif message.number < highest.get(message.producer, -1):
                before = highest[message.producer]
                verdict.add(Broken.ORDER, f"{message} at {where} stands behind number {before} in {final.reader}")
            seen.setdefault(message, where)
            highest[message.producer] = max(highest.get(message.producer, -1), message.number)


def _judge_vanished(
    tally: Tally, final: FinalRead, found: dict[Partition, list[tuple[int, Message]]], verdict: Verdict
) -> None:
    """Who reads without waiting for transactions sees more, and that may go; for all others what was read stays."""
    there = {partition: {offset for offset, _ in pairs} for partition, pairs in found.items()}
    for (reader, partition), reading in tally.readings.items():
        if partition.topic != final.topic or (reader.isolation, final.isolation) == (READ_UNCOMMITTED, READ_COMMITTED):
            continue
        for offset in sorted(set(reading.offsets) - there.get(partition, set())):
            verdict.add(
                Broken.VANISHED, f"offset {offset} of {partition}, read by {reader.name}, not by {final.reader}"
            )


def _judge_skipped(
    tally: Tally, final: FinalRead, found: dict[Partition, list[tuple[int, Message]]], verdict: Verdict
) -> None:
    """A reader goes from one message to the next, and a group misses none before the last that it read."""
    by_group: dict[tuple[str, Partition], set[int]] = defaultdict(set)
    for (reader, partition), reading in tally.readings.items():
        if partition.topic != final.topic or reader.isolation != final.isolation:
            continue
        visible = sorted(offset for offset, _ in found.get(partition, []))
        for before, offset in _steps(reading.offsets, reading.began_anew):
            if missed := visible[bisect_right(visible, before) : bisect_left(visible, offset)]:
                verdict.add(
                    Broken.SKIPPED, f"{reader.name} went from {before} to {offset} of {partition}, past {missed[0]}"
                )
        if reader.group is not None:
            by_group[reader.group, partition].update(reading.offsets)
    for (group, partition), offsets in by_group.items():
        last = max(offsets)
        for offset, message in found.get(partition, []):
            if offset < last and offset not in offsets:
                verdict.add(Broken.SKIPPED, f"group {group} never read {message} at {offset} of {partition}")


def _steps(offsets: list[int], began_anew: set[int]) -> Iterator[tuple[int, int]]:
    for slot in range(1, len(offsets)):
        if slot not in began_anew:
            yield offsets[slot - 1], offsets[slot]


# ---- whether there is enough to judge


def _judge_coverage(tally: Tally, verdict: Verdict) -> None:
    ends: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for final in tally.final_reads:
        ends[final.topic][final.isolation] = final.ends
    for topic in sorted({sending.sent_to[0] for sending in tally.sendings.values()} - ends.keys()):
        verdict.add(Broken.UNPROVEN, f"nobody has read the whole of {topic} in the end")
    if not tally.sendings:
        verdict.add(Broken.UNPROVEN, "nothing was sent")
    for topic, by_isolation in ends.items():
        committed, whole = by_isolation.get(READ_COMMITTED), by_isolation.get(READ_UNCOMMITTED)
        if committed is not None and whole is not None and committed != whole:
            verdict.add(Broken.HANGING, f"{topic} is stable up to {committed} of {whole}")


def _facts(tally: Tally) -> dict[str, int]:
    outcomes = Counter(tally.outcomes.values())
    return {
        "sent": len(tally.sendings),
        "acknowledged": sum(map(len, tally.acknowledged_at.values())),
        "failed": sum(tally.failures.values()),
        "transactions": len(tally.outcomes),
        **{f"of these {outcome}": count for outcome, count in sorted(outcomes.items())},
        "reads": tally.reads,
        "final reads": len(tally.final_reads),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.history.judge", description="Judges what a run wrote down.")
    parser.add_argument("files", nargs="+", type=Path, help="the events of all processes of the run")
    try:
        verdict = judge(load_all(parser.parse_args().files))
    except (BadHistory, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(verdict)
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
