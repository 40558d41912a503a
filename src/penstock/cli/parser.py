"""The shape of a command line: options every command shares, and refusals that suggest what was meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from penstock.cli.problem import did_you_mean, usage

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_CLUSTER = "penstock-cluster"  # the folder that 'penstock cluster start' makes
BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)
        self._commands: argparse._SubParsersAction[Parser] | None = None

    def add_commands(self) -> argparse._SubParsersAction[Parser]:
        self._commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        return self._commands

    def leaf(self, run: Run) -> None:
        """This parser ends a command line, and `run` does what it says."""
        self.set_defaults(run=run, parser=self)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        args, unknown = self.parse_known_args(arguments)
        if unknown:
            parser: Parser = args.parser
            options = re.findall(r"--[a-z][a-z-]*", parser.format_help())
            hint = did_you_mean(unknown[0].partition("=")[0], options)
            raise usage(f"{parser.prog} does not know {unknown[0]!r}.", hint or parser.see_help())
        return args

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '?([^' ]+)'?", message)
        if self._commands is not None and choice:
            hint = did_you_mean(choice[1], self._commands.choices)
            raise usage(f"there is no command {self.prog + ' ' + choice[1]!r}.", hint or self.see_help())
        if self._commands is not None and "required: COMMAND" in message:
            raise usage(f"which command? One of: {', '.join(self._commands.choices)}.", self.see_help())
        raise usage(f"{message}.", self.see_help())

    def see_help(self) -> str:
        return f"See '{self.prog} -h'."


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"a broker to ask, or several with commas (default: ${BOOTSTRAP_VARIABLE}, the cluster in "
        f"./{DEFAULT_CLUSTER}, or {DEFAULT_BOOTSTRAP})",
    )


def add_json(parser: argparse.ArgumentParser, meaning: str = "print one JSON document, for programs") -> None:
    parser.add_argument("--json", action="store_true", help=meaning)


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def key_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
