"""Which brokers a command asks, and how it came to know of them.

What is said on the command line counts most, then what the environment says, and then the cluster that was started in
the folder where the command is run. A cluster that was found there and does not answer is never replaced by another
broker: that one would be asked to do what was meant for the cluster.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.cluster.folder import ClusterFolder, Record
from penstock.cli.parser import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, DEFAULT_CLUSTER
from penstock.cli.problem import Problem, usage

ANOTHER = "name another with --bootstrap HOST:PORT"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    addresses: str  # HOST:PORT, or several with commas
    advice: str  # where they come from, and what to do if none of them answers
    options: str = ""  # what a 'penstock cluster' command must be given to find the same brokers, a space before it
    record: Record | None = None  # of the cluster, if its folder told
    folder: ClusterFolder | None = None  # that folder

    def places(self) -> list[tuple[str, int]]:
        return [_place(text.strip()) for text in self.addresses.split(",") if text.strip()]


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise usage(f"{text!r} is not HOST:PORT.", "For example: --bootstrap 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def find(given: str | None, data: Path | None = None) -> Bootstrap:
    """What was given on the command line: brokers, or the folder of a cluster, or neither."""
    if given and data is not None:
        raise usage("--bootstrap and --data both say which cluster is meant.", "Choose one of them.")
    if given:
        return Bootstrap(given, f"Start one with 'penstock start', or {ANOTHER}.", f" --bootstrap {shlex.quote(given)}")
    if data is not None:
        return _of_folder(data) or _nothing_in(data)
    if named := os.environ.get(BOOTSTRAP_VARIABLE):
        return Bootstrap(named, f"${BOOTSTRAP_VARIABLE} names it. Start one with 'penstock start', or {ANOTHER}.")
    default = Bootstrap(
        DEFAULT_BOOTSTRAP,
        f"That is the default. Start one with 'penstock start', or {ANOTHER} (or ${BOOTSTRAP_VARIABLE}).",
    )
    return _of_folder(Path(DEFAULT_CLUSTER)) or default


def _of_folder(data: Path) -> Bootstrap | None:
    folder = ClusterFolder(data)
    record = folder.read()
    if record is None or not record.members:
        return None
    advice = (
        f"That is the cluster in {folder.path}.\n"
        f"Start it again with 'penstock cluster start{folder.option}', or {ANOTHER}."
    )
    return Bootstrap(record.bootstrap, advice, folder.option, record, folder)


def _nothing_in(data: Path) -> Bootstrap:
    raise Problem(f"no cluster was started in {data}.", "Name a broker with --bootstrap HOST:PORT.")
