"""Tells one story, or many, and prints the trace of the one that goes wrong.

python -m tests.simulation SCENARIO SEED [LAST_SEED]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.simulation import scenarios
from tests.simulation.brokers import simulate
from tests.simulation.scenarios import digest


def run(name: str, seed: int, folder: Path) -> list[str]:
    trace: list[str] = simulate(seed, lambda: getattr(scenarios, name)(folder, seed))
    return trace


def main() -> int:
    name, first = sys.argv[1], int(sys.argv[2])
    last = int(sys.argv[3]) if len(sys.argv) > 3 else first
    failed = 0
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                trace = run(name, seed, Path(folder))
            except Exception as problem:
                failed += 1
                print(*getattr(problem, "__notes__", ()), f"{name} {seed}: {problem!r}", sep="\n")
            else:
                if first == last:
                    print(*trace, sep="\n")
                print(f"{name} {seed}: {digest(trace)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
