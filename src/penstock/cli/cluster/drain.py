"""`penstock cluster drain`: another broker gets each replica that a broker has, and then leads what that one led."""

from __future__ import annotations

import argparse

from penstock.cli.cluster.options import add_moving
from penstock.cli.parser import Parser, not_negative

EXAMPLES = """\
examples:
  penstock cluster drain 3
  penstock cluster drain 3 4 --dry-run
  penstock cluster drain 3 --throttle 50000000      50 MB/s at most, in and out of each broker

A broker that is down can be drained too, as long as others have what it held.
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("brokers", metavar="ID", nargs="+", type=not_negative, help="the number of a broker")
    add_moving(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster import balancing, moves
    from penstock.cli.cluster.reaching import reach
    from penstock.cli.problem import Problem

    cluster = reach(args)
    snapshot = cluster.snapshot()
    moves.refuse_unknown(args.brokers, snapshot)
    held = moves.placements(snapshot, cluster.moving(), cluster.sizes(snapshot.brokers.values()))
    racks = {broker.node_id: broker.rack for broker in snapshot.brokers.values()}
    try:
        plan = balancing.drain(held, racks, args.brokers)
    except balancing.NoRoom as error:
        option = cluster.bootstrap.options if cluster.record else ""
        hint = f"Add a broker first ('penstock cluster add{option}'), or delete topics that need as many."
        raise Problem(f"{error}: each that stays has one already.", hint) from None
    names = " ".join(map(str, args.brokers))
    code = moves.carry_out(cluster, plan, args, f"penstock cluster drain {names}")
    if code or args.dry_run:
        return code
    left = [each for each in cluster.snapshot().partitions if not set(args.brokers).isdisjoint(each.replicas)]
    if not left and cluster.bootstrap.folder is not None:
        cluster.bootstrap.folder.drained(args.brokers)
    if args.json:
        return 0
    if left:
        raise Problem(
            f"{left[0].topic}-{left[0].index} is on broker {names} still, and {len(left) - 1} others.",
            "Topics may have been created meanwhile: drain it again.",
        )
    many = len(args.brokers) > 1
    print(
        f"Broker{'s' * many} {names} hold{'s' * (not many)} nothing any more. Stop {'them' if many else 'it'} before "
        f"new topics are created, and remove the data folder{'s' * many}."
    )
    return 0
