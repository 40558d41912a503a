"""`penstock txn list`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser

EXAMPLES = """\
examples:
  penstock txn list
  penstock txn list --state Ongoing --older-than 300
  penstock txn list --pattern 'billing-.*'
"""
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--state", action="append", choices=STATES, help="only those in this state; may be repeated")
    parser.add_argument("--older-than", metavar="SECONDS", type=float, help="only transactions open for longer")
    parser.add_argument("--pattern", metavar="REGEX", help="only ids that match all of it")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import print_json, print_table
    from penstock.cli.raw import address_of, ask, check
    from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

    connection = connect(args)
    request = ListTransactionsRequest(
        state_filters=args.state or [],
        duration_filter=-1 if args.older_than is None else int(args.older_than * 1000),
        transactional_id_pattern=args.pattern,
    )
    version = 2 if args.pattern else 1 if args.older_than is not None else 0
    rows = []
    for broker_id, broker in sorted(connection.cluster.brokers.items()):
        answer = ask(address_of(broker), request, version, ListTransactionsResponse)
        check(answer.error_code, "can't list transactions")
        rows += [(s.transactional_id, s.transaction_state, s.producer_id, broker_id) for s in answer.transaction_states]
    rows.sort()
    if args.json:
        print_json([dict(zip(("id", "state", "producer_id", "coordinator"), row)) for row in rows])
    elif rows:
        print_table(["id", "state", "producer id", "coordinator"], rows)
    else:
        print("There are no such transactions.")
    return 0
