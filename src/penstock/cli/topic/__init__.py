"""`penstock topic`: one file per command."""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser, add_bootstrap, add_json

COMMANDS = {
    "create": ("create", "create topics"),
    "list": ("listing", "list the topics"),
    "describe": ("describe", "show a topic's partitions and settings"),
    "alter": ("alter", "change a topic's settings, or add partitions"),
    "truncate": ("truncate", "delete a topic's oldest messages"),
    "delete": ("delete", "delete topics and all that is in them"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
        add_json(command)
        add_bootstrap(command)
