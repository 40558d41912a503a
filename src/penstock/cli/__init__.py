"""The `penstock` command, one file per command.

Owns: what a person types and what they read back. Never: the broker's inside; only `penstock start` reaches it, to
start one, and `penstock cluster adopt`, for its data folder.

Imports are inside functions: starting the broker must not pay for what other commands need. A command is a module (or a
package, if it has commands of its own) with `configure(parser)`, imported only when it was asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from penstock import __version__
from penstock.cli.parser import Parser
from penstock.cli.problem import Problem

COMMANDS = {
    "start": "start a broker",
    "topic": "create, list, describe, alter, truncate and delete topics",
    "produce": "send messages to a topic",
    "consume": "read messages from topics",
    "group": "list, describe, reset and delete consumer groups",
    "txn": "list, describe and abort transactions",
    "dlq": "list, show, redrive and purge dead letters",
    "cluster": "start, watch and change a cluster of brokers",
    "query": "ask topics with SQL, archive and log as one table",
    "replay": "write a part of a topic's history into a topic again",
    "pipeline": "run what a file says: from topics, through SQL, to topics and tables",
    "archive": "copy topics to Parquet files, and look after them",
    "bench": "measure throughput and latency",
    "version": "show which version this is",
}

EXAMPLES = """\
examples:
  penstock start                                 a broker on 127.0.0.1:9092, data in ./penstock-data
  penstock topic create orders -p 6
  echo hello | penstock produce orders
  penstock consume orders --from start
  penstock group describe billing                who reads what, and how far behind
  penstock cluster start                         three brokers and a ZooKeeper on this machine
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command: 0 is success, 1 a failure, 2 a command that makes no sense."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parser(arguments).parse(arguments)
        return int(args.run(args))
    except Problem as problem:
        sys.stdout.flush()
        print(problem.render(), file=sys.stderr)
        return problem.exit_code
    except BrokenPipeError:
        return _reader_went_away()
    except KeyboardInterrupt:
        return 130


def _parser(arguments: Sequence[str]) -> Parser:
    parser = Parser(prog="penstock", description="A message queue that speaks the Kafka protocol.", epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_commands()
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == wanted:
            importlib.import_module(f"penstock.cli.{name}").configure(command)
    return parser


def _reader_went_away() -> int:
    """`penstock consume … | head` is no failure; the interpreter must not try to flush what nobody reads."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
