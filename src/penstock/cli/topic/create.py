"""`penstock topic create`."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, key_value, positive

if TYPE_CHECKING:
    from penstock.cli.connection import Connection

EXAMPLES = """\
examples:
  penstock topic create orders
  penstock topic create orders payments -p 6 -c retention.ms=86400000
  penstock topic create users -c cleanup.policy=compact --if-not-exists
"""

TOLD_S_MAX = 5.0
AGAIN_S = 0.05


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topics", metavar="NAME", nargs="+")
    parser.add_argument("-p", "--partitions", metavar="N", type=positive, help="default: the broker's")
    parser.add_argument("-r", "--replicas", metavar="N", type=positive, help="default: the broker's")
    parser.add_argument(
        "-c", "--config", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="a topic setting"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="leave topics alone that are there already")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import REQUEST_TIMEOUT_S, connect
    from penstock.cli.kafka_admin import NewTopic
    from penstock.cli.output import plural, print_json
    from penstock.cli.problem import usage
    from penstock.cli.topic.refusals import PARTITIONS_MAX, REPLICAS_MAX, report_all

    if (args.partitions or 0) > PARTITIONS_MAX:
        raise usage(f"{args.partitions} partitions are too many: at most {PARTITIONS_MAX}.")
    if (args.replicas or 0) > REPLICAS_MAX:
        raise usage(f"{args.replicas} replicas are too many: at most {REPLICAS_MAX}.")
    connection = connect(args)
    names = list(dict.fromkeys(args.topics))
    present = [name for name in names if args.if_not_exists and name in connection.topics]
    wanted = [
        NewTopic(name, args.partitions or -1, args.replicas or -1, config=dict(args.config))
        for name in names
        if name not in present
    ]
    futures = connection.admin.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S) if wanted else {}
    settings = [name for name, _ in args.config]
    created, problems = report_all(connection, futures, "can't create {!r}", settings)
    shapes = _shapes(connection, created)
    if args.json:
        print_json({"created": [{"topic": name, **shape} for name, shape in shapes.items()], "present": present})
    for name, shape in () if args.json else shapes.items():
        print(f"Created {name}: {plural(shape['partitions'], 'partition')}, {plural(shape['replicas'], 'replica')}.")
    for name in () if args.json else present:
        print(f"{name} is there already.")
    return problems.finish()


def _shapes(connection: Connection, created: list[str]) -> dict[str, dict[str, int]]:
    """What the broker made of it, since it may have chosen the numbers. Another may be asked that is told a moment
    later than the one that created it."""
    deadline = time.monotonic() + TOLD_S_MAX
    shapes = _shapes_now(connection, created)
    while not all(shape["replicas"] for shape in shapes.values()) and time.monotonic() < deadline:
        time.sleep(AGAIN_S)
        shapes = _shapes_now(connection, created)
    return shapes


def _shapes_now(connection: Connection, created: list[str]) -> dict[str, dict[str, int]]:
    from penstock.cli.connection import REQUEST_TIMEOUT_S

    if not created:
        return {}
    topics = connection.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    shapes = {}
    for name in created:
        partitions = topics[name].partitions if name in topics else {}
        replicas = len(partitions[0].replicas) if 0 in partitions else 0
        shapes[name] = {"partitions": len(partitions), "replicas": replicas}
    return shapes
