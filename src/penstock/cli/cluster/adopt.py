"""`penstock cluster adopt`: what a broker that stood alone has, as the beginning of a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli.parser import Parser, add_json, not_negative

EXAMPLES = """\
examples:
  penstock cluster adopt --data penstock-data --zookeeper 127.0.0.1:2181/penstock
  penstock start --data penstock-data --zookeeper 127.0.0.1:2181/penstock

The broker must not run. Its topics, settings, groups and producers are those of the cluster afterwards. When more
brokers have joined, 'penstock cluster rebalance --replicas 3' gives them their share, and each partition its copies.
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--data", metavar="DIR", type=Path, required=True, help="the data folder of the broker")
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…/PATH", required=True, help="where there is no cluster yet")
    parser.add_argument("--node-id", metavar="N", type=not_negative, help="its number from now on; default: as it was")
    add_json(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    import asyncio
    import logging

    from penstock.broker.adoption import Refused, adopt
    from penstock.cli.naming import command_name
    from penstock.cli.output import plural, print_json
    from penstock.cli.problem import Problem

    logging.basicConfig(format="penstock: %(message)s")  # what it waits for is told by the log of the broker's rooms
    try:
        done = asyncio.run(adopt(args.data, args.zookeeper, args.node_id))
    except Refused as refusal:
        raise Problem(refusal.message, refusal.hint) from None
    if args.json:
        print_json({
            "cluster_id": done.cluster_id, "node_id": done.node_id, "topics": done.topics, "already": done.already,
        })  # fmt: skip
        return 0
    what = "was adopted before" if done.already else f"is adopted, with {plural(done.topics, 'topic')}"
    print(f"{args.data} {what}: it is broker {done.node_id} of cluster {done.cluster_id}. Start it with:")
    place = f"--data {args.data} --zookeeper {args.zookeeper}"
    print(f"  {command_name()} start --node-id {done.node_id} {place}")
    return 0
