"""`penstock archive status`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli.archive.needs import add_archive
from penstock.cli.parser import Parser

if TYPE_CHECKING:
    from penstock.pipeline.archive.layout import Archive
    from penstock.pipeline.archive.status import Ends, PartitionStatus, TopicStatus
    from penstock.pipeline.brokers import Brokers

EXAMPLES = """\
examples:
  penstock archive status --topic orders
  penstock archive status --archive /srv/archive --json
"""
PATIENCE_S = 5.0
NOTES_SHOWN_MAX = 20


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--no-rows", action="store_true", help="don't count rows, for which every file is opened")
    add_archive(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.archive.needs import need, open_archive, open_brokers, plain_refusals, wanted_topics
    from penstock.cli.output import print_json
    from penstock.pipeline.archive.status import status

    need("pyarrow")
    with plain_refusals(), open_brokers(args, PATIENCE_S) as brokers:
        archive = open_archive(args, brokers)
        topics = wanted_topics(args, archive)
        ends = _ends(brokers, topics)
        found = [status(archive, topic, ends.get(topic), count_rows=not args.no_rows) for topic in topics]
    if args.json:
        print_json(_document(archive, found))
    else:
        _show(archive, found)
    return 0


def _ends(brokers: Brokers, topics: list[str]) -> dict[str, Ends]:
    """An archive can be looked at without its brokers."""
    from penstock.pipeline.archive.status import log_ends
    from penstock.pipeline.problem import PipelineError

    try:
        return {topic: log_ends(brokers, topic) for topic in topics}
    except PipelineError as error:
        print(f"penstock: how far behind it is can't be told: {error}", file=sys.stderr)
        return {}


def _document(archive: Archive, found: list[TopicStatus]) -> dict[str, object]:
    return {
        "archive": archive.location.name,
        "topics": [
            {
                "topic": each.topic,
                "partitions": [partition.as_document() for partition in each.partitions],
                "superseded": each.superseded,
                "incomplete": each.incomplete,
                "overlaps": [
                    {"partition": a.partition, "ranges": [[a.start, a.stop], [b.start, b.stop]]}
                    for a, b in each.overlaps
                ],
            }
            for each in found
        ],
    }


def _show(archive: Archive, found: list[TopicStatus]) -> None:
    from penstock.cli.output import print_table

    print(f"{archive.location.name}\n")
    rows = [_row(each) for topic in found for each in topic.partitions]
    print_table(["topic", "partition", "from", "to", "files", "size", "rows", "gaps", "lag"], rows, right=[5])
    notes = _notes(found)
    if notes:
        print("\n" + "\n".join(notes[:NOTES_SHOWN_MAX]))
    if len(notes) > NOTES_SHOWN_MAX:
        print(f"… and {len(notes) - NOTES_SHOWN_MAX:,} more: --json has all of them.")


def _row(each: PartitionStatus) -> list[object]:
    from penstock.cli.archive.needs import human_bytes

    place: list[object] = [each.topic, each.partition, each.start, each.stop]
    return [*place, each.files, human_bytes(each.size), each.rows, len(each.gaps), each.lag]


def _notes(found: list[TopicStatus]) -> list[str]:
    from penstock.cli.output import plural

    notes = [
        f"{each.topic}-{each.partition}: offsets {start} to {stop - 1} are in no file"
        + (", and gone from the log." if (start, stop) in each.lost else ".")
        for topic in found
        for each in topic.partitions
        for start, stop in each.gaps
    ]
    for each in found:
        if each.superseded:
            files = plural(each.superseded, "file")
            notes.append(f"{each.topic}: {files} merged but not deleted yet; 'penstock archive compact' clears up.")
        if each.incomplete:
            notes.append(f"{each.topic}: {plural(each.incomplete, 'file')} of ranges that are not whole yet.")
        notes += [
            f"{each.topic}-{a.partition}: [{a.start}, {a.stop}) and [{b.start}, {b.stop}) overlap: records are doubled."
            for a, b in each.overlaps
        ]
    return notes
