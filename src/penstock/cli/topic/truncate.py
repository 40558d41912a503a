"""`penstock topic truncate`: the oldest messages go, up to an offset or a time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, add_yes, not_negative
from penstock.cli.positions import END, TIMES, Kind, Placed, Position, parse_time
from penstock.cli.problem import Problem

if TYPE_CHECKING:
    from penstock.cli.connection import Connection, Key

EXAMPLES = f"""\
times:
  {TIMES}

examples:
  penstock topic truncate orders --before-time 7d
  penstock topic truncate orders --partition 2 --before-offset 1000
  penstock topic truncate orders --all --yes
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument(
        "-p", "--partition", dest="partitions", metavar="N", type=not_negative, action="append", help="repeatable"
    )
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--before-offset", metavar="N", type=not_negative)
    limit.add_argument("--before-time", metavar="TIME", type=parse_time)
    limit.add_argument("--all", action="store_true", help="everything that is in it now")
    add_yes(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import confirm, plural, print_json
    from penstock.cli.positions import locate

    connection = connect(args)
    places = locate(connection, _limit(args), connection.partitions(args.topic, args.partitions))
    _check_end(args, places)
    doomed = {key: place for key, place in places.items() if place.offset > place.start}
    count = sum(place.offset - place.start for place in doomed.values())
    if doomed:
        if not args.json and not args.yes:
            _show(places)
        confirm(f"Delete {plural(count, 'message')} of {args.topic!r} for good?", args.yes)
        _delete(connection, doomed)
    if args.json:
        rows = [
            {"partition": key[1], "start": place.offset, "deleted": place.offset - place.start}
            for key, place in places.items()
        ]
        print_json({"topic": args.topic, "deleted": count, "partitions": rows})
    else:
        print(f"Deleted {plural(count, 'message')} of {args.topic}.")
    return 0


def _check_end(args: argparse.Namespace, places: dict[Key, Placed]) -> None:
    end = max(place.end for place in places.values())
    if args.before_offset is not None and args.before_offset > end:
        hint = "To delete all there is: --all"
        raise Problem(f"{args.topic} ends at offset {end}, before {args.before_offset}.", hint)


def _limit(args: argparse.Namespace) -> Position:
    if args.all:
        return END
    if args.before_time is not None:
        return Position(Kind.TIME, args.before_time)
    return Position(Kind.OFFSET, args.before_offset)


def _show(places: dict[Key, Placed]) -> None:
    from penstock.cli.output import print_table

    rows = [(key[1], place.start, place.offset, place.end, place.offset - place.start) for key, place in places.items()]
    print_table(["partition", "start", "new start", "end", "deleted"], rows)


def _delete(connection: Connection, doomed: dict[Key, Placed]) -> None:
    from confluent_kafka import TopicPartition

    from penstock.cli.connection import REQUEST_TIMEOUT_S

    request = [TopicPartition(*key, place.offset) for key, place in doomed.items()]
    futures = connection.admin.delete_records(request, request_timeout=REQUEST_TIMEOUT_S)
    for place, future in futures.items():
        connection.wait(future, f"can't truncate {place.topic}[{place.partition}]")
