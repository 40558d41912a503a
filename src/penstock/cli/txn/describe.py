"""`penstock txn describe`."""

from __future__ import annotations

import argparse

from penstock.cli.parser import Parser

EXAMPLES = """\
examples:
  penstock txn describe billing-1
  penstock txn describe billing-1 --json
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("id", metavar="ID", help="the transactional id")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import print_facts, print_json, print_table
    from penstock.cli.txn.decided import look_for_decided
    from penstock.cli.txn.transactions import age_s, described, is_two_phase, spoken, spoken_timeout

    connection = connect(args)
    state = described(connection, args.id)
    decided_by = look_for_decided(connection).by(state)
    open_s = age_s(state)
    if args.json:
        print_json({
            "id": state.transactional_id, "state": state.transaction_state, "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch, "timeout_ms": state.transaction_timeout_ms,
            "two_phase": is_two_phase(state), "open_s": open_s, "decided_by": decided_by,
            "partitions": [
                {"topic": topic.topic, "partition": index} for topic in state.topics for index in topic.partitions
            ],
        })  # fmt: skip
        return 0
    facts = [
        ("id", state.transactional_id), ("state", state.transaction_state), ("producer id", state.producer_id),
        ("producer epoch", state.producer_epoch), ("aborted after", spoken_timeout(state)),
        ("open for", spoken(open_s)), ("to be committed by", decided_by or "-"),
    ]  # fmt: skip
    print_facts(facts)
    if state.topics:
        print()
        print_table(["topic", "partitions"], [(t.topic, ", ".join(map(str, t.partitions))) for t in state.topics])
    return 0
