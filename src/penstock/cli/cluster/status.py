"""`penstock cluster status`: who is there, and what is not as it should be.

It ends with 0 if all is well and with 1 if not, so that scripts can wait for it.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.cluster.options import add_reach
from penstock.cli.parser import Parser, add_json, positive_number

if TYPE_CHECKING:
    from penstock.cli.cluster.health import Health
    from penstock.cli.cluster.reaching import Cluster
    from penstock.cli.problem import Problem

EXAMPLES = """\
examples:
  penstock cluster status
  penstock cluster status --json --bootstrap 127.0.0.1:9093
  penstock cluster status --wait 60                 returns when all is well, or a minute is over

exit code: 0 if all is well, 1 if something is not.
"""
LOOK_S = 0.5
ROWS_MAX = 20


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--wait", metavar="SECONDS", type=positive_number, help="wait so long for all to be well")
    add_json(parser)
    add_reach(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster.health import examine
    from penstock.cli.cluster.reaching import reach
    from penstock.cli.output import print_json
    from penstock.cli.problem import Problem

    cluster = reach(args)
    try:
        health = _patiently(lambda: examine(cluster), args.wait or 0.0)
    except Problem as problem:
        if args.json:
            print_json(unknown(cluster, problem))
        raise
    if args.json:
        print_json(as_document(health))
    else:
        show(health)
        _advise(cluster, health)
    return 1 if health.problems else 0


def _patiently(look: Any, patience_s: float) -> Health:
    from penstock.cli.problem import Problem

    deadline = time.monotonic() + patience_s
    while True:
        late = time.monotonic() >= deadline
        try:
            health: Health = look()
            if late or not health.problems:
                return health
        except Problem:
            if late:
                raise
        time.sleep(LOOK_S)


def as_document(health: Health) -> dict[str, Any]:
    snapshot = health.snapshot
    zookeeper = health.zookeeper
    return {
        "healthy": not health.problems,
        "problems": health.problems,
        "notes": health.notes,
        "cluster_id": snapshot.cluster_id,
        "controller": snapshot.controller if snapshot.controller >= 0 else None,
        "zookeeper": zookeeper and {
            "connect": zookeeper.connect,
            "pid": next((each.pid for each in zookeeper.servers if each.pid is not None), None),
            "servers": [
                {"host": each.host, "port": each.port, "answers": each.answers, "pid": each.pid}
                for each in zookeeper.servers
            ],
        },
        "brokers": [
            {
                "id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack,
                "controller": each.node_id == snapshot.controller, "pid": health.pids.get(each.address),
                "answers": each.node_id in health.sizes,
                "reaches_zookeeper": zookeeper and each.node_id in health.sizes and each.node_id not in health.cut_off,
                "leaders": health.leads(each.node_id), "replicas": health.holds(each.node_id),
                "size_bytes": health.size_bytes(each.node_id),
                "behind_bytes": health.behind_bytes(each.node_id),
            }
            for each in snapshot.brokers.values()
        ],
        "missing": health.missing,
        "partitions": len(snapshot.partitions),
        "under_replicated": [_partition(each) for each in health.under_replicated],
        "offline": [_partition(each) for each in health.offline],
        "under_min_isr": [_partition(each) for each in health.under_min_isr],
        "lagging": [
            {"topic": topic, "partition": index, "broker": each.node_id, "in_sync": each.in_sync,
             "behind_bytes": each.behind_bytes}
            for each in health.lagging
            for topic, index in [each.key]
        ],
        "reassignments": [
            {"topic": topic, "partition": index, "replicas": each.target, "adding": each.adding,
             "removing": each.removing}
            for (topic, index), each in sorted(health.moving.items())
        ],
        "holds": [
            {"topic": topic, "partition": index, **each.as_document()}
            for (topic, index), each in sorted(health.retention_holds.items())
        ],
    }  # fmt: skip


def unknown(cluster: Cluster, problem: Problem) -> dict[str, Any]:
    """The same document where nobody answers, so that programs need not know two."""
    nothing: dict[str, Any] = dict.fromkeys(("cluster_id", "controller", "zookeeper", "partitions"))
    empty = ("brokers", "under_replicated", "offline", "under_min_isr", "lagging", "reassignments", "holds")
    return {
        "healthy": False, "problems": [problem.message], "notes": [], **nothing, **{name: [] for name in empty},
        "missing": cluster.record.expected if cluster.record else [],
    }  # fmt: skip


def _partition(partition: Any) -> dict[str, Any]:
    return {
        "topic": partition.topic, "partition": partition.index,
        "leader": partition.leader if partition.leader >= 0 else None, "replicas": partition.replicas,
        "isr": partition.isr,
    }  # fmt: skip


def show(health: Health) -> None:
    from penstock.cli.cluster.moves import human
    from penstock.cli.output import plural, print_facts, print_table

    snapshot = health.snapshot
    facts: list[tuple[str, object]] = [("cluster", snapshot.cluster_id)]
    if health.zookeeper is not None:
        pids = [str(each.pid) for each in health.zookeeper.servers if each.pid is not None]
        facts.append(("zookeeper", health.zookeeper.connect + (f" (process {', '.join(pids)})" if pids else "")))
    facts.append(("controller", snapshot.controller if snapshot.controller >= 0 else None))
    facts.append(("partitions", len(snapshot.partitions)))
    print_facts(facts)
    print()
    rows: list[tuple[object, ...]] = [
        (
            each.node_id, f"{each.host}:{each.port}", each.rack, health.pids.get(each.address),
            health.leads(each.node_id), health.holds(each.node_id), human(health.size_bytes(each.node_id)),
            human(health.behind_bytes(each.node_id)),
        )
        for each in snapshot.brokers.values()
    ]  # fmt: skip
    rows += [(node_id, "down", None, None, 0, health.holds(node_id), None, None) for node_id in health.missing]
    columns = ["broker", "address", "rack", "process", "leads", "replicas", "size", "behind"]
    print_table(columns, sorted(rows, key=lambda row: str(row[0]).zfill(10)), right=(6, 7))
    if health.moving:
        print(f"\n{plural(len(health.moving), 'partition')} on the way to other brokers.")
    troubled = list(dict.fromkeys([*health.offline, *health.under_min_isr, *health.under_replicated]))
    troubled.sort(key=lambda each: each.topic.startswith("__"))  # there are many of these, and people know theirs
    if troubled:
        print()
        print_table(
            ["topic", "partition", "leader", "replicas", "isr"],
            [
                (each.topic, each.index, each.leader if each.leader >= 0 else None, each.replicas, each.isr)
                for each in troubled[:ROWS_MAX]
            ],
        )
        if len(troubled) > ROWS_MAX:
            print(f"… and {len(troubled) - ROWS_MAX:,} more: --json has all of them.")
    _show_over_limit(health)
    print()
    for problem in health.problems:
        print(f"! {problem}")
    if not health.problems:
        print("All is well.")
    for note in health.notes:
        print(f"Note: {note}")


def _show_over_limit(health: Health) -> None:
    over = [each.sentence(key) for key, each in sorted(health.retention_holds.items()) if each.over_limit]
    if over:
        print("\n" + "\n".join(over[:ROWS_MAX]))
    if len(over) > ROWS_MAX:
        print(f"… and {len(over) - ROWS_MAX:,} more: --json has all of them.")


def _advise(cluster: Cluster, health: Health) -> None:
    """What a person types next, where that is known."""
    from penstock.cli.cluster.leaderless import advice, bring_back, leaderless

    if health.offline:
        lines = advice(cluster, leaderless(cluster, health.snapshot, health.offline))
    else:
        lines = bring_back(cluster, health.missing)
        lines = ["Bring back what is down:", *lines] if lines else []
    if lines:
        print("\n" + "\n".join(lines))
