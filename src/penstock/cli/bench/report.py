"""What came out: a table, percentiles and a picture, or the same as JSON."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.cli.bench import histogram
from penstock.cli.bench.crew import Outcome


def document(args: argparse.Namespace, bootstrap: str, produced: Outcome, consumed: Outcome | None) -> dict[str, Any]:
    load = {
        "bootstrap": bootstrap,
        "size": args.size,
        "acks": args.acks,
        "compression": args.compression,
        "partitions": args.partitions,
        "producers": args.producers,
        "consumers": args.consumers,
        "rate": args.rate,
    }
    report = {"load": load, "produce": _side(produced, args.size)}
    if consumed is not None:
        report["consume"] = _side(consumed, args.size)
    return report


def _side(outcome: Outcome, size: int) -> dict[str, Any]:
    per_second = outcome.count / outcome.seconds if outcome.seconds else 0.0
    latency = histogram.percentiles_ms(outcome.histogram, outcome.max_ns)
    return {
        "messages": outcome.count,
        "failed": outcome.failed,
        "seconds": round(outcome.seconds, 3),
        "messages_per_s": round(per_second, 1),
        "mb_per_s": round(per_second * size / 1e6, 2),
        "latency_ms": {name: round(value, 3) for name, value in latency.items()},
        "histogram": [row._asdict() for row in histogram.rows(outcome.histogram)],
    }


def show(args: argparse.Namespace, produced: Outcome, consumed: Outcome | None) -> None:
    from penstock.cli.output import print_table

    sides = [("produce", produced)] + ([("consume", consumed)] if consumed is not None else [])
    reports = [(name, _side(outcome, args.size)) for name, outcome in sides]
    print()
    columns = ["", "messages", "failed", "seconds", "messages/s", "MB/s"]
    rows = [
        (
            name,
            f"{side['messages']:,}",
            side["failed"],
            f"{side['seconds']:.2f}",
            f"{side['messages_per_s']:,.0f}",
            f"{side['mb_per_s']:,.1f}",
        )
        for name, side in reports
    ]
    print_table(columns, rows, right=range(1, len(columns)))
    print()
    names = [*(name for name, _ in histogram.PERCENTILES), "max"]
    meanings = {"produce": "until acknowledged", "consume": "until consumed"}
    latencies = [
        (meanings[name], *(f"{side['latency_ms'][each]:.2f}" for each in names))
        for name, side in reports
        if side["latency_ms"]
    ]
    print_table(["latency, ms", *names], latencies, right=range(1, len(names) + 1))
    _draw(*sides[-1])
    if not args.rate:
        print("\nAt full speed a message mostly waits for its turn; --rate N shows the latency of a steady load.")


def _draw(name: str, outcome: Outcome) -> None:
    lines = histogram.draw(outcome.histogram)
    if lines:
        print(f"\nfrom produce until {'consumed' if name == 'consume' else 'acknowledged'}")
        print("\n".join(lines))
