"""`penstock archive verify`: the archive and the log, record by record."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.cli.archive.needs import add_archive
from penstock.cli.parser import Parser
from penstock.cli.problem import FAILURE

if TYPE_CHECKING:
    from penstock.pipeline.archive.layout import Archive, Resolved
    from penstock.pipeline.archive.status import Ends
    from penstock.pipeline.archive.verifying import Compared, Difference
    from penstock.pipeline.brokers import Brokers

EXAMPLES = """\
What the log has deleted by now can't be compared, and is counted. The exit code is 1 if anything differs.

examples:
  penstock archive verify --topic orders
  penstock archive verify --archive /srv/archive --json
"""
PATIENCE_S = 30.0
SHOWN_MAX = 20


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    add_archive(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.archive.needs import need, open_archive, open_brokers, plain_refusals, wanted_topics

    need("pyarrow")
    with plain_refusals(), open_brokers(args, PATIENCE_S) as brokers:
        archive = open_archive(args, brokers)
        found = _verify(args, brokers, archive, wanted_topics(args, archive))
    differences = found.differences
    if args.json:
        _print_json(found)
    else:
        _show(found)
    return FAILURE if differences else 0


def _verify(args: argparse.Namespace, brokers: Brokers, archive: Archive, topics: list[str]) -> Compared:
    from rich import progress

    from penstock.cli.output import console
    from penstock.pipeline.archive.status import log_ends
    from penstock.pipeline.archive.verifying import (
        Compared,
        compare,
        compare_again,
        compare_ends,
        is_another,
        is_compacted,
    )

    total = Compared()
    others = {topic for topic in topics if is_another(brokers, archive, topic)}
    listed = {
        topic: (archive.resolved(topic), log_ends(brokers, topic) if topic not in others else {}) for topic in topics
    }
    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=console(stderr=True),
        disable=args.json or not sys.stderr.isatty(),
    )
    with bars:
        bar = bars.add_task("comparing", total=sum(_offsets(*each) for each in listed.values()))
        for topic, (resolved, ends) in listed.items():
            total.add(compare_ends(topic, resolved.pieces, ends, another=topic in others))
            total.differences += _uncovered(topic, resolved, ends)
            compacted = is_compacted(brokers, topic)
            logs = {place.partition: log for place, log in ends.items()}
            for piece in resolved.pieces:
                within = logs.get(piece.partition, (0, 0))
                try:
                    found = compare(
                        brokers, archive, topic, piece, within, compacted=compacted, advance=partial(bars.advance, bar)
                    )
                except FileNotFoundError:
                    found = compare_again(brokers, archive, topic, piece, within, compacted=compacted)
                total.add(found)
    return total


def _offsets(resolved: Resolved, ends: Ends) -> int:
    logs = {place.partition: log for place, log in ends.items()}
    total = 0
    for each in resolved.pieces:
        start, stop = logs.get(each.partition, (0, 0))
        total += max(0, min(each.stop, stop) - max(each.start, start))
    return total


def _uncovered(topic: str, resolved: Resolved, ends: Ends) -> list[Difference]:
    """What the log has before the archive's end, and the archive in no file; and what it has twice."""
    from penstock.pipeline.archive.layout import coverage_of
    from penstock.pipeline.archive.status import gaps_of
    from penstock.pipeline.archive.verifying import Difference
    from penstock.pipeline.brokers import TopicPartition

    found = []
    covered = coverage_of(resolved.pieces)
    for place, log in ends.items():
        for start, stop in gaps_of(covered.get(place.partition, []), log):
            if stop > log[0]:
                problem = f"the log has offsets up to {stop - 1} that are in no file"
                found.append(Difference(place, max(start, log[0]), problem))
    for a, b in resolved.overlaps:
        problem = f"[{a.start}, {a.stop}) and [{b.start}, {b.stop}) overlap: records are doubled"
        found.append(Difference(TopicPartition(topic, a.partition), b.start, problem))
    return found


def _print_json(found: Compared) -> None:
    from penstock.cli.output import print_json

    differences: list[dict[str, Any]] = [
        {"topic": each.place.topic, "partition": each.place.partition, "offset": each.offset, "problem": each.problem}
        for each in found.differences
    ]
    told = {"records": found.records, "compacted": found.compacted, "skipped": found.skipped}
    print_json({**told, "differences": differences})


def _show(found: Compared) -> None:
    from penstock.cli.output import plural

    for each in found.differences[:SHOWN_MAX]:
        print(each)
    if len(found.differences) > SHOWN_MAX:
        print(f"… and {len(found.differences) - SHOWN_MAX:,} more: --json has all of them.")
    verdict = plural(len(found.differences), "difference") if found.differences else "no difference"
    print(f"Compared {plural(found.records, 'record')}: {verdict}.")
    if found.compacted:
        print(f"{plural(found.compacted, 'record')} more are in the archive alone: the log was compacted.")
    if found.skipped:
        print(f"{plural(found.skipped, 'offset')} of the archive could not be compared: the log does not have them.")
