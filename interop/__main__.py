"""`make interop`: runs other people's clients and tools, and ours, against brokers, and says which did not work."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.fleet import kafka_cluster, penstock_cluster
from bench.jars import NoKafka, cache, libraries
from bench.peers import BrokerFailed, end_on_sigterm, kafka, penstock

from interop import (
    cluster,
    console,
    consumer_protocol,
    groups,
    languages,
    performance,
    pipeline,
    python_client,
    replicas,
    topics,
    transactions,
)
from interop.checks import CHECKS, Verdict, choose, run_all, table
from interop.site import Site

# Importing them registers their checks, in this order.
ROOMS = (
    topics,
    console,
    groups,
    consumer_protocol,
    transactions,
    cluster,
    replicas,
    performance,
    languages,
    python_client,
    pipeline,
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("words", nargs="*", help="only checks that have one of these in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="checks at once (default: one per core)")
    parser.add_argument("--list", action="store_true", help="name the checks and stop")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the broker")
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka instead: is what we expect right?")
    parser.add_argument("--cluster", action="store_true", help="three brokers instead of one")
    options = parser.parse_args(arguments)
    end_on_sigterm()
    if options.list:
        print("\n".join(each.name for each in CHECKS))
        return 0
    checks = choose(options.words, is_cluster=options.cluster)
    work = Path(tempfile.mkdtemp(prefix="interop-", dir=cache()))
    settings = dict(each.split("=", 1) for each in options.set)
    try:
        try:
            libraries()
        except NoKafka as missing:
            print(f"  without Kafka's tools: {missing}")
        with _site(work, settings, is_kafka=options.kafka, is_cluster=options.cluster) as site:
            peer, several = site.peer, f", the first of {site.brokers}" if site.fleet else ""
            print(f"{len(checks)} checks against {peer.name} on {peer.address}{several}", flush=True)
            outcomes = run_all(checks, site, options.jobs)
            gone = _gone(site)
    except BrokerFailed as failure:
        print(f"interop: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(outcomes))
    for name, code in gone.items():
        print(f"{name} ended with {code} while the checks ran", file=sys.stderr)
    return int(bool(gone) or any(outcome.verdict is Verdict.FAILED for outcome in outcomes))


@contextmanager
def _site(work: Path, settings: Mapping[str, str], *, is_kafka: bool, is_cluster: bool) -> Iterator[Site]:
    if is_cluster:
        start_all = kafka_cluster if is_kafka else penstock_cluster
        with start_all(work / "data", settings) as fleet:
            yield Site(fleet.leader(), work, fleet)
    else:
        start = kafka if is_kafka else penstock
        with start(work / "data", settings) as peer:
            yield Site(peer, work)


def _gone(site: Site) -> dict[str, int]:
    """Brokers that have ended, and with which code."""
    peers = [member.peer for member in site.fleet.members.values()] if site.fleet else [site.peer]
    codes = {peer.name: peer.process.poll() for peer in peers}
    return {name: code for name, code in codes.items() if code is not None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
