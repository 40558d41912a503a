"""`penstock bench`: a load on a topic of its own, watched while it runs, and measured at its end."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.parser import Parser, add_bootstrap, add_json, not_negative, positive, positive_number
from penstock.cli.problem import FAILURE, usage

if TYPE_CHECKING:
    from penstock.cli.connection import Connection

EXAMPLES = """\
examples:
  penstock bench                                       as fast as it goes, for ten seconds
  penstock bench --rate 1000 --size 100                the latency of a steady load
  penstock bench --messages 1000000 --producers 2 --consumers 2 --partitions 4 --compression lz4
  penstock bench --consumers 0 --acks 1 --json
"""
DEFAULT_DURATION_S = 10.0
SIZE_MAX_BYTES = 999_000  # what librdkafka takes, with room for what stands around it
SIZE_MIN_BYTES = 8  # the time at which a message was made


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    length = parser.add_mutually_exclusive_group()
    length.add_argument("-n", "--messages", metavar="N", type=positive, help="stop after N messages")
    length.add_argument("-d", "--duration", metavar="SECONDS", type=positive_number, help="default: 10")
    parser.add_argument("--size", metavar="BYTES", type=positive, default=1024, help="of a message (default 1024)")
    parser.add_argument("--rate", metavar="N", type=positive_number, help="messages a second (default: all that go)")
    parser.add_argument("--acks", choices=["0", "1", "all"], default="all", help="default: all")
    parser.add_argument("--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none")
    parser.add_argument("--linger", metavar="MS", type=not_negative, default=5, help="wait to fill batches (default 5)")
    parser.add_argument("--partitions", metavar="N", type=positive, default=1, help="default: 1")
    parser.add_argument("--replicas", metavar="N", type=positive, default=1, help="default: 1")
    parser.add_argument("--producers", metavar="N", type=positive, default=1, help="default: 1")
    parser.add_argument("--consumers", metavar="N", type=not_negative, default=1, help="default: 1")
    add_json(parser)
    add_bootstrap(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.bench.crew import Crew, outcome, plans
    from penstock.cli.bench.progress import Progress
    from penstock.cli.bench.report import document, show
    from penstock.cli.connection import client_settings, connect
    from penstock.cli.output import print_json

    _check(args)
    connection = connect(args)
    topic = _create_topic(connection, args)
    try:
        crew = Crew(*plans(args, client_settings(connection.bootstrap), topic))
        with Progress(args) as progress:
            crew.run(progress.update)
    finally:
        _delete_topic(connection, topic)
    produced = outcome(crew.produced)
    consumed = outcome(crew.consumed) if args.consumers else None
    if args.json:
        print_json(document(args, connection.bootstrap.addresses, produced, consumed))
    else:
        show(args, produced, consumed)
    return FAILURE if produced.failed or not produced.count else 0


def _check(args: argparse.Namespace) -> None:
    if args.size < SIZE_MIN_BYTES:
        raise usage(f"a message needs {SIZE_MIN_BYTES} bytes, to carry the time at which it was made.")
    if args.size > SIZE_MAX_BYTES:
        raise usage(f"a message may have {SIZE_MAX_BYTES:,} bytes: clients send no larger ones unless told to.")
    if args.consumers > args.partitions:
        raise usage(
            f"{args.consumers} consumers can't share {args.partitions} partition(s).",
            f"Use --partitions {args.consumers} or more.",
        )
    if args.messages is None and args.duration is None:
        args.duration = DEFAULT_DURATION_S


def _create_topic(connection: Connection, args: argparse.Namespace) -> str:
    import secrets

    from penstock.cli.connection import REQUEST_TIMEOUT_S
    from penstock.cli.kafka_admin import NewTopic

    topic = f"penstock-bench-{secrets.token_hex(4)}"
    wanted = NewTopic(topic, args.partitions, args.replicas)
    future = connection.admin.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)[topic]
    connection.wait(future, "can't create a topic for the load")
    return topic


def _delete_topic(connection: Connection, topic: str) -> None:
    from penstock.cli.connection import REQUEST_TIMEOUT_S

    future = connection.admin.delete_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[topic]
    connection.wait(future, f"can't delete the topic of the load, {topic!r}")
