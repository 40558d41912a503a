"""`make bench`: measures Penstock, beside Apache Kafka where there is Java and Maven, and writes bench/out/."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench import (
    catch_up,
    cells,
    client,
    cluster,
    cold,
    failover,
    groups,
    jars,
    metadata,
    promises,
    report,
    retries,
    scale,
    spark,
    spark_memory,
    startup,
)
from bench.loader import LoadFailed, binary
from bench.peers import BrokerFailed, Peer, end_on_sigterm, kafka, penstock
from bench.results import KAFKA, KAFKA_DURABLE, OURS, OURS_DURABLE, Results

OUT = Path(__file__).with_name("out")
BESIDE_READERS = "cold"
ALONE = ("startup", "partitions", "log", "crash", "idle", "compaction", "promises", "groups", "client", "retries")
CLUSTER = ("failover", "catch-up", "metadata")
SPARK = ("spark", "archive", "worker-memory")
OUTAGES, QUICK_OUTAGES, KAFKA_OUTAGES = 30, 3, 5
EPILOG = f"""\
cells: {", ".join(cell.name for cell in cells.CELLS)}, {BESIDE_READERS}
alone: {", ".join(ALONE)}
three brokers: {", ".join(cell.name for cell in cluster.CELLS)}, {", ".join(CLUSTER)}
with Spark: {", ".join(SPARK)}

examples:
  make bench
  make bench ARGS="--quick"
  make bench ARGS="--cells single,end-to-end --rounds 5"
  make bench ARGS="--cells startup,partitions --no-kafka"
  make bench ARGS="--cells cluster,failover,catch-up,metadata"
  make bench ARGS="--cells spark,archive"
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="all", help="beginnings of names, with commas between (default: all)")
    parser.add_argument("--rounds", type=int, help="a figure is the median of so many (default: 3, quick: 1)")
    parser.add_argument("--seconds", type=float, help="how long a load lasts (default: 1.5, quick: 0.5)")
    parser.add_argument("--acks", type=int, default=-1, choices=(-1, 0, 1), help="default: -1, which is all")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a look, in less than eight minutes")
    size.add_argument(
        "--full",
        action="store_true",
        help="a log of 50 GB instead of 8, a follower 10 GB behind instead of 1; longer rounds",
    )
    kafka = parser.add_mutually_exclusive_group()
    kafka.add_argument("--no-kafka", action="store_true", help="Penstock only")
    kafka.add_argument("--kafka", action="store_true", help="failover of Kafka too, which takes minutes")
    parser.add_argument("--json", action="store_true", help="print results.json at the end instead of a table")
    parser.add_argument("--work", type=Path, help="where data goes while it runs (default: in the cache folder)")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (0.5 if options.quick else 3.0 if options.full else 1.5)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def wants(options: argparse.Namespace, name: str) -> bool:
    chosen = options.cells.split(",")
    return "all" in chosen or any(name.startswith(beginning) for beginning in chosen if beginning)


# ---- beside Kafka


def compare(options: argparse.Namespace, work: Path, results: Results) -> None:
    chosen = cells.choose(options.cells)
    if wants(options, BESIDE_READERS):
        gigabytes = 0.5 if options.quick else 3.0
        try:
            cold.compare(work, results, options.rounds, gigabytes, not options.no_kafka)
        except (BrokerFailed, LoadFailed, OSError) as failure:
            results.fail("old data", failure)
    if not chosen:
        return
    with contextlib.ExitStack() as stack:
        peers: dict[str, Peer] = {
            OURS: stack.enter_context(penstock(work / OURS, {"flush": "os"}, name=OURS)),
            OURS_DURABLE: stack.enter_context(penstock(work / OURS_DURABLE, name=OURS_DURABLE)),
        }
        if not options.no_kafka:
            try:
                peers[KAFKA] = stack.enter_context(kafka(work / KAFKA, name=KAFKA))
                durable = kafka(work / KAFKA_DURABLE, {"log.flush.interval.messages": "1"}, name=KAFKA_DURABLE)
                peers[KAFKA_DURABLE] = stack.enter_context(durable)
            except jars.NoKafka as missing:
                results.failures.append(f"Kafka: {missing}")
                print(f"  without Kafka: {missing}", flush=True)
        contest = cells.Contest(peers, options.seconds, options.acks)
        results.comparisons += contest.play(chosen, options.rounds)
        results.failures += contest.failures


# ---- alone


def large_log_gb(options: argparse.Namespace) -> int:
    return 50 if options.full else 2 if options.quick else 8


def alone(options: argparse.Namespace, work: Path, results: Results) -> None:
    seconds = min(options.seconds, 2.0)
    if wants(options, "startup"):
        results.attempt("start", startup.on_an_empty_folder(work))
    if wants(options, "startup") or wants(options, "partitions"):
        many_partitions(options, work, results, seconds)
    if wants(options, "log"):
        small_gb = 0.5 if options.quick else 1
        results.attempt("log size", scale.over_log_size(work, small_gb, large_log_gb(options), seconds))
    if wants(options, "crash"):
        for flush in ("commit", "os"):
            log_gb = 0.25 if options.quick else 1
            results.attempt(f"kill -9, flush={flush}", scale.after_a_crash(work, log_gb, flush))
    if wants(options, "idle"):
        results.attempt("idle connections", scale.with_idle_connections(work, 5_000, seconds))
    if wants(options, "groups"):
        results.attempt("a large group", groups.large_group(work, seconds))
        results.attempt("committed offsets", groups.committed_offsets(work))
    if wants(options, "compaction"):
        results.attempt("compaction", scale.during_compaction(work, 0.4 if options.quick else 1, seconds))
    if wants(options, "promises"):
        results.attempt("promises", promises.costs(work, seconds))
    if wants(options, "client"):
        results.attempt("the Python client", client.overhead(work, options.quick))
    if wants(options, "retries"):
        results.attempt("retries and dead letters", retries.with_poison(work, options.quick))


def many_partitions(options: argparse.Namespace, work: Path, results: Results, seconds: float) -> None:
    one_topic, many_topics = startup.layouts(10_000)
    for layout in (one_topic,) if options.quick else (one_topic, many_topics):
        try:
            with startup.many_partitions(work, layout) as (folder, measures):
                results.attempt(layout.title, measures)
                if layout.topics == 1 and wants(options, "partitions"):
                    results.attempt("cost over partitions", scale.over_partitions(work, folder, layout, seconds))
        except (BrokerFailed, LoadFailed, OSError) as failure:
            results.fail(layout.title, failure)


# ---- three brokers


def clusters(options: argparse.Namespace, work: Path, results: Results) -> None:
    chosen = [cell for cell in cluster.CELLS if wants(options, cell.name)]
    if chosen:
        try:
            cluster.compare(work, results, chosen, options.rounds, options.seconds, not options.no_kafka)
        except (BrokerFailed, LoadFailed, OSError) as failure:
            results.fail("three brokers", failure)
    if wants(options, "failover"):
        results.attempt("failover", failover.ours(work, QUICK_OUTAGES if options.quick else OUTAGES))
        if options.kafka:
            try:
                outages = QUICK_OUTAGES if options.quick else KAFKA_OUTAGES
                results.attempt("failover of Kafka", failover.kafkas(work, outages))
            except jars.NoKafka as missing:
                results.fail("failover of Kafka", missing)
    if wants(options, "catch-up"):
        for flush in ("os",) if options.quick else ("os", "commit"):
            behind_gb = 10 if options.full else 1
            results.attempt(f"catching up, flush={flush}", catch_up.beside_producers(work, behind_gb, flush))
    if wants(options, "metadata"):
        sizes, file = (metadata.QUICK_SIZES, None) if options.quick else (metadata.SIZES, OUT / "metadata.json")
        results.attempt("many partitions of a cluster", metadata.curve(work, sizes, file))


# ---- Spark


def with_spark(options: argparse.Namespace, work: Path, results: Results) -> None:
    gigabytes = 0.2 if options.quick else 1.0
    if wants(options, "spark"):
        try:
            found = spark.measures(work, options.rounds, gigabytes, alone=options.no_kafka)
            results.attempt("Spark", found)
        except jars.NoKafka as missing:
            results.fail("Spark", missing)
    if wants(options, "archive"):
        results.attempt("archive", spark.archive(work, 2 * gigabytes))
    if wants(options, "worker-memory"):
        large = 0.5 if options.quick else 50.0 if options.full else 2.0
        results.attempt("worker-memory", spark_memory.measures(work, large))


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    end_on_sigterm()
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="run-", dir=options.work or jars.cache()))
    results = Results(
        settings={
            "rounds": options.rounds,
            "seconds a load": options.seconds,
            "acks": "all" if options.acks == -1 else options.acks,
            "the log grows to": f"{large_log_gb(options)} GB" + ("" if options.full else " (50 GB with --full)"),
            "three of Kafka": "KRaft, each of them broker and controller",
        }
    )
    try:
        binary()
        print("measuring; the machine should have nothing else to do", flush=True)
        compare(options, work, results)
        alone(options, work, results)
        clusters(options, work, results)
        with_spark(options, work, results)
    except (BrokerFailed, LoadFailed) as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    written = report.write(results, OUT)
    print(
        json.dumps(report.as_json(results), indent=1, ensure_ascii=False) if options.json else report.as_text(results)
    )
    missed = results.missed()
    print(f"{len(missed)} missed: {'; '.join(missed)}" if missed else "no goal was missed", file=sys.stderr)
    print(
        f"{time.monotonic() - began:.0f} s; written: {', '.join(os.path.relpath(path) for path in written)}",
        file=sys.stderr,
    )
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
