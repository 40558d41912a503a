"""`penstock archive`: one file per command."""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser, add_bootstrap, add_json

COMMANDS = {
    "run": ("run", "copy topics to Parquet files, as they grow"),
    "status": ("status", "show what is archived, up to which offset, and gaps"),
    "compact": ("compact", "merge small files into larger ones"),
    "verify": ("verify", "compare an archive and the log, record by record"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
        add_json(command)
        add_bootstrap(command)
