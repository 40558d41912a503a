"""`penstock topic delete`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser, add_yes

EXAMPLES = """\
examples:
  penstock topic delete orders
  penstock topic delete orders payments --yes
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topics", metavar="NAME", nargs="+")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import REQUEST_TIMEOUT_S, connect
    from penstock.cli.output import confirm, print_json
    from penstock.cli.problem import Problem
    from penstock.cli.topic.refusals import INTERNAL, report_all

    connection = connect(args)
    names = list(dict.fromkeys(args.topics))
    if kept := sorted(INTERNAL.intersection(names)):
        raise Problem(
            f"{kept[0]!r} holds what all groups or all transactions have stored, and is not deleted.",
            "'penstock group delete' and 'penstock group reset' are for one group.",
        )
    for name in names:
        connection.topic(name)
    confirm(f"Delete {', '.join(names)} and all that is in it for good?", args.yes)
    futures = connection.admin.delete_topics(names, request_timeout=REQUEST_TIMEOUT_S)
    deleted, problems = report_all(connection, futures, "can't delete {!r}")
    if args.json:
        print_json({"deleted": deleted})
    for name in () if args.json else deleted:
        print(f"Deleted {name}.")
    return problems.finish()
