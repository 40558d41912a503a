"""`penstock version`: what is installed, as one line to paste into a question."""

from __future__ import annotations

import argparse
import importlib.util
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
        "hot_path": "compiled" if _is_compiled("penstock.storage.log") else "interpreted",
    }
    if args.json:
        from penstock.cli.output import print_json

        print_json(facts)
    else:
        print("penstock {penstock} (Python {python}, librdkafka {librdkafka}, {platform}, {hot_path})".format(**facts))
    return 0


def _is_compiled(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return spec is not None and not str(spec.origin).endswith(".py")
