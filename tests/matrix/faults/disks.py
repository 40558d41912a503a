"""Disks that fill up, fail, forget, or return other bytes than were written; and clocks, which are no better."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.matrix.cluster import SMALL_DISK, Cluster
from tests.matrix.faults.fault import VICTIMS, Fault, Scene
from tests.matrix.member import Member

HOUR_S = 3600
FLIPPED_BYTES = 64
QUIET_S, ALONE_S = 1.0, 2.5
FORMER_BOOT = "a-former-boot"


class DiskFull(Fault):
    name = "disk full on one"
    hold_s = 3.0

    def why_not(self, cluster: Cluster) -> str | None:
        reason = cluster.small_disk.why_not
        return None if reason is None else f"no file system can be mounted here: {reason}"

    def begin(self, scene: Scene) -> None:
        scene.strike(lambda _: SMALL_DISK)
        scene.cluster.small_disk.fill()

    def end(self, scene: Scene) -> None:
        scene.cluster.small_disk.free()


class OtherWorld(Fault):
    """Brokers that must run in a world of their own before the fault, and in the real one behind it."""

    def prepare_in(self, scene: Scene, members: list[Member], *world: str) -> None:
        for member in members:
            member.stop()
            member.start(world)
            scene.cluster.wait_whole()


class DiskError(OtherWorld):
    """Every write and every sync fails. It hands everything over; the end is a restart on a disk that works."""

    name = "disk error on the leader"
    hold_s = 3.0

    def prepare(self, scene: Scene) -> None:
        self.prepare_in(scene, [scene.strike(VICTIMS["leader"])], "failing", "-")

    def begin(self, scene: Scene) -> None:
        for member in scene.struck():
            member.signal(signal.SIGUSR1)

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.kill()
            member.start()


class PowerLoss(OtherWorld):
    """What was not synced is gone, or there in part, and the machine has started anew."""

    hold_s = 1.0

    def __init__(self, brokers: int, flush: str = "commit") -> None:
        number = {1: "one", 2: "two", 3: "all"}[brokers]
        self.name = f"power loss on {number}" + ("" if flush == "commit" else f", with flush={flush}")
        self._brokers = brokers
        self.topic_settings = {"flush": flush}

    def prepare(self, scene: Scene) -> None:
        scene.victims += scene.chance.sample(sorted(scene.members), self._brokers)
        seed = str(scene.chance.randrange(1 << 30))
        self.prepare_in(scene, scene.struck(), "forgetful", seed, "--boot", FORMER_BOOT)

    def begin(self, scene: Scene) -> None:
        for member in scene.struck():
            member.signal(signal.SIGUSR1)
        for member in scene.struck():
            member.wait()

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.start()


class Corrupt(Fault):
    """Bytes in the middle of a log are others than were written. The broker finds out when it starts."""

    hold_s = 0.5

    def __init__(self, who: str, *, running: bool) -> None:
        self.name = f"corrupt segment on a {'running' if running else 'dead'} {who}"
        self._victim = VICTIMS[who]
        self._running = running

    def begin(self, scene: Scene) -> None:
        member = scene.strike(self._victim)
        if not self._running:
            member.kill()
        segment = member.data / f"{scene.topic}-0"
        flip(max(segment.glob("*.log")), 0.5)
        if self._running:
            time.sleep(0.5)
            member.kill()

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.start()


class CorruptEnd(Fault):
    """All are down when the last batch of one goes bad, which was acknowledged. That one starts first; the others have
    what it lacks."""

    name = "corrupt end of a log while all are down"
    hold_s = 0.5

    def begin(self, scene: Scene) -> None:
        member = scene.strike(VICTIMS["leader"])
        scene.crowd.pause_writers()
        time.sleep(QUIET_S)
        for each in scene.members.values():
            each.kill()
        for number in range(len(scene.cluster.truth.topic(scene.topic).partitions)):
            flip(max((member.data / f"{scene.topic}-{number}").glob("*.log")), 1.0)

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.start()
        time.sleep(ALONE_S)
        for node_id in scene.cluster.others(*scene.victims):
            scene.members[node_id].start()
        scene.crowd.resume_writers()


class Wiped(Fault):
    name = "data folder of the leader wiped"
    hold_s = 1.0

    def begin(self, scene: Scene) -> None:
        member = scene.strike(VICTIMS["leader"])
        member.kill()
        member.wipe()

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.start()


class ClockAhead(OtherWorld):
    """It writes, and leads, with the time of an hour later; then it is put right again."""

    name = "clock of the leader an hour ahead"
    hold_s = 2.0

    def begin(self, scene: Scene) -> None:
        self.prepare_in(scene, [scene.strike(VICTIMS["leader"])], "clock", str(HOUR_S))

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.stop()
            member.start()


def flip(path: Path, share: float) -> None:
    """Turns some bytes of the file over, at that share of its length."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        at = max(min(int(size * share), size - FLIPPED_BYTES), 0)
        file.seek(at)
        found = file.read(FLIPPED_BYTES)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in found))


DISKS: tuple[Fault, ...] = (
    DiskFull(),
    DiskError(),
    PowerLoss(1),
    PowerLoss(2),
    PowerLoss(3),
    PowerLoss(1, flush="os"),
    Corrupt("follower", running=False),
    Corrupt("leader", running=False),
    Corrupt("follower", running=True),
    Corrupt("leader", running=True),
    CorruptEnd(),
    Wiped(),
    ClockAhead(),
)
