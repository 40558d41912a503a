"""What comes before letters are redriven or purged: which they are, and that this is meant."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.cli.connection import Connection, connect
from penstock.cli.dlq.letters import Held, Letter, read, refuse_ordinary
from penstock.cli.dlq.options import Bar
from penstock.cli.dlq.transaction import Marking
from penstock.cli.output import confirm


def select(
    args: argparse.Namespace, question: str, wanted: Callable[[Letter], bool]
) -> tuple[Connection, Marking | None, Held]:
    """No marking in a dry run. It comes before the reading, so that no two of them mark what both have read."""
    connection = connect(args)
    connection.topic(args.topic)
    if not args.any_topic:
        refuse_ordinary(args.topic)
    if not args.dry_run:
        confirm(question, args.yes)
    marking = None if args.dry_run else Marking(connection, args.topic)
    with Bar(args, f"reading {args.topic}") as bar:
        return connection, marking, read(connection, args.topic, wanted, bar.update)
