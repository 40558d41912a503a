"""A broker in a world that misbehaves: `python -m tests.matrix.broker KIND [VALUE] -- ARGUMENTS of penstock start`.

    forgetful SEED   a disk that forgets what was not synced; SIGUSR1 is the power failure
    failing -        a disk whose writes and syncs fail from SIGUSR1 on
    clock SECONDS    a clock that is ahead

`--boot NAME` before the `--` says that the machine has started anew.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from penstock.broker.app import Broker, StartError, raise_file_limit
from penstock.broker.logs import set_up
from penstock.broker.world import World
from penstock.cli import start
from penstock.cli.parser import Parser
from penstock.cluster.settings import BrokerSettings
from tests.storage.disks import FailingDisk, ForgetfulDisk

KINDS = ("forgetful", "failing", "clock")
SECOND_NS = 1_000_000_000


def world_of(kind: str, value: str, data: Path) -> World:
    if kind == "forgetful":
        data.mkdir(parents=True, exist_ok=True)
        forgetful = ForgetfulDisk(data, int(value))

        def lose_power(*_: object) -> None:
            forgetful.crash(keep_names=0.5)
            os.kill(os.getpid(), signal.SIGKILL)

        signal.signal(signal.SIGUSR1, lose_power)
        return World(disk=forgetful)
    if kind == "failing":
        failing = FailingDisk()

        def fail(*_: object) -> None:
            failing.fail_write = failing.fail_sync = 0

        signal.signal(signal.SIGUSR1, fail)
        return World(disk=failing)
    ahead_ns = int(value) * SECOND_NS
    return World(clock_ns=lambda: time.time_ns() + ahead_ns)


async def serve(settings: BrokerSettings, world: World) -> None:
    broker = Broker(settings, world=world)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await broker.start()
    await stopping.wait()
    await broker.stop()


def main() -> int:
    middle = sys.argv.index("--")
    ours = argparse.ArgumentParser()
    ours.add_argument("kind", choices=KINDS)
    ours.add_argument("value")
    ours.add_argument("--boot")
    chosen = ours.parse_args(sys.argv[1:middle])
    theirs = Parser(prog="penstock start")
    start.configure(theirs)
    settings = start.read_settings(theirs.parse_args(sys.argv[middle + 1 :]))
    set_up(settings.get("log.format"), settings.get("log.level"))
    raise_file_limit()
    world = world_of(chosen.kind, chosen.value, Path(settings.get("data")))
    if chosen.boot:
        world = replace(world, boot=chosen.boot)
    try:
        uvloop.run(serve(settings, world))
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
