"""`penstock txn list`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser

EXAMPLES = """\
examples:
  penstock txn list
  penstock txn list --state Ongoing --older-than 300
  penstock txn list --pattern 'billing-.*'

What two phases commit is never aborted by time: 'penstock txn commit' and 'penstock txn abort' end it. Where a sink of
Spark has decided to commit it, the last column says which, and for which batch: its query does so when it is started.
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
    from penstock.cli.txn.decided import look_for_decided
    from penstock.cli.txn.transactions import age_s, described_at, is_two_phase, spoken, spoken_timeout
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
        known = described_at(address_of(broker), [each.transactional_id for each in answer.transaction_states])
        rows += [(each, known.get(each.transactional_id), broker_id) for each in answer.transaction_states]
    decided = look_for_decided(connection)
    rows.sort(key=lambda row: row[0].transactional_id)
    if args.json:
        print_json([
            {
                "id": each.transactional_id, "state": each.transaction_state, "producer_id": each.producer_id,
                "coordinator": broker_id, "open_s": age_s(state) if state is not None else None,
                "two_phase": state is not None and is_two_phase(state),
                "decided_by": decided.by(state),
            }
            for each, state, broker_id in rows
        ])  # fmt: skip
    elif rows:
        print_table(
            ["id", "state", "open for", "aborted after", "producer id", "coordinator", "to be committed by"],
            [
                (
                    each.transactional_id, each.transaction_state, spoken(age_s(state) if state is not None else None),
                    spoken_timeout(state) if state is not None else "-", each.producer_id, broker_id,
                    decided.by(state) or "-",
                )
                for each, state, broker_id in rows
            ],
        )  # fmt: skip
    else:
        print("There are no such transactions.")
    return 0
