"""`penstock txn commit`: what was prepared in two phases (KIP-939), and nobody is there to commit.

Of any other transaction, only its producer knows whether all of it was written. What a sink of Spark has prepared is
committed if the sink has decided so.
"""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser, add_yes

EXAMPLES = """\
examples:
  penstock txn commit billing-1
  penstock txn commit billing-1 --yes --json
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("id", metavar="ID", help="the transactional id")
    parser.add_argument("--force", action="store_true", help="commit it although its sink has decided nothing")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import confirm, print_json
    from penstock.cli.problem import Problem
    from penstock.cli.txn.decided import OF_SINKS, read_decided
    from penstock.cli.txn.transactions import age_s, described, end_prepared, is_two_phase, spoken

    connection = connect(args)
    state = described(connection, args.id)
    if state.transaction_state != "Ongoing":
        raise Problem(f"{args.id} has no transaction open: it is {state.transaction_state}.")
    if not is_two_phase(state):
        hint = f"'penstock txn abort {args.id}' aborts it."
        raise Problem(
            f"the transaction of {args.id} was not prepared in two phases: only its producer may commit.", hint
        )
    if args.id.startswith(OF_SINKS) and not args.force and read_decided(connection).by(state) is None:
        raise Problem(
            f"{args.id} was prepared by a sink of Spark, which has not decided to commit it: the query writes these "
            "rows again when it is started again, and they would be there twice.",
            f"Start the query, or use 'penstock txn abort {args.id}'. --force commits it all the same.",
        )
    confirm(
        f"Commit the transaction of {args.id}, open for {spoken(age_s(state))}? Do it if that was decided. Its producer"
        " can't go on then, and must be started again.",
        args.yes,
    )
    end_prepared(connection, state, commit=True)
    if args.json:
        print_json({"id": args.id, "committed": True})
    else:
        print(f"Committed the transaction of {args.id}.")
    return 0
