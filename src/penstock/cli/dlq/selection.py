"""What comes before letters are redriven or purged: which they are, and that this is meant."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.cli.connection import Connection, connect
from penstock.cli.dlq.finding import refuse_ordinary
from penstock.cli.dlq.letters import Held, is_dead_letters, read
from penstock.cli.dlq.options import Bar
from penstock.cli.dlq.shelf import Letter
from penstock.cli.dlq.transaction import Marking
from penstock.cli.output import confirm
from penstock.cli.problem import Problem

# A handler's hand-over has 10 s. Whoever needs longer than this is dead, or no handler.
OPEN_S_MAX = 20.0


def select(
    args: argparse.Namespace, question: str, wanted: Callable[[Letter], bool], all_marks: bool = False
) -> tuple[Connection, Marking | None, Held]:
    """No marking in a dry run. It comes before the reading, so that no two of them mark what both have read.

    With `all_marks`, a transaction that is open in the topic is waited for: marks behind it are not to be seen, and the
    letters they mark would be dealt with again.
    """
    connection = connect(args)
    connection.topic(args.topic)
    if not args.any_topic:
        refuse_ordinary(connection, args.topic)
    if not args.dry_run:
        confirm(question, args.yes)
    marking = None if args.dry_run else Marking(connection, args.topic)
    with Bar(args, f"reading {args.topic}") as bar:
        held = read(connection, args.topic, wanted, bar.update, open_s_max=OPEN_S_MAX if all_marks else 0.0)
    if held.strangers and not args.any_topic and not is_dead_letters(args.topic):
        raise Problem(
            f"{held.strangers:,} of the messages in {args.topic} are no dead letters.",
            "Use --any-topic if they are meant, too.",
        )
    for partition, end in held.ends.items():
        if all_marks and held.reached[partition] < end:
            raise Problem(
                f"a transaction is open in {args.topic}[{partition}], from offset {held.reached[partition]} on.",
                "What was sent back already may be marked behind it, so nothing is sent. Wait until it has ended; "
                "'penstock txn list' shows it, and 'penstock txn abort' ends one that nobody will.",
            )
    return connection, marking, held
