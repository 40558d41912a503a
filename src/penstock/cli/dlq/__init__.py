"""`penstock dlq`: one file per command.

What was redriven or purged is marked in the topic of dead letters itself, in the transaction that did it. So whoever
looks knows what is still there, whichever filters were used, and no message goes back twice.
"""

from __future__ import annotations

from importlib import import_module

from penstock.cli.parser import Parser, add_bootstrap, add_json

COMMANDS = {
    "list": ("listing", "list the topics of dead letters, and how many are in each"),
    "show": ("show", "show dead letters: what went wrong, where they come from, what they say"),
    "redrive": ("redrive", "send dead letters back to where they come from, each once"),
    "purge": ("purge", "give dead letters up for good"),
}


def configure(parser: Parser) -> None:
    commands = parser.add_commands()
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        import_module(f"{__name__}.{module}").configure(command)
        add_json(command)
        add_bootstrap(command)
