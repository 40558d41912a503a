"""`penstock pipeline`: one file per command."""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser, add_bootstrap

COMMANDS = {
    "run": ("run", "run a pipeline until it is stopped, from where it was"),
    "check": ("check", "check a pipeline, and run nothing"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
        add_bootstrap(command)
