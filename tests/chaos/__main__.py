"""`python -m tests.chaos --minutes N [--seed S]`: campaigns one after another, each with a seed of its own."""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.auditor import Violation
from tests.chaos.campaign import campaign
from tests.faults.copier import REPOSITORY

CAMPAIGN_S = 300.0


def franz_copier() -> str:
    """Built in a folder of its own, which the system clears away."""
    target = Path(tempfile.mkdtemp(prefix="chaos-franz-")) / "copier"
    command = ["go", "build", "-buildvcs=false", "-o", str(target), "./copier"]
    subprocess.run(command, cwd=REPOSITORY / "interop" / "go", check=True)
    return str(target)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Kills brokers and applications, and checks what was promised."
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="how long, in all (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="the same faults again (default: others every time)")
    parser.add_argument(
        "--franz", action="store_true", help="every second copier is in Go, with franz-go and transactions of version 2"
    )
    args = parser.parse_args()
    other = franz_copier() if args.franz else None
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    deadline = time.monotonic() + args.minutes * 60
    while (left := deadline - time.monotonic()) > 0:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        try:
            verdict = campaign(folder, min(left, CAMPAIGN_S), seed, lambda line: print(line, flush=True), other)
        except (Violation, AssertionError) as violation:
            print(f"VIOLATED with seed {seed}: {violation}\nthe broker's data and log are in {folder}", file=sys.stderr)
            return 1
        print(f"KEPT with seed {seed}: {verdict}", flush=True)
        shutil.rmtree(folder)
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
