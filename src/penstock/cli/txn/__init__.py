"""`penstock txn`: one file per command."""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser, add_bootstrap, add_json

COMMANDS = {
    "list": ("listing", "list transactional ids and where their transactions stand"),
    "describe": ("describe", "show one transaction: its producer, how long it has been open, and where it writes"),
    "commit": ("commit", "commit a transaction that was prepared in two phases, and whose producer is gone"),
    "abort": ("abort", "end a transaction that its producer does not end"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
        add_json(command)
        add_bootstrap(command)
