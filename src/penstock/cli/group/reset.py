"""`penstock group reset`: the group goes on from another place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.parser import Parser
from penstock.cli.positions import START, TIMES, parse_position
from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from penstock.cli.connection import Connection, Key

EXAMPLES = f"""\
positions:
  start, end, an offset, -N for the last N of each partition, or a time:
  {TIMES}

examples:
  penstock group reset billing --to start
  penstock group reset billing --to 2h --topic orders --dry-run
  penstock group reset billing --shift -100            a hundred messages back, in each partition
  penstock group reset audit --to end --topic orders   also for a group that does not exist yet
"""


class Move(NamedTuple):
    before: int | None
    after: int
    end: int


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("group", metavar="NAME")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="POSITION", type=parse_position, help="see below")
    where.add_argument("--shift", metavar="N", type=int, help="so many messages on, or back if negative")
    parser.add_argument(
        "-t", "--topic", dest="topics", metavar="NAME", action="append", help="default: all it has offsets in"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.group.groups import commit, committed
    from penstock.cli.output import print_json

    connection = connect(args)
    _refuse_if_busy(connection, args)
    commits = committed(connection, args.group)
    moves = _moves(connection, args, commits)
    if not args.json:
        _show(moves)
    if not args.dry_run:
        commit(connection, args.group, {key: move.after for key, move in moves.items()})
    if args.json:
        rows = [{"topic": key[0], "partition": key[1], **move._asdict()} for key, move in moves.items()]
        print_json({"group": args.group, "dry_run": args.dry_run, "partitions": rows})
    else:
        print("\nNothing was changed." if args.dry_run else f"\nMoved {args.group}.")
    return 0


def _refuse_if_busy(connection: Connection, args: argparse.Namespace) -> None:
    """A group with members would commit over the new offsets. One that does not exist is made by its first commit."""
    from penstock.cli.group.groups import find, unknown
    from penstock.cli.output import plural

    group = find(connection, args.group)
    if group is None and not args.topics:
        problem = unknown(connection, args.group)
        problem.hint = f"{problem.hint}\nTo make a new one, say where: --topic NAME."
        raise problem
    if group is not None and group.members:
        clients = ", ".join(sorted({f"{member.client_id} on {member.host}" for member in group.members}))
        raise Problem(
            f"{args.group!r} is in use by {plural(len(group.members), 'member')}: {clients}.",
            "Stop its consumers, then try again; a crashed one is gone after its session time-out.",
        )


def _moves(connection: Connection, args: argparse.Namespace, commits: dict[Key, int]) -> dict[Key, Move]:
    from penstock.cli.group.groups import existing
    from penstock.cli.positions import locate

    if args.topics:
        keys = [key for topic in dict.fromkeys(args.topics) for key in connection.partitions(topic)]
    else:
        keys = existing(connection, sorted(commits))
    if not keys:
        raise usage(f"{args.group!r} has no offsets yet.", "Say in which topic to place it: --topic NAME.")
    places = locate(connection, START if args.to is None else args.to, keys)
    moves = {}
    for key, place in places.items():
        after = place.offset
        if args.shift is not None:
            after = min(max(commits.get(key, place.start) + args.shift, place.start), place.end)
        moves[key] = Move(commits.get(key), after, place.end)
    return moves


def _show(moves: dict[Key, Move]) -> None:
    from penstock.cli.output import print_table

    rows = [(topic, number, m.before, m.after, m.end, m.end - m.after) for (topic, number), m in moves.items()]
    print_table(["topic", "partition", "before", "after", "end", "lag after"], rows)
