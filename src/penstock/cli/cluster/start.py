"""`penstock cluster start`: a ZooKeeper and brokers on this machine, in the foreground, stopped together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.cluster.options import add_folder, add_settings
from penstock.cli.parser import Parser, positive

if TYPE_CHECKING:
    from penstock.cli.cluster.fleet import LocalBroker
    from penstock.cli.cluster.folder import ClusterFolder, Record
    from penstock.cli.cluster.zookeeper import LocalZooKeeper

EXAMPLES = """\
examples:
  penstock cluster start                              three brokers on 127.0.0.1:9092 to 9094
  penstock cluster start --brokers 5 --data /tmp/five --listen 127.0.0.1:19092
  penstock cluster start --zookeeper 127.0.0.1:2181/penstock --set flush=os

Started again on the same folder, the same cluster comes back, with the brokers that were added to it.
"""
BROKERS = 3
BROKERS_MAX = 100
REPLICAS = 3
FIRST = "127.0.0.1:9092"
PATH = "/penstock"  # below which our own ZooKeeper has what is the cluster's


def configure(parser: Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--brokers", metavar="N", type=positive, help=f"default: as many as the folder has, or {BROKERS}"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"of broker 1; the next ports for the next ({FIRST})")
    parser.add_argument("--zookeeper", metavar="HOST:PORT,…/PATH", help="one that runs already, instead of our own")
    parser.add_argument("--zookeeper-port", metavar="PORT", type=positive, help="of our own; default: any that is free")
    add_folder(parser)
    add_settings(parser)
    parser.leaf(run)


def run(args: argparse.Namespace) -> int:
    from penstock.cli.cluster.board import Board
    from penstock.cli.cluster.fleet import Fleet
    from penstock.cli.cluster.folder import ClusterFolder, Member, Record

    folder = ClusterFolder(args.data)
    with folder.held():
        record = folder.read()
        zookeeper, connect = _zookeeper(args, folder, record)
        # Its port is free: the brokers that run, if any, are without it.
        is_down = zookeeper is not None and record is not None and connect == record.connect
        brokers, running = _brokers(args, folder, record, may_be_none=is_down)
        fleet = Fleet(brokers, connect, zookeeper)

        def members() -> list[Member]:
            started = [Member(broker.node_id, broker.listen, broker.pid) for broker in brokers]
            others = [each for each in (record.members if record else ()) if each.node_id in running]
            return sorted([*started, *others], key=lambda each: each.node_id)

        def launched() -> None:
            folder.write(Record(connect, zookeeper.pid if zookeeper else None, tuple(members())))

        def up() -> None:
            print(greeting([each.listen for each in members()], connect, folder), flush=True)

        return fleet.run(Board(), launched, up)


def _zookeeper(
    args: argparse.Namespace, folder: ClusterFolder, record: Record | None
) -> tuple[LocalZooKeeper | None, str]:
    """Our own, if it is to be one of ours, and where brokers find it."""
    from penstock.cli.cluster.fleet import can_listen
    from penstock.cli.cluster.processes import ends_with_parent
    from penstock.cli.cluster.zookeeper import LocalZooKeeper
    from penstock.cli.problem import Problem, usage

    if args.zookeeper and args.zookeeper_port:
        raise usage("--zookeeper is one that runs already, --zookeeper-port is for one of ours.", "Choose one of them.")
    before = record.connect if record else None
    ours = folder.zookeeper.exists() or before is None
    if args.zookeeper or not ours:
        connect = str(args.zookeeper or before)
        if before is not None and ours:
            hint = f"Start it without --zookeeper, or choose another folder than {folder.path} with --data."
            raise Problem("this cluster has a ZooKeeper of its own.", hint)
        return None, connect
    port = args.zookeeper_port or 0
    if not port and before is not None:
        port = int(before.partition("/")[0].rpartition(":")[2])  # where brokers that run still may look for it
        port = 0 if can_listen(f"127.0.0.1:{port}") else port
    zookeeper = LocalZooKeeper(folder.zookeeper, port or _free_port(), preexec=ends_with_parent())
    return zookeeper, zookeeper.connect + PATH


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _brokers(
    args: argparse.Namespace, folder: ClusterFolder, record: Record | None, *, may_be_none: bool = False
) -> tuple[list[LocalBroker], list[int]]:
    """Those to be started, and the numbers of those that run already."""
    from penstock.cli.cluster.fleet import LocalBroker, host_and_port
    from penstock.cli.problem import Problem, usage

    known = folder.node_ids() or (record.expected if record else [])
    node_ids = sorted({*known, *range(1, (args.brokers or (0 if known else BROKERS)) + 1)})
    if len(node_ids) > BROKERS_MAX:
        raise usage(f"{len(node_ids)} brokers on one machine are too many: at most {BROKERS_MAX}.")
    running = [node_id for node_id in node_ids if folder.runs(node_id)]
    if running == node_ids and not may_be_none:
        raise Problem(
            f"the brokers in {folder.path} run already.", f"'penstock cluster status{folder.option}' shows them."
        )
    listened = {each.node_id: each.listen for each in record.members} if record and not args.listen else {}
    host, port = host_and_port(args.listen or (listened.get(1) or FIRST))
    if port + node_ids[-1] - 1 > 65535:
        raise usage(f"there are not {node_ids[-1]} ports from {port} on.")
    options = broker_options(args, len(node_ids))
    brokers = [
        LocalBroker(
            node_id, listened.get(node_id, f"{host}:{port + node_id - 1}"), folder.broker(node_id), folder.log(node_id),
            options,
        )
        for node_id in node_ids
        if node_id not in running
    ]  # fmt: skip
    return brokers, running


def broker_options(args: argparse.Namespace, brokers: int) -> list[str]:
    """Topics are replicated unless someone says otherwise: that is what a cluster is for."""
    options = ["--config", str(args.config)] if args.config else []
    if "default.replication.factor" not in dict(args.changes) and not args.config:
        options += ["--set", f"default.replication.factor={min(REPLICAS, brokers)}"]
    for name, value in args.changes:
        options += ["--set", f"{name}={value}"]
    return options


def greeting(listened: Sequence[str], connect: str, folder: ClusterFolder) -> str:
    """Commands to copy find the cluster from where they are shown, whichever of its brokers is down."""
    from penstock.cli.naming import command_name, enough, reachable

    addresses = [reachable(listen) for listen in listened]
    command = command_name()
    option = f" --bootstrap {enough(addresses)}" if folder.option else ""
    return "\n".join(
        [
            "",
            f"  brokers     {','.join(addresses)}",
            f"  zookeeper   {connect}",
            f"  data        {folder.path}",
            f"  try         {command} cluster status{folder.option}",
            f"              {command} topic create greetings -p 6{option}",
            f"              echo hello | {command} produce greetings{option}",
            f'  Python      confluent_kafka.Producer({{"bootstrap.servers": "{enough(addresses)}"}})',
            "  stop        Ctrl-C",
            "",
        ]
    )
