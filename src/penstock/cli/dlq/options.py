"""Options that the commands share: which letters, and of which topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, key_value
from penstock.cli.positions import TIMES, parse_time

if TYPE_CHECKING:
    from penstock.cli.dlq.shelf import Letter

FILTERS = f"""\
filters:
  --since and --until look at when a message failed; --error at the error and its type, in any case; --header at the
  headers that the message was sent with. A letter must fit all of them. Times are
  {TIMES}
"""


def add_topic(parser: Parser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="a topic of dead letters, such as orders.billing.dlq")
    parser.add_argument(
        "--any-topic", action="store_true", help="though neither its name nor its first messages say so"
    )


def add_filters(parser: Parser) -> None:
    parser.add_argument("--since", metavar="TIME", type=parse_time, help="only what failed at this time or later")
    parser.add_argument("--until", metavar="TIME", type=parse_time, help="only what failed before this time")
    parser.add_argument("--error", metavar="TEXT", help="only where the error has this text in it")
    parser.add_argument(
        "--header", dest="headers", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="repeatable"
    )


def filter_of(args: argparse.Namespace) -> Callable[[Letter], bool]:
    def wanted(letter: Letter) -> bool:
        if args.since is not None and letter.failed_at_ms < args.since:
            return False
        if args.until is not None and letter.failed_at_ms >= args.until:
            return False
        if args.error is not None:
            said = f"{letter.facts.get('error.type', '')}: {letter.facts.get('error', '')}"
            if args.error.lower() not in said.lower():
                return False
        found = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
        return all(found.get(name) == value for name, value in args.headers)

    return wanted


class Bar:
    """Drawn on standard error, and only for a person."""

    def __init__(self, args: argparse.Namespace, doing: str) -> None:
        from rich import progress

        from penstock.cli.output import console

        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            console=console(stderr=True),
            disable=args.json or not sys.stderr.isatty(),
            transient=True,
        )
        self._bar = self._bars.add_task(doing, total=None)

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def update(self, done: int, total: int) -> None:
        self._bars.update(self._bar, completed=done, total=total)

    def of(self, total: int) -> Callable[[int], None]:
        return lambda done: self.update(done, total)
