"""`penstock cluster`: several brokers and their ZooKeeper, seen as one. One file per command.

Brokers are started as processes of their own, by the same `penstock start` that a person would type. All that a running
cluster is asked goes over the network, to whichever broker answers; only `adopt` looks into a data folder.
"""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser

COMMANDS = {
    "start": ("start", "start ZooKeeper and brokers on this machine"),
    "status": ("status", "show brokers, the controller, ZooKeeper, and what is not as it should be"),
    "add": ("add", "start one more broker of a cluster on this machine"),
    "drain": ("drain", "move everything off a broker, so that it can be taken away"),
    "rebalance": ("rebalance", "move partitions so that all brokers hold and lead about the same"),
    "elect": ("elect", "give partitions their preferred leaders, or any leader at all"),
    "adopt": ("adopt", "take the folder of a broker that stood alone into a cluster"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
