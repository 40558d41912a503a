"""`penstock cluster add`: a broker joins a cluster that was started on this machine, or comes back to it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.cluster.options import add_folder, add_settings
from penstock.cli.cluster.start import BROKERS_MAX, FIRST, broker_options
from penstock.cli.parser import Parser, not_negative
from penstock.cli.problem import Problem

if TYPE_CHECKING:
    from penstock.cli.cluster.folder import ClusterFolder, Record

EXAMPLES = """\
examples:
  penstock cluster add                        the next number and the next port
  penstock cluster add --node-id 2            brings back broker 2, which was stopped or killed
  penstock cluster rebalance                  then gives it its share

It runs in the foreground until Ctrl-C. 'penstock cluster start' on the folder starts it with the others next time.
"""


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--node-id", metavar="N", type=not_negative, help="default: one more than the highest")
    parser.add_argument("--listen", metavar="HOST:PORT", help="default: where it was, or the next port that is free")
    add_folder(parser)
    add_settings(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster.board import Board
    from penstock.cli.cluster.fleet import Fleet, LocalBroker
    from penstock.cli.cluster.folder import ClusterFolder, Member

    folder = ClusterFolder(args.data)
    record = folder.read()
    if record is None:
        raise Problem(
            f"no cluster was started in {folder.path}.", "Start one with 'penstock cluster start', or use --data."
        )
    known = {*folder.node_ids(), *(member.node_id for member in record.members)}
    node_id = args.node_id if args.node_id is not None else max(known, default=0) + 1
    if folder.runs(node_id):
        raise Problem(f"broker {node_id} runs already.", f"'penstock cluster status{folder.option}' shows where.")
    if record.zookeeper_pid is not None and not folder.is_held():
        raise Problem(
            f"the cluster in {folder.path} does not run, and neither does its ZooKeeper.",
            f"Start all of it with 'penstock cluster start{folder.option}'.",
        )
    listen = args.listen or _next_address(record, node_id)
    options = broker_options(args, len(known | {node_id}))
    broker = LocalBroker(node_id, listen, folder.broker(node_id), folder.log(node_id), options)

    def launched() -> None:
        folder.add(Member(node_id, listen, broker.pid))

    def up() -> None:
        print(_greeting(node_id, folder), flush=True)

    return Fleet([broker], record.connect).run(Board(), launched, up)


def _next_address(record: Record, node_id: int) -> str:
    from penstock.cli.cluster.fleet import can_listen, host_and_port

    listened = {member.node_id: member.listen for member in record.members}
    if node_id in listened:
        return listened[node_id]
    last = max(listened.values(), key=lambda each: host_and_port(each)[1], default=FIRST)
    host, port = last.rpartition(":")[0], host_and_port(last)[1]
    for following in range(port + 1, min(port + 1 + BROKERS_MAX, 65_536)):
        if can_listen(f"{host}:{following}") is None:
            return f"{host}:{following}"
    raise Problem(f"no port above {port} is free.", "Choose one with --listen HOST:PORT.")


def _greeting(node_id: int, folder: ClusterFolder) -> str:
    from penstock.cli.naming import command_name

    return "\n".join([
        "", f"  data        {folder.broker(node_id)}",
        f"  try         {command_name()} cluster rebalance{folder.option}",
        "              in another terminal: it gives a broker that is new its share",
        "  stop        Ctrl-C", "",
    ])  # fmt: skip
