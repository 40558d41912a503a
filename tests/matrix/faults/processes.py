"""Brokers that are killed, stand still, flicker, or are restarted."""

from __future__ import annotations

import time

from tests.matrix.faults.fault import VICTIMS, Fault, Scene, Victim

FLICKERS, STILL_S, MOVING_S = 12, 0.3, 0.1


class Kill(Fault):
    hold_s = 1.5

    def __init__(self, who: str) -> None:
        self.name = f"kill -9 of the {who}"
        self._victim: Victim = VICTIMS[who]

    def begin(self, scene: Scene) -> None:
        scene.strike(self._victim).kill()

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.start()


class KillAll(Fault):
    name = "kill -9 of all at once"
    hold_s = 1.0

    def begin(self, scene: Scene) -> None:
        for member in scene.members.values():
            member.kill()

    def end(self, scene: Scene) -> None:
        for member in scene.members.values():
            member.start()


class Stop(Fault):
    """Longer than its session: others take over, and it wakes up believing that nothing has happened."""

    def __init__(self, who: str) -> None:
        self.name = f"SIGSTOP of the {who}"
        self._victim: Victim = VICTIMS[who]

    def begin(self, scene: Scene) -> None:
        scene.strike(self._victim).pause()

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.resume()


class Flicker(Fault):
    """A follower that gets a quarter of its time, in pieces: always late, never gone."""

    name = "flickering follower"

    def begin(self, scene: Scene) -> None:
        scene.strike(VICTIMS["follower"])

    def hold(self, scene: Scene) -> None:
        (member,) = scene.struck()
        for _ in range(FLICKERS):
            member.pause()
            time.sleep(STILL_S)
            member.resume()
            time.sleep(MOVING_S)

    def end(self, scene: Scene) -> None:
        pass


class LastStanding(Fault):
    """Two die one after the other; the third holds everything and may commit nothing until they return."""

    name = "last replica standing"
    hold_s = 2.0

    def begin(self, scene: Scene) -> None:
        for _ in range(2):
            scene.victims.append(scene.chance.choice(scene.cluster.others(*scene.victims)))
            scene.struck()[-1].kill()
            time.sleep(1.0)

    def end(self, scene: Scene) -> None:
        for member in scene.struck():
            member.start()


class RollingRestart(Fault):
    name = "rolling restart"
    pause_s_max = 5.0

    def begin(self, scene: Scene) -> None:
        pass

    def hold(self, scene: Scene) -> None:
        for member in scene.members.values():
            member.stop()
            member.start()
            scene.cluster.wait_whole()

    def end(self, scene: Scene) -> None:
        pass


PROCESSES: tuple[Fault, ...] = (
    *(Kill(who) for who in VICTIMS),
    KillAll(),
    *(Stop(who) for who in VICTIMS),
    Flicker(),
    LastStanding(),
    RollingRestart(),
)
