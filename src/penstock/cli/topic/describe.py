"""`penstock topic describe`: where its partitions are, what is in them, which settings are not the default, and what is
kept for the group that retention waits for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock.cli.parser import Parser

if TYPE_CHECKING:
    from penstock.cli.connection import Connection, Key
    from penstock.cli.holds import Hold

EXAMPLES = """\
examples:
  penstock topic describe orders
  penstock topic describe orders --all           every setting, not only those that differ from the default
  penstock topic describe orders --json
"""
SOURCES = {1: "topic", 2: "broker, while running", 3: "cluster", 4: "broker", 5: "default"}
DEFAULT_SOURCE = 5
HOLD_GROUP = "retention.hold.group"
HOLDS_SHOWN_MAX = 20


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="show every setting")
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.connection import connect
    from penstock.cli.output import plural, print_facts, print_json, print_table

    connection = connect(args)
    partitions = _partitions(connection, args.topic)
    settings = _settings(connection, args.topic, args.all)
    waits = any(each["name"] == HOLD_GROUP and each["value"] for each in settings)
    holds = _holds(connection, args.topic) if waits else {}
    if args.json:
        for row in partitions:
            hold = holds.get((args.topic, row["partition"]))
            row["hold"] = hold.as_document() if hold else None
        print_json({"topic": args.topic, "partitions": partitions, "settings": settings})
        return 0
    replicas = max((len(row["replicas"]) for row in partitions), default=0)
    facts = [("topic", args.topic), ("partitions", len(partitions)), ("replicas", replicas)]
    facts.append(("messages", f"{sum(row['count'] or 0 for row in partitions):,}"))
    print_facts(facts)
    print()
    print_table(list(PARTITION_COLUMNS), [[row[name] for name in PARTITION_COLUMNS] for row in partitions])
    print()
    if settings:
        print_table(["setting", "value", "set by"], [(s["name"], s["value"], s["source"]) for s in settings])
    else:
        print("Every setting is the default.")
    _show_holds(holds)
    offline = [row["partition"] for row in partitions if row["leader"] is None]
    if offline:
        print(f"\n{plural(len(offline), 'partition')} without a leader: {', '.join(map(str, offline))}.")
    return 0


PARTITION_COLUMNS = ("partition", "leader", "replicas", "isr", "start", "end", "count")


def _partitions(connection: Connection, topic: str) -> list[dict[str, Any]]:
    from penstock.cli.kafka_admin import EARLIEST, LATEST

    known = connection.topic(topic).partitions
    keys = [(topic, number) for number in known]
    starts = connection.known_offsets(dict.fromkeys(keys, EARLIEST))
    ends = connection.known_offsets(dict.fromkeys(keys, LATEST))
    rows = []
    for number in sorted(known):
        key, partition = (topic, number), known[number]
        is_known = key in starts and key in ends
        rows.append(
            {
                "partition": number,
                "leader": partition.leader if partition.leader >= 0 else None,
                "replicas": list(partition.replicas),
                "isr": list(partition.isrs),
                "start": starts.get(key),
                "end": ends.get(key),
                "count": ends[key] - starts[key] if is_known else None,
            }
        )
    return rows


def _holds(connection: Connection, topic: str) -> dict[Key, Hold]:
    """By their leaders. Of a partition that has none, or whose leader does not answer, nothing is known."""
    from contextlib import suppress

    from penstock.cli.holds import described_replicas, hold_of
    from penstock.cli.problem import Problem
    from penstock.cli.raw import address_of
    from penstock.protocol.messages.describe_log_dirs import DescribableLogDirTopic

    led: dict[int, list[int]] = {}
    for number, partition in connection.topic(topic).partitions.items():
        led.setdefault(partition.leader, []).append(number)
    found: dict[Key, Hold] = {}
    for leader in led.keys() & connection.cluster.brokers.keys():
        asked = [DescribableLogDirTopic(topic=topic, partitions=led[leader])]
        with suppress(Problem):
            for key, replica in described_replicas(address_of(connection.cluster.brokers[leader]), asked):
                hold = hold_of(replica)
                if hold is not None:
                    found[key] = hold
    return dict(sorted(found.items()))


def _show_holds(holds: dict[Key, Hold]) -> None:
    lines = [hold.sentence(key) for key, hold in holds.items()]
    if lines:
        print("\n" + "\n".join(lines[:HOLDS_SHOWN_MAX]))
    if len(lines) > HOLDS_SHOWN_MAX:
        print(f"… and {len(lines) - HOLDS_SHOWN_MAX:,} more: --json has all of them.")


def _settings(connection: Connection, topic: str, every: bool) -> list[dict[str, Any]]:
    from penstock.cli.connection import REQUEST_TIMEOUT_S
    from penstock.cli.kafka_admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    future = connection.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    entries = connection.wait(future, f"can't read the settings of {topic!r}")
    return [
        {"name": name, "value": entry.value, "source": SOURCES.get(entry.source, "unknown")}
        for name, entry in sorted(entries.items())
        if every or entry.source != DEFAULT_SOURCE
    ]
