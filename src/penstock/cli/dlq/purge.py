"""`penstock dlq purge`: letters that nobody will need."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.dlq.options import FILTERS, add_filters, add_topic
from penstock.cli.parser import Parser, add_yes

if TYPE_CHECKING:
    from penstock.cli.connection import Connection

EXAMPLES = f"""\
What is purged is not shown and not redriven any more. It is deleted from the disk as soon as nothing is left before it
that is still wanted: a log can be deleted from its beginning only.

{FILTERS}
examples:
  penstock dlq purge orders.billing.dlq --dry-run
  penstock dlq purge orders.billing.dlq --until 30d --yes
  penstock dlq purge orders.billing.dlq --done --yes         only what was redriven or purged already
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    add_topic(parser)
    add_filters(parser)
    parser.add_argument("--done", action="store_true", help="delete what is done, and give up nothing more")
    parser.add_argument("--dry-run", action="store_true", help="only say how many")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.dlq.letters import PURGED
    from penstock.cli.dlq.options import Bar, filter_of
    from penstock.cli.dlq.selection import select
    from penstock.cli.output import plural, print_json

    what = "what is done of" if args.done else "dead letters of"
    wanted = (lambda letter: False) if args.done else filter_of(args)
    connection, marking, held = select(args, f"Delete {what} {args.topic} for good?", wanted)
    deleted = 0
    if marking is not None:
        with Bar(args, "purging") as bar:
            letters = held.shelf.letters(held.letters)
            marking.do(letters, PURGED, lambda letter: None, bar.of(len(held.letters)))
        deleted = _delete_done(connection, args.topic)
    else:
        given_up = {slot.place for slot in held.letters}
        deleted = sum(held.first_open(partition, given_up) - start for partition, start in held.starts.items())
    if args.json:
        print_json({"topic": args.topic, "purged": len(held.letters), "deleted": deleted, "dry_run": args.dry_run})
    elif args.dry_run:
        more = ", and their marks" if held.letters else ""
        what = f"{plural(len(held.letters), 'dead letter')}, and delete {plural(deleted, 'record')}{more}"
        print(f"Would give up {what}.")
    else:
        print(f"Gave up {plural(len(held.letters), 'dead letter')}, and deleted {plural(deleted, 'record')}.")
    return 0


def _delete_done(connection: Connection, topic: str) -> int:
    """Up to the first letter that is not done. A mark is behind its letter, so none goes before its letter does."""
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import REQUEST_TIMEOUT_S
    from penstock.cli.dlq.letters import read

    held = read(connection, topic, lambda letter: False)
    limits = {partition: held.first_open(partition) for partition in held.starts}
    doomed = {partition: limit for partition, limit in limits.items() if limit > held.starts[partition]}
    if doomed:
        places = [TopicPartition(topic, partition, limit) for partition, limit in doomed.items()]
        futures = connection.admin.delete_records(places, request_timeout=REQUEST_TIMEOUT_S)
        for place, future in futures.items():
            connection.wait(future, f"can't delete from {place.topic}[{place.partition}]")
    return sum(limit - held.starts[partition] for partition, limit in doomed.items())
