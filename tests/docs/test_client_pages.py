"""The pages about the Python client: a page is one session, whose blocks run in order against a broker of its own.

Of a page, blocks of `python` run in one namespace, or are saved where they begin with a file's name; those of `console`
are commands. Blocks of `sh` and `py` are for reading.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.brokers import BrokerProcess
from tests.client.test_likeness import INSIDE, public
from tests.docs.test_documents import ROOT, Block, assert_shown, blocks, script

COMMAND_TIMEOUT_S = 60


class Session:
    """Somebody who reads a page and types what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.programs = folder / "bin"
        self.programs.mkdir()
        self._add_program("python", "")
        self._add_program("penstock", "-m penstock")

    def _add_program(self, name: str, arguments: str) -> None:
        program = self.programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)

    def follow(self, block: Block) -> None:
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
                command, _, shown = part.partition("\n")
                assert_shown(self.command(command), shown)
        elif named := re.match(r"# (\w+\.py)\n", block.text):
            (self.folder / named[1]).write_text(block.text)
        else:
            assert_shown(self.python(block), block.shows or "")

    def python(self, block: Block) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(block.text, f"<{block.heading}>", "exec"), self.names)
        return printed.getvalue()

    def command(self, command: str) -> str:
        """Both streams as a terminal shows them, without spaces at the ends of lines."""
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.parametrize("page", ["tutorial"])
def test_the_blocks_of_a_page_print_what_is_shown(
    page: str, new_broker: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", new_broker().bootstrap)
    session = Session(tmp_path)
    followed = [block for block in blocks(ROOT / f"docs/client/{page}.md") if block.language in ("python", "console")]
    assert followed
    for block in followed:
        session.follow(block)


def type_check(code: str, folder: Path) -> str:
    """What mypy has to say about a program, strictly."""
    program = folder / "program.py"
    program.write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(program)]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout


def test_the_tutorial_passes_a_strict_type_checker(tmp_path: Path) -> None:
    shown = [block.text for block in blocks(ROOT / "docs/client/tutorial.md") if block.language == "python"]
    session = "\n\n".join(text for text in shown if not re.match(r"# \w+\.py\n", text))
    assert type_check(session, tmp_path) == ""


@pytest.mark.parametrize("example", ["job_queue", "log_shipping", "order_processing"])
def test_an_example_passes_a_strict_type_checker(example: str, tmp_path: Path) -> None:
    assert type_check((ROOT / "examples" / f"{example}.py").read_text(), tmp_path) == ""


MISSPELT = {
    "@consumer.handler(rety=Retry(attempts=5))\ndef pay(message: Message) -> None: ...": '"rety"',
    "consumer.handler(ordered='yes')": "matches argument type",
    "Queue('jobs', retry='5')": '"retry"',
    "AsyncConsumer(group='g', topics='t', valeu='json')": '"valeu"',
    "AsyncProducer(delivry='exactly-once')": '"delivry"',
    "Topic('t').subscribe('g', bogus=1)": '"bogus"',
    "Producer(delivery='at-lest-once')": '"delivery"',
}


def test_a_type_checker_finds_what_is_misspelt(tmp_path: Path) -> None:
    head = (
        "from penstock import *\nconsumer = Consumer(group='g', topics='t')\nQueue('jobs', dead_letter='graveyard')\n"
    )
    said = type_check(head + "\n".join(MISSPELT), tmp_path)
    first = head.count("\n") + 1
    for code, complaint in MISSPELT.items():
        (found,) = re.findall(rf":{first}: error: (.*)\[(?:call|arg)", said)
        assert complaint in found
        first += code.count("\n") + 1
    assert ":3: " not in said


def test_the_reference_has_every_name_that_the_package_exports() -> None:
    text = (ROOT / "docs/client/reference.md").read_text()
    assert [name for name in penstock.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_the_reference_has_every_member_of_a_class() -> None:
    listed = script("client_reference").MEMBERS
    missing = {
        kind.__name__: sorted(public(kind) - INSIDE[kind] - set(listed[kind]) - {"place", "raw"})
        for kind in listed
        if kind in INSIDE
    }
    assert {name: members for name, members in missing.items() if members} == {}
