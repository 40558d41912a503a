"""`penstock start`: one broker, in this process, until it is told to stop."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.naming import command_name, enough, reachable
from penstock.cli.parser import Parser, key_value, not_negative
from penstock.cli.problem import usage

if TYPE_CHECKING:
    from penstock.broker.config import BrokerSettings

EXAMPLES = """\
settings:
  Any broker setting may be given by --set, in the file, or in the environment, in capitals with underscores:
  PENSTOCK_LOG_RETENTION_HOURS=24. The command line counts more than the environment, and that more than the file.

examples:
  penstock start
  penstock start --listen 0.0.0.0:9092 --data /var/lib/penstock --set advertised=broker1.example.com:9092
  penstock start --config penstock.toml --log-format json
  penstock start --set flush=interval --set num.partitions=6
  penstock start --node-id 2 --zookeeper zk1:2181,zk2:2181/penstock --listen 10.0.0.2:9092 --data /var/lib/penstock
"""
DEFAULTS = {"data": "penstock-data"}

# glibc's numbers of what mallopt sets; and what a fetch of a megabyte needs, to be four times as fast.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
TRIM_THRESHOLD_BYTES = 256 << 20
MMAP_THRESHOLDS_BYTES = (64 << 20, 32 << 20)  # older versions of glibc refuse more than 32 MiB

FLUSH_MEANING = {
    "commit": "acks=all is answered when the data is on disk",
    "interval": "data is forced to disk now and then; a power cut may lose the last moments",
    "os": "the operating system writes to disk when it likes; a power cut may lose data",
}


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--listen", metavar="HOST:PORT", help="default: 127.0.0.1:9092")
    parser.add_argument("--data", metavar="DIR", help="default: ./penstock-data")
    parser.add_argument("--node-id", metavar="N", type=not_negative, help="default: 1")
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…/PATH", help="joins the cluster that it coordinates")
    parser.add_argument("--rack", metavar="NAME", help="replicas are spread over racks")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in TOML (or $PENSTOCK_CONFIG)")
    parser.add_argument(
        "--set", dest="changes", metavar="NAME=VALUE", type=key_value, action="append", default=[], help="repeatable"
    )
    parser.add_argument("--log-format", choices=["text", "json"], help="default: text")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="default: info")
    parser.add_argument("-q", "--quiet", action="store_true", help="no greeting")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    gc.disable()  # nothing that is imported or built from here on is garbage; the broker enables it when it is up
    prepare_memory()
    settings = read_settings(args)
    from penstock.broker import logs

    logs.set_up(settings.get("log.format"), settings.get("log.level"))
    from penstock.broker import app

    def greet(addresses: list[str]) -> None:
        if not args.quiet and settings.get("log.format") == "text":
            print(greeting(settings, addresses), file=sys.stderr, flush=True)

    return app.run(settings, greet)


def read_settings(args: argparse.Namespace) -> BrokerSettings:
    from penstock.broker.config import SettingError, load, misspelt_variables

    for line in misspelt_variables(os.environ):
        print(f"penstock: {line}", file=sys.stderr)
    file = args.config or (Path(named) if (named := os.environ.get("PENSTOCK_CONFIG")) else None)
    try:
        return load(file, os.environ, command_line(args), DEFAULTS)
    except SettingError as failure:
        message = str(failure)
        raise usage(message if message.endswith((".", "?")) else f"{message}.") from failure


def command_line(args: argparse.Namespace) -> dict[str, str]:
    """An option of its own counts more than --set of the same."""
    options = {
        "listen": args.listen,
        "data": args.data,
        "node.id": None if args.node_id is None else str(args.node_id),
        "zookeeper.connect": args.zookeeper,
        "broker.rack": args.rack,
        "log.format": args.log_format,
        "log.level": args.log_level,
    }
    return dict(args.changes) | {name: text for name, text in options.items() if text is not None}


def prepare_memory() -> None:
    """Keeps freed megabytes in the process. Any libc that is not glibc knows better, or not at all."""
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        # Setting one of them stops glibc from adapting the other, so it is both or none.
        if any(mallopt(M_MMAP_THRESHOLD, size) for size in MMAP_THRESHOLDS_BYTES):
            mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    except (ImportError, OSError, AttributeError, TypeError):
        pass


def greeting(settings: BrokerSettings, brokers: Sequence[str] = ()) -> str:
    """`brokers` are those of its cluster, as far as they are there."""
    listening: str = ", ".join(settings.get("listeners")) or settings.get("listen")
    address = enough(brokers) or _first_address(settings)
    flush: str = settings.topic_default("flush")
    command, option = command_name(), _bootstrap_option(address)
    zookeeper = settings.get("zookeeper.connect")
    return "\n".join(
        [
            f"Penstock {__version__}",
            f"  listening   {listening}",
            *([f"  cluster     {zookeeper}, as broker {settings.get('node.id')}"] if zookeeper else []),
            f"  data        {Path(settings.get('data')).absolute()}",
            f"  flush       {flush}: {FLUSH_MEANING[flush]}",
            f"  try         {command} topic create greetings{option}",
            f"              echo hello | {command} produce greetings{option}",
            f"              {command} consume greetings{option}",
            f'  Python      confluent_kafka.Producer({{"bootstrap.servers": "{address}"}})',
            "  stop        Ctrl-C",
            "",
        ]
    )


def _first_address(settings: BrokerSettings) -> str:
    """Where clients on this machine find the first listener."""
    listeners = settings.get("listeners")
    if not listeners:
        return settings.get("advertised") or reachable(settings.get("listen"))
    name, _, address = listeners[0].partition("://")
    told = dict(each.split("://", 1) for each in settings.get("advertised.listeners"))
    return told.get(name) or reachable(address)


def _bootstrap_option(address: str) -> str:
    """None where commands that are run here ask there anyway."""
    from penstock.cli.bootstrap import find
    from penstock.cli.problem import Problem

    try:
        asked = find(None).addresses
    except Problem:
        asked = ""
    return "" if address == asked else f" --bootstrap {address}"
