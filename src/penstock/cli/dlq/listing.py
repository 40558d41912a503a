"""`penstock dlq list`."""

from __future__ import annotations

import argparse
import sys

from penstock.cli.parser import Parser

EXAMPLES = """\
examples:
  penstock dlq list
  penstock dlq list --all --json
  penstock dlq list graveyard                                 whatever its settings

Topics are listed whose names end in .dlq (of handlers) or -dead-letters (of pipelines), if there is something in them;
and those of other names that keep everything (retention.ms=-1) and begin with dead letters, as those that a handler
with dead_letter="graveyard" makes. Any other is to be named, as is one among more than 2,000 topics.
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="these, whatever their names; all, if none is named")
    parser.add_argument("--all", action="store_true", help="also those that have none left")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.dlq.finding import all_dead_letters
    from penstock.cli.dlq.letters import REDRIVEN, read
    from penstock.cli.dlq.options import Bar
    from penstock.cli.output import local_time, print_json, print_table

    connection = connect(args)
    rows = []
    for name in args.topics:
        connection.topic(name)
    for name in args.topics or all_dead_letters(connection):
        with Bar(args, f"reading {name}") as bar:
            held = read(connection, name, lambda letter: False, bar.update)
        redriven = sum(how == REDRIVEN for how in held.done.values())
        if held.open or args.all:
            times = (min(held.open.values()), max(held.open.values())) if held.open else (None, None)
            rows.append((name, len(held.open), redriven, len(held.done) - redriven, *times))
    if args.json:
        names = ("topic", "letters", "redriven", "purged", "oldest_ms", "newest_ms")
        print_json([dict(zip(names, row)) for row in rows])
    elif rows:
        shown = [(*row[:4], *(None if each is None else local_time(each) for each in row[4:])) for row in rows]
        print_table(["topic", "letters", "redriven", "purged", "oldest", "newest"], shown)
    else:
        print("There are no dead letters.")
        if not args.topics:
            print("A topic of another name that does not keep everything is to be named.", file=sys.stderr)
    return 0
