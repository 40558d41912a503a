"""`python -m tests.chaos --minutes N [--seed S]`: campaigns one after another, each with a seed of its own.

With `--cluster` they are those of the fault matrix: three brokers and a ZooKeeper instead of one broker.
"""

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
CLUSTER_CAMPAIGN_S = 180.0  # what is judged at once fits into memory


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
    parser.add_argument("--cluster", action="store_true", help="three brokers, a ZooKeeper, and all their faults")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    deadline = time.monotonic() + args.minutes * 60
    if args.cluster:
        return against_a_cluster(deadline, seed)
    return against_a_broker(deadline, seed, franz_copier() if args.franz else None)


def against_a_broker(deadline: float, seed: int, other: str | None) -> int:
    while (left := deadline - time.monotonic()) > 0:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        try:
            verdict = campaign(folder, min(left, CAMPAIGN_S), seed, say, other)
        except (Violation, AssertionError) as violation:
            print(f"VIOLATED with seed {seed}: {violation}\nthe broker's data and log are in {folder}", file=sys.stderr)
            return 1
        say(f"KEPT with seed {seed}: {verdict}")
        shutil.rmtree(folder)
        seed += 1
    return 0


def against_a_cluster(deadline: float, seed: int) -> int:
    from tests.matrix.campaign import Broken
    from tests.matrix.campaign import campaign as cluster_campaign
    from tests.matrix.table import table

    while (left := deadline - time.monotonic()) > 0:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        try:
            rows = cluster_campaign(folder, min(left, CLUSTER_CAMPAIGN_S), seed, say)
        except (Broken, AssertionError) as violation:
            print(f"VIOLATED with seed {seed}: {violation}\ndata, events and logs are in {folder}", file=sys.stderr)
            return 1
        say("\n".join([f"KEPT with seed {seed}; the worst of each fault:", *table(rows)]))
        shutil.rmtree(folder)
        seed += 1
    return 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
