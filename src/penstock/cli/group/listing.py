"""`penstock group list`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser

EXAMPLES = """\
examples:
  penstock group list
  penstock group list --json
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.group.groups import kind_name, listings, state_name
    from penstock.cli.output import print_json, print_table

    found = listings(connect(args))
    rows = []
    for listing in found:
        kind = kind_name(listing.type)
        rows.append((listing.group_id, state_name(listing.state, kind), kind))
    if args.json:
        print_json([{"group": group, "state": state, "type": kind} for group, state, kind in rows])
    elif rows:
        print_table(["group", "state", "type"], rows)
    else:
        print("There are no groups. A consumer makes one: 'penstock consume TOPIC --group NAME'.")
    return 0
