"""`penstock topic list`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser

EXAMPLES = """\
examples:
  penstock topic list
  penstock topic list --internal --json
"""
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--internal", action="store_true", help="also the broker's own topics")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import print_json, print_table

    topics = connect(args).topics
    rows = []
    for name in sorted(topics):
        if args.internal or name not in INTERNAL:
            partitions = topics[name].partitions
            rows.append((name, len(partitions), max((len(p.replicas) for p in partitions.values()), default=0)))
    if args.json:
        print_json([{"topic": name, "partitions": count, "replicas": replicas} for name, count, replicas in rows])
    elif rows:
        print_table(["topic", "partitions", "replicas"], rows)
    else:
        print("There are no topics. Create one with 'penstock topic create NAME'.")
    return 0
