"""A run over a target: what is in the corpus, then input after input until the time is over or something breaks."""

from __future__ import annotations

import hashlib
import random
import time
from collections import deque
from pathlib import Path
from typing import Protocol

CORPUS = Path(__file__).parent / "corpus"
RECENT = 20  # inputs that are shown when something breaks: a broker may break a moment later than it was hit


class Target(Protocol):
    name: str

    def make(self, rng: random.Random) -> list[bytes]:
        """An input: a few byte strings that belong together."""

    def run(self, lines: list[bytes]) -> None:
        """Raises whatever it likes if the input broke something."""

    def finish(self) -> None:
        """The last checks, when all inputs have been run."""

    def close(self) -> None:
        """Whatever happened, it is over."""


class Broken(AssertionError):
    """Says which input it was, and how to see it again."""


def campaign(target: Target, seconds: float, seed: int) -> int:
    """How many inputs there were."""
    recent: deque[list[bytes]] = deque(maxlen=RECENT)
    number = 0
    try:
        for path in sorted(CORPUS.glob(f"{target.name}-*.txt")):
            for lines in read(path):
                recent.append(lines)
                target.run(lines)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines = target.make(random.Random(f"{target.name} {seed} {number}"))
            recent.append(lines)
            target.run(lines)
            number += 1
        target.finish()
    except Exception as error:
        path = write(target.name, list(recent))
        shown = "\n".join(line.hex() for line in recent[-1]) if recent else "nothing"
        raise Broken(
            f"{target.name} broke at input {number} of seed {seed}: {type(error).__name__}: {error}\n"
            f"the last input, in hex:\n{shown}\nit and what came before it are in {path}"
        ) from error
    finally:
        target.close()
    return number


# ---- the corpus: a line of hex is a byte string, an empty line ends an input


def write(name: str, inputs: list[list[bytes]]) -> Path:
    text = "\n\n".join("\n".join(line.hex() or "-" for line in lines) for lines in inputs) + "\n"
    path = CORPUS / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
    CORPUS.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def read(path: Path) -> list[list[bytes]]:
    inputs: list[list[bytes]] = [[]]
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        if line:
            inputs[-1].append(b"" if line == "-" else bytes.fromhex(line))
        elif inputs[-1]:
            inputs.append([])
    return [lines for lines in inputs if lines]
