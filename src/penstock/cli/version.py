"""`penstock version`: what is installed, as one line to paste into a question."""

from __future__ import annotations

import argparse
import platform

from penstock import __version__
from penstock.cli.parser import Parser, add_json


def configure(parser: Parser) -> None:
    add_json(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from confluent_kafka import libversion

    facts = {
        "penstock": __version__,
        "python": platform.python_version(),
        "librdkafka": libversion()[0],
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if args.json:
        from penstock.cli.output import print_json

        print_json(facts)
    else:
        print("penstock {penstock} (Python {python}, librdkafka {librdkafka}, {platform})".format(**facts))
    return 0
