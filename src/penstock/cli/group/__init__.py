"""`penstock group`: one file per command."""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser, add_bootstrap, add_json

COMMANDS = {
    "list": ("listing", "list the consumer groups"),
    "describe": ("describe", "show a group's members, its offsets and how far behind it is"),
    "reset": ("reset", "move a group to another place in its topics"),
    "delete": ("delete", "delete groups and their offsets"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
        add_json(command)
        add_bootstrap(command)
