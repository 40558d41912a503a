"""`penstock dlq show`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.dlq.options import FILTERS, add_filters, add_topic
from penstock.cli.parser import Parser, positive

if TYPE_CHECKING:
    from penstock.cli.dlq.shelf import Letter

EXAMPLES = f"""\
{FILTERS}
examples:
  penstock dlq show orders.billing.dlq
  penstock dlq show orders.billing.dlq --error TimeoutError --since 2h
  penstock dlq show orders.billing.dlq -n 1 --stack           with the stack, and the value
  penstock dlq show orders.billing.dlq --json | jq .error     one object a line
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    add_topic(parser)
    add_filters(parser)
    parser.add_argument("-n", "--count", metavar="N", type=positive, help="only the last N")
    parser.add_argument("--done", action="store_true", help="also what was redriven or purged already")
    parser.add_argument("--stack", action="store_true", help="each with its stack, its headers and its value")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.dlq.finding import refuse_ordinary
    from penstock.cli.dlq.letters import read
    from penstock.cli.dlq.options import Bar, filter_of
    from penstock.cli.output import plural, print_table

    connection = connect(args)
    connection.topic(args.topic)
    if not args.any_topic:
        refuse_ordinary(connection, args.topic)
    with Bar(args, f"reading {args.topic}") as bar:
        held = read(connection, args.topic, filter_of(args), bar.update, keep_done=args.done)
    chosen = held.letters[-args.count :] if args.count else held.letters
    shown = held.shelf.letters(chosen)
    if args.json:
        for letter in shown:
            print(json.dumps(_document(letter, held.done.get(letter.place)), ensure_ascii=False))
    elif args.stack:
        for letter in shown:
            _print_whole(letter, held.done.get(letter.place))
    elif chosen:
        rows = [_row(letter, held.done.get(letter.place)) for letter in shown]
        columns = ["letter", "failed at", "origin", "attempts", "error"]
        print_table([*columns, "done"] if args.done else columns, rows if args.done else [row[:5] for row in rows])
    if not args.json:
        more = f", the last {len(chosen):,} of them shown" if len(chosen) < len(held.letters) else ""
        sys.stdout.flush()  # so that it comes behind the table, wherever both go to
        print(f"{plural(len(held.letters), 'dead letter')}{more}.", file=sys.stderr)
    return 0


def _row(letter: Letter, done: str | None) -> tuple[Any, ...]:
    from penstock.cli.output import local_time
    from penstock.cli.records import printable

    error = letter.facts.get("error", "").encode()
    attempts = letter.facts.get("attempts", "")
    return (
        f"{letter.partition}/{letter.offset}",
        local_time(letter.failed_at_ms),
        letter.origin,
        int(attempts) if attempts.isdecimal() else None,
        f"{letter.facts.get('error.type', '').rpartition('.')[2]}: {printable(error)[:100]}".removeprefix(": "),
        done.rpartition(".")[2] if done else None,
    )


def _document(letter: Letter, done: str | None) -> dict[str, Any]:
    from penstock.cli.records import json_bytes

    facts: dict[str, Any] = {name.replace(".", "_"): value for name, value in letter.facts.items()}
    for name in ("partition", "offset", "attempts", "timestamp"):
        if facts.get(name, "").lstrip("-").isdecimal():
            facts[name] = int(facts[name])
    return {
        "letter": {"partition": letter.partition, "offset": letter.offset},
        "failed_at_ms": letter.failed_at_ms,
        **facts,
        **json_bytes("key", letter.key),
        **json_bytes("value", letter.value),
        "headers": [{"key": name, **json_bytes("value", value)} for name, value in letter.headers],
        "done": done.rpartition(".")[2] if done else None,
    }


def _print_whole(letter: Letter, done: str | None) -> None:
    from penstock.cli.output import print_facts
    from penstock.cli.records import printable

    place, failed_at, origin, attempts, error, deed = _row(letter, done)
    facts: list[tuple[str, object]] = [
        ("letter", place), ("origin", origin), ("failed at", failed_at), ("attempts", attempts), ("error", error),
    ]  # fmt: skip
    if deed:
        facts.append(("done", deed))
    facts += [("header", printable(name.encode() + b"=" + (value or b""))) for name, value in letter.headers]
    facts.append(("key", None if letter.key is None else printable(letter.key)))
    facts.append(("value", None if letter.value is None else printable(letter.value)))
    print_facts(facts)
    for line in letter.facts.get("stack", "").splitlines():
        print(f"  {printable(line.encode())}")
    print()
