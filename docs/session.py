"""Draws docs/session.svg from a session that it runs: `python docs/session.py`.

A broker and a few commands run on pseudo-terminals, in /tmp/demo and on the default port, which must be free; what
they print is what is drawn.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).with_name("session.svg")
FOLDER = Path("/tmp/demo")
ADDRESS = ("127.0.0.1", 9092)
COMMANDS = [
    "penstock topic create orders -p 3",
    r"printf 'ada:3 apples\nbob:1 pear\nada:2 plums\n' | penstock produce orders --key-separator :",
    "penstock consume orders --group billing -n 3",
    "penstock group describe billing",
]

COLUMNS = 124
CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN = 7.8, 18, 13, 16
STYLES = {"1": "b", "2": "d", "36": "c"}
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
CSS = ".b{font-weight:bold;fill:#fff}.d{fill:#7d8a99}.c{fill:#5fc9d8}.p{fill:#8fd18a}"


class Run(NamedTuple):
    """Text in one style, at a column."""

    column: int
    text: str
    style: str


def runs(line: str) -> list[Run]:
    """A line as a terminal shows it: escape sequences become styles."""
    found: list[Run] = []
    style, column = "", 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            style = STYLES.get(part[2:-1], "")
        elif part:
            words = re.finditer(r"\S+( \S+)*", part)  # apart, so that columns stand in line in any font
            found += [Run(column + word.start(), word[0], style) for word in words]
            column += len(part)
    return found


def prompt(command: str) -> list[Run]:
    return [Run(0, "$ ", "p"), Run(2, command, "b")]


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return own | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}


def start(command: str) -> tuple[subprocess.Popen[bytes], int]:
    """A process, and the end of a terminal to read what it writes."""
    ours, theirs = pty.openpty()
    shell = f'penstock() {{ "{sys.executable}" -m penstock "$@"; }}; {command}'
    process = subprocess.Popen(
        ["sh", "-c", shell], cwd=FOLDER, env=environment(), stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    return process, ours


def read_all(terminal: int) -> list[str]:
    """Until the last process has let go of it."""
    data = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody writes any more
            piece = b""
        if not piece:
            return data.decode().replace("\r\n", "\n").splitlines()
        data += piece


def wait_for_broker() -> None:
    for _ in range(200):
        try:
            socket.create_connection(ADDRESS, timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the broker does not answer")


def record() -> tuple[list[list[Run]], list[list[Run]]]:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    broker, terminal = start("penstock start")
    wait_for_broker()
    session: list[list[Run]] = []
    for command in COMMANDS:
        session.append(prompt(command))
        session += [runs(line) for line in read_all(start(command)[1])]
    os.killpg(broker.pid, signal.SIGINT)
    log = [prompt("penstock start"), *(runs(line) for line in read_all(terminal))]
    broker.wait()
    shutil.rmtree(FOLDER)
    return log, session


def draw(panes: list[tuple[str, list[list[Run]]]]) -> str:
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    body, top = [], 0.0
    for title, lines in panes:
        height = (len(lines) + 1) * LINE_HEIGHT + 3 * MARGIN
        body.append(f'<rect y="{top}" width="{width}" height="{height}" rx="8" fill="#1b222b"/>')
        body.append(f'<text class="d" x="{MARGIN}" y="{top + MARGIN + FONT_SIZE - 4}">{escape(title)}</text>')
        for number, line in enumerate(lines):
            y = top + 2 * MARGIN + (number + 1) * LINE_HEIGHT + 4
            body += [text(run, y) for run in line]
        top += height + MARGIN
    size = f'width="{width}" height="{top - MARGIN}" viewBox="0 0 {width} {top - MARGIN}"'
    font = f'font-family="{FONTS}" font-size="{FONT_SIZE}" fill="#d6dde6"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return "\n".join([head, f"<title>A session with Penstock</title><style>{CSS}</style>", *body, "</svg>", ""])


def text(run: Run, y: float) -> str:
    style = f' class="{run.style}"' if run.style else ""
    x, width = MARGIN + run.column * CELL_WIDTH, len(run.text) * CELL_WIDTH
    place = f'x="{x:.1f}" y="{y}" textLength="{width:.1f}" xml:space="preserve"'
    return f"<text{style} {place}>{escape(run.text, quote=False)}</text>"


if __name__ == "__main__":
    log, session = record()
    PICTURE.write_text(draw([("terminal 1", log), ("terminal 2", session)]))
