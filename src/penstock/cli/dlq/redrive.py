"""`penstock dlq redrive`: back to the origin, each letter once."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.cli.dlq.options import FILTERS, add_filters, add_topic
from penstock.cli.parser import Parser, add_yes, positive

if TYPE_CHECKING:
    from penstock.cli.connection import Connection
    from penstock.cli.dlq.shelf import Letter

EXAMPLES = f"""\
A letter goes back to the topic and partition that it comes from, with the key, the value and the headers that it was
sent with, and all groups that read that topic see it again. Its time is now, from which on retention counts. It stays
here, marked, and is not sent a second time: not after a crash, not with other filters, and not if two people do this at
once. While a transaction is open among the letters, marks may not be seen yet: it is waited for, and nothing is sent if
it does not end.

{FILTERS}
examples:
  penstock dlq redrive orders.billing.dlq --dry-run
  penstock dlq redrive orders.billing.dlq --error TimeoutError --since 1d --yes
  penstock dlq redrive orders.billing.dlq --header region=eu --to orders-eu
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    add_topic(parser)
    add_filters(parser)
    parser.add_argument("--to", metavar="TOPIC", help="another topic than the origin")
    parser.add_argument("-n", "--count", metavar="N", type=positive, help="at most N, the oldest first")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent, and where")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.dlq.letters import REDRIVEN
    from penstock.cli.dlq.options import Bar, filter_of
    from penstock.cli.dlq.selection import select
    from penstock.cli.output import plural

    question = f"Send the dead letters of {args.topic} back?"
    connection, marking, held = select(args, question, filter_of(args), all_marks=True)
    chosen = held.letters[: args.count]
    targets = Counter(args.to or slot.topic for slot in chosen)
    _check(connection, args, targets)
    if marking is not None and chosen:
        letters = held.shelf.letters(chosen)
        with Bar(args, "redriving") as bar:
            marking.do(letters, REDRIVEN, lambda letter: _record(connection, args, letter), bar.of(len(chosen)))
    _report(args, targets, plural(len(chosen), "dead letter"))
    return 0


def _check(connection: Connection, args: argparse.Namespace, targets: Counter[str]) -> None:
    from penstock.cli.problem import Problem

    for topic, count in targets.items():
        if not topic:
            raise Problem(f"{count:,} of the letters do not say where they come from.", "Say it with --to TOPIC.")
        connection.topic(topic)
        if topic == args.topic:
            raise Problem(f"{topic} is where the letters are.", "Name another topic.")


def _record(connection: Connection, args: argparse.Namespace, letter: Letter) -> dict[str, Any]:
    """The message as it was, at its partition if there still is one of that number."""
    topic = args.to or letter.facts["topic"]
    record: dict[str, Any] = {"topic": topic, "key": letter.key, "value": letter.value, "headers": list(letter.headers)}
    number = letter.facts.get("partition", "")
    if not args.to and number.isdecimal() and int(number) in connection.topics[topic].partitions:
        record["partition"] = int(number)
    return record


def _report(args: argparse.Namespace, targets: Counter[str], letters: str) -> None:
    from penstock.cli.output import print_json, print_table

    if args.json:
        count = sum(targets.values())
        print_json(
            {"topic": args.topic, "redriven": count, "dry_run": args.dry_run, "to": dict(sorted(targets.items()))}
        )
        return
    if targets:
        print_table(["to", "letters"], sorted(targets.items()))
    print(f"Would send {letters} back." if args.dry_run else f"Sent {letters} back.")
