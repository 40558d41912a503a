"""`penstock archive compact`: small files merged into larger ones."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli.archive.needs import add_archive, add_compression, byte_size
from penstock.cli.parser import Parser

if TYPE_CHECKING:
    from penstock.pipeline.archive.compaction import Merge
    from penstock.pipeline.archive.layout import Archive

EXAMPLES = """\
examples:
  penstock archive compact --topic orders
  penstock archive compact --archive s3a://lake/topics --target 512MB
"""
PATIENCE_S = 10.0


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--target", metavar="SIZE", type=byte_size, default=256 << 20, help="how large files shall be (default: 256MB)"
    )
    add_compression(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be merged")
    add_archive(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.archive.needs import need, open_archive, open_brokers, plain_refusals, wanted_topics
    from penstock.cli.output import plural, print_json
    from penstock.pipeline.archive import compaction

    need("pyarrow")
    with plain_refusals():
        with open_brokers(args, PATIENCE_S) as brokers:
            archive = open_archive(args, brokers)
        topics = wanted_topics(args, archive)
        with compaction.alone(archive):
            cleared = 0 if args.dry_run else sum(compaction.clear(archive, topic) for topic in topics)
            merges = [each for topic in topics for each in compaction.plan(topic, archive.pieces(topic), args.target)]
            after = sum(len(each.days) for each in merges) if args.dry_run else _execute(args, archive, merges)
    before = sum(each.files for each in merges)
    if args.json:
        done = [{"topic": m.topic, "partition": m.partition, "range": [m.start, m.stop]} for m in merges]
        print_json({"merges": done, "files_before": before, "files_after": after, "cleared": cleared})
        return 0
    if cleared:
        print(f"Deleted {plural(cleared, 'file')} that were merged before, or that a killed job had left.")
    if not merges:
        print("Nothing to merge.")
    else:
        print(f"{'Would merge' if args.dry_run else 'Merged'} {plural(before, 'file')} into {after:,}.")
    if merges and not args.dry_run:
        print("What was merged stays for an hour, for whoever reads it; the next 'compact' or 'run' deletes it then.")
    return 0


def _execute(args: argparse.Namespace, archive: Archive, merges: list[Merge]) -> int:
    """The number of files that came out."""
    from rich import progress

    from penstock.cli.output import console
    from penstock.pipeline.archive import compaction

    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=console(stderr=True),
        disable=args.json or not sys.stderr.isatty(),
    )
    with bars:
        bar = bars.add_task("merging", total=sum(each.size for each in merges))
        return sum(
            len(compaction.execute(archive, each, args.compression, lambda size: bars.advance(bar, size)))
            for each in merges
        )
