"""A broker for the tests of any language: `python -m penstock.testing` prints its address and serves.

It stops when its standard input closes, which happens however the test run ends. Until then each line on it is a
command (see `commands`), answered by a line on standard output.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence

from penstock.testing.broker import PenstockBroker
from penstock.testing.cluster import PenstockCluster
from penstock.testing.commands import answer
from penstock.testing.kit import Kit


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        kit = _opened(given)
    except ValueError as error:
        parser.error(str(error))
    with kit:
        addresses = kit.bootstrap
        print(json.dumps({"bootstrap": addresses}) if given.json else addresses, flush=True)
        _serve(kit)
    return 0


def _serve(kit: Kit) -> None:
    try:
        for line in sys.stdin:
            if line.strip():
                print(answer(kit, line), flush=True)
    except BrokenPipeError:
        pass  # whoever has started it is gone


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="a cluster of so many (default: one)")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="made at the start")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help="as for penstock start")
    parser.add_argument("--json", action="store_true", help='print {"bootstrap": "HOST:PORT"} and not just the address')
    return parser


def _opened(given: argparse.Namespace) -> Kit:
    settings = dict(_setting(text) for text in given.set)
    kit: Kit = PenstockBroker(**settings) if given.brokers == 1 else PenstockCluster(given.brokers, **settings)
    topics = [_topic(text) for text in given.topic]
    kit.open()
    try:
        for name, partitions in topics:
            kit.topic(name, partitions)
    except BaseException:
        kit.close()
        raise
    return kit


def _setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ValueError(f"{text!r} is not SETTING=VALUE")
    return name, value


def _topic(text: str) -> tuple[str, int]:
    name, found, partitions = text.partition(":")
    if found and not partitions.isdigit():
        raise ValueError(f"{text!r} is not NAME:PARTITIONS, such as orders:3")
    return name, int(partitions) if found else 1


def _leave(number: int, frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
