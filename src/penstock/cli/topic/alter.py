"""`penstock topic alter`: settings one by one, and more partitions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, key_value, positive
from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from penstock.cli.connection import Connection

EXAMPLES = """\
examples:
  penstock topic alter orders --set retention.ms=86400000
  penstock topic alter orders --unset retention.ms --set cleanup.policy=compact
  penstock topic alter orders --partitions 12
  penstock topic alter orders --set retention.hold.group=archive      keeps what this group has not committed
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument(
        "--set", dest="changes", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="repeatable"
    )
    parser.add_argument(
        "--unset", metavar="NAME", action="append", default=[], help="back to the broker's default; repeatable"
    )
    parser.add_argument("--partitions", metavar="N", type=positive, help="how many there shall be, never fewer")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import print_json

    if not (args.changes or args.unset or args.partitions):
        raise usage("nothing to change.", "Use --set NAME=VALUE, --unset NAME or --partitions N.")
    if both := {name for name, _ in args.changes} & set(args.unset):
        raise usage(f"{min(both)!r} is both set and unset.")
    connection = connect(args)
    before = len(connection.topic(args.topic).partitions)
    if args.partitions:
        _check_partitions(args.topic, args.partitions, before)
    if args.changes or args.unset:
        _alter_settings(connection, args)
    if args.partitions and args.partitions != before:
        _add_partitions(connection, args.topic, args.partitions)
    if args.json:
        partitions = args.partitions or before
        print_json({"topic": args.topic, "set": dict(args.changes), "unset": args.unset, "partitions": partitions})
        return 0
    for name, value in args.changes:
        print(f"Set {name} to {value}.")
    for name in args.unset:
        print(f"Unset {name}.")
    if args.partitions:
        change = f"now, from {before}" if args.partitions != before else "already"
        print(f"{args.topic} has {args.partitions} partitions {change}.")
    return 0


def _alter_settings(connection: Connection, args: argparse.Namespace) -> None:
    from penstock.cli.connection import REQUEST_TIMEOUT_S
    from penstock.cli.kafka_admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
    from penstock.cli.topic.refusals import advise

    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in args.changes]
    entries += [ConfigEntry(name, None, incremental_operation=delete) for name in args.unset]
    resource = ConfigResource(ResourceType.TOPIC, args.topic, incremental_configs=entries)
    futures = connection.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    try:
        connection.wait(futures[resource], f"can't alter {args.topic!r}")
    except Problem as problem:
        problem.hint = advise([*dict(args.changes), *args.unset]) or problem.hint
        raise


def _check_partitions(topic: str, count: int, before: int) -> None:
    """Before anything is changed."""
    from penstock.cli.topic.refusals import INTERNAL, PARTITIONS_MAX

    if count > PARTITIONS_MAX:
        raise usage(f"{count} partitions are too many: at most {PARTITIONS_MAX}.")
    if count < before:
        raise Problem(f"{topic!r} has {before} partitions, and partitions can't be removed.")
    if count > before and topic in INTERNAL:
        raise Problem(
            f"{topic!r} keeps its partitions: their number says which of them knows what.",
            "With another number, the brokers would not find again what groups or transactions have stored.",
        )


def _add_partitions(connection: Connection, topic: str, count: int) -> None:
    from penstock.cli.connection import REQUEST_TIMEOUT_S
    from penstock.cli.kafka_admin import NewPartitions

    futures = connection.admin.create_partitions([NewPartitions(topic, count)], request_timeout=REQUEST_TIMEOUT_S)
    connection.wait(futures[topic], f"can't add partitions to {topic!r}")
