"""`penstock cluster rebalance`: as little moves as must for all brokers to hold and lead about the same."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.cluster.options import add_moving
from penstock.cli.parser import Parser, positive

if TYPE_CHECKING:
    from penstock.cli.cluster.reaching import Cluster, Key

EXAMPLES = """\
examples:
  penstock cluster rebalance --dry-run              what would move, and how much
  penstock cluster rebalance --throttle 50000000    50 MB/s at most, in and out of each broker
  penstock cluster rebalance --replicas 3           more copies, where partitions have fewer
  penstock cluster rebalance --cancel               takes back what is not complete yet
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--replicas", metavar="N", type=positive, help="partitions that have fewer get so many")
    parser.add_argument("--cancel", action="store_true", help="take back every move that is not complete")
    add_moving(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster import balancing, moves
    from penstock.cli.cluster.reaching import reach
    from penstock.cli.output import plural, print_json
    from penstock.cli.problem import usage

    cluster = reach(args)
    if args.cancel:
        if args.dry_run or args.throttle or args.replicas:
            raise usage("--cancel moves nothing.", "Leave out --dry-run, --throttle and --replicas.")
        cancelled = moves.cancel(cluster)
        if args.json:
            print_json({"cancelled": [{"topic": topic, "partition": index} for topic, index in sorted(cancelled)]})
        else:
            print(f"Took back {plural(len(cancelled), 'move')}." if cancelled else "Nothing was moving.")
        return 0
    snapshot, moving = cluster.snapshot(), cluster.moving()
    held = moves.placements(snapshot, moving, cluster.sizes(snapshot.brokers.values()))
    racks = {broker.node_id: broker.rack for broker in snapshot.brokers.values()}
    if args.replicas and args.replicas > len(racks):
        raise usage(f"{len(racks)} brokers can't hold {args.replicas} replicas of a partition.", "Add brokers first.")
    plan = balancing.rebalance(held, racks, args.replicas or 0)
    code = moves.carry_out(cluster, plan, args, "penstock cluster rebalance")
    if not (code or args.dry_run or args.json):
        _elect(cluster, [(move.topic, move.partition) for move in plan])
        print(f"Moved {plural(len(plan), 'partition')}." if plan else "All brokers hold and lead about the same.")
    return code


def _elect(cluster: Cluster, moved: list[Key]) -> None:
    """Where only the preferred leader changed, it leads at once and not when the controller looks next."""
    from penstock.cli.cluster.elect import PREFERRED, elect

    if moved:
        elect(cluster, moved, PREFERRED)
