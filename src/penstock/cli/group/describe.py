"""`penstock group describe`: who is in it, and how far behind it is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock.cli.parser import Parser

if TYPE_CHECKING:
    from penstock.cli.connection import Connection, Key
    from penstock.cli.group.groups import Group

EXAMPLES = """\
examples:
  penstock group describe billing
  penstock group describe billing --json | jq .lag
"""
PARTITION_COLUMNS = ("topic", "partition", "committed", "start", "end", "lag", "member")


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("group", metavar="NAME")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.group.groups import find, unknown
    from penstock.cli.output import print_json

    connection = connect(args)
    group = find(connection, args.group)
    if group is None:
        raise unknown(connection, args.group)
    rows = _partitions(connection, group)
    lag = sum(row["lag"] or 0 for row in rows)
    if args.json:
        print_json(_document(group, rows, lag))
    else:
        _print(group, rows, lag)
    return 0


def _partitions(connection: Connection, group: Group) -> list[dict[str, Any]]:
    """Every partition the group has a commit for or a member on. Lag without a commit is all there is to read; where
    nobody leads, it is not known."""
    from penstock.cli.group.groups import committed, existing
    from penstock.cli.kafka_admin import EARLIEST, LATEST

    commits = committed(connection, group.name)
    owners: dict[Key, str] = {key: member.id for member in group.members for key in member.partitions}
    keys = sorted(commits.keys() | owners.keys())
    present = existing(connection, keys)
    starts = connection.known_offsets(dict.fromkeys(present, EARLIEST))
    ends = connection.known_offsets(dict.fromkeys(present, LATEST))
    return [
        {
            "topic": key[0],
            "partition": key[1],
            "committed": commits.get(key),
            "start": starts.get(key),
            "end": ends.get(key),
            "lag": max(0, ends[key] - max(commits.get(key, 0), starts[key])) if key in starts and key in ends else None,
            "member": owners.get(key),
        }
        for key in keys
    ]


def _document(group: Group, rows: list[dict[str, Any]], lag: int) -> dict[str, Any]:
    members = [
        {
            "member": member.id,
            "client_id": member.client_id,
            "host": member.host,
            "instance_id": member.instance_id,
            "epoch": member.epoch,
            "state": member.state,
            "assignment": _listed(member.partitions),
            "target": None if member.target is None else _listed(member.target),
        }
        for member in group.members
    ]
    facts = {"group": group.name, "type": group.kind, "state": group.state, "assignor": group.assignor}
    epochs = {"epoch": group.epoch, "assignment_epoch": group.assignment_epoch, "coordinator": group.coordinator}
    return {**facts, **epochs, "lag": lag, "members": members, "partitions": rows}


def _listed(partitions: tuple[Key, ...]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def _print(group: Group, rows: list[dict[str, Any]], lag: int) -> None:
    from penstock.cli.output import print_facts, print_table

    facts: list[tuple[str, object]] = [("group", group.name), ("type", group.kind), ("state", group.state)]
    if group.epoch is not None:
        facts += [("epoch", group.epoch), ("assignment epoch", group.assignment_epoch)]
    facts += [("coordinator", group.coordinator), ("assignor", group.assignor or None)]
    facts += [("members", len(group.members)), ("total lag", f"{lag:,}")]
    print_facts(facts)
    if group.members:
        print()
        _print_members(group)
    if rows:
        print()
        print_table(PARTITION_COLUMNS, [[row[name] for name in PARTITION_COLUMNS] for row in rows])


def _print_members(group: Group) -> None:
    from penstock.cli.group.groups import CONSUMER
    from penstock.cli.output import print_table

    who = [(m.id, m.client_id, m.host, m.instance_id) for m in group.members]
    columns = ["member", "client", "host", "instance"]
    if group.kind == CONSUMER:
        columns += ["epoch", "state", "assignment", "target"]
        what = [(m.epoch, m.state, _assignment(m.partitions), _assignment(m.target or ())) for m in group.members]
        print_table(columns, [(*one, *other) for one, other in zip(who, what, strict=True)])
    else:
        print_table([*columns, "assignment"], [(*one, _assignment(m.partitions)) for one, m in zip(who, group.members)])


def _assignment(partitions: tuple[Key, ...]) -> str:
    """`orders[0,1,2] payments[4]`"""
    topics: dict[str, list[str]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}[{','.join(numbers)}]" for topic, numbers in topics.items()) or "-"
