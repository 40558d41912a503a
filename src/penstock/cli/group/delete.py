"""`penstock group delete`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser, add_yes

EXAMPLES = """\
examples:
  penstock group delete billing
  penstock group delete billing audit --yes
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("groups", metavar="NAME", nargs="+")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import REQUEST_TIMEOUT_S, connect
    from penstock.cli.group.groups import listings, unknown
    from penstock.cli.output import confirm, print_json
    from penstock.cli.topic.refusals import report_all

    connection = connect(args)
    names = list(dict.fromkeys(args.groups))
    known = {listing.group_id for listing in listings(connection)}
    for name in names:
        if name not in known:
            raise unknown(connection, name)
    confirm(f"Delete {', '.join(names)} and where it was for good?", args.yes)
    futures = connection.admin.delete_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
    deleted, problems = report_all(connection, futures, "can't delete {!r}")
    if args.json:
        print_json({"deleted": deleted})
    for name in () if args.json else deleted:
        print(f"Deleted {name}.")
    return problems.finish()
