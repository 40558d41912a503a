"""What can happen: each fault is one thing that really happens to brokers and applications."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.brokers import BrokerProcess
from tests.chaos.crew import Crew
from tests.faults.copier import SESSION_TIMEOUT_MS

PAUSE_S_MAX = 2 * SESSION_TIMEOUT_MS / 1000


class Faults:
    """All that is random comes from `rng`; how long things take is the machine's."""

    def __init__(self, rng: random.Random, broker: BrokerProcess, crew: Crew) -> None:
        self._rng = rng
        self._broker = broker
        self._crew = crew
        self._kinds: dict[Callable[[], None], int] = {
            self.the_broker_is_killed: 6,
            self.the_broker_is_killed_twice: 1,
            self.the_broker_is_restarted: 2,
            self.a_copier_is_killed: 4,
            self.a_copier_is_left_out_for_a_while: 2,
            self.a_copier_freezes_and_wakes: 2,
            self.a_copier_is_doubled: 2,
            self.everything_is_killed: 1,
        }

    def strike(self) -> str:
        (kind,) = self._rng.choices(list(self._kinds), list(self._kinds.values()))
        kind()
        return kind.__name__.replace("_", " ")

    def the_broker_is_killed(self) -> None:
        self._broker.kill()
        time.sleep(self._rng.uniform(0.0, 0.5))
        self._broker.start()

    def the_broker_is_killed_twice(self) -> None:
        """The second time while it is still busy with what the first has left."""
        self.the_broker_is_killed()
        time.sleep(self._rng.uniform(0.0, 0.3))
        self.the_broker_is_killed()

    def the_broker_is_restarted(self) -> None:
        code = self._broker.stop()
        assert code == 0, f"the broker ended with {code}"
        self._broker.start()

    def a_copier_is_killed(self) -> None:
        place = self._rng.randrange(len(self._crew))
        self._crew.kill(place)
        self._crew.start(place)

    def a_copier_is_left_out_for_a_while(self) -> None:
        """Long enough for its session and its transaction to end without it, sometimes."""
        place = self._rng.randrange(len(self._crew))
        self._crew.kill(place)
        time.sleep(self._rng.uniform(0.0, PAUSE_S_MAX))
        self._crew.start(place)

    def a_copier_freezes_and_wakes(self) -> None:
        """When it wakes it may be a zombie that believes it still has its partitions and its transaction."""
        copier = self._crew.at(self._rng.randrange(len(self._crew)))
        if copier is not None and copier.code is None:
            copier.send(signal.SIGSTOP)
            time.sleep(self._rng.uniform(0.0, PAUSE_S_MAX))
            copier.send(signal.SIGCONT)

    def a_copier_is_doubled(self) -> None:
        self._crew.double(self._rng.randrange(len(self._crew)))

    def everything_is_killed(self) -> None:
        for place in range(len(self._crew)):
            self._crew.kill(place)
        self._broker.kill()
        self._broker.start()
        self._crew.complete()
