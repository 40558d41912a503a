"""`python -m tests.fuzz --seconds N [--seed S] [--target NAME]`: one round after another, each with its own seed."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

from tests.fuzz.broker import LiveBroker
from tests.fuzz.campaign import Broken, Target, campaign
from tests.fuzz.readers import Batches, Decoding

TARGETS: list[tuple[Callable[[], Target], float]] = [(Decoding, 0.25), (Batches, 0.15), (LiveBroker, 0.6)]
ROUND_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Sends garbage to all that reads bytes.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, in all (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run (default: another every time)")
    parser.add_argument("--target", choices=[make.__name__ for make, _ in TARGETS], help="only this one")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    chosen = [(make, share) for make, share in TARGETS if args.target in (None, make.__name__)]
    whole = sum(share for _, share in chosen)
    deadline = time.monotonic() + args.seconds
    while (left := deadline - time.monotonic()) > 0:
        for make, share in chosen:
            seconds = min(left, ROUND_S) * share / whole
            print(f"seed {seed}: {make.__name__} for {seconds:.0f} s", flush=True)
            try:
                inputs = campaign(make(), seconds, seed)
            except Broken as broken:
                print(broken, file=sys.stderr)
                return 1
            print(f"seed {seed}: {inputs} inputs, none of which broke anything", flush=True)
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
