"""`make interop`: runs other people's clients and tools against a Penstock broker, and says which did not work."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench.jars import NoKafka, cache, libraries
from bench.peers import BrokerFailed, end_on_sigterm, kafka, penstock

from interop import cluster, console, consumer_protocol, groups, languages, performance, topics, transactions
from interop.checks import CHECKS, Verdict, choose, run_all, table
from interop.site import Site

# Importing them registers their checks, in this order.
ROOMS = (topics, console, groups, consumer_protocol, transactions, cluster, performance, languages)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("words", nargs="*", help="only checks that have one of these in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="checks at once (default: one per core)")
    parser.add_argument("--list", action="store_true", help="name the checks and stop")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the broker")
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka instead: is what we expect right?")
    options = parser.parse_args(arguments)
    end_on_sigterm()
    checks = choose(options.words)
    if options.list:
        print("\n".join(each.name for each in CHECKS))
        return 0
    work = Path(tempfile.mkdtemp(prefix="interop-", dir=cache()))
    settings = dict(each.split("=", 1) for each in options.set)
    try:
        try:
            libraries()
        except NoKafka as missing:
            print(f"  without Kafka's tools: {missing}")
        start = kafka if options.kafka else penstock
        with start(work / "data", settings) as peer:
            print(f"{len(checks)} checks against {peer.name} on {peer.address}", flush=True)
            outcomes = run_all(checks, Site(peer, work), options.jobs)
            gone = peer.process.poll()
    except BrokerFailed as failure:
        print(f"interop: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(outcomes))
    if gone is not None:
        print(f"the broker ended with {gone} while the checks ran", file=sys.stderr)
    return int(gone is not None or any(outcome.verdict is Verdict.FAILED for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
