"""What can happen to a cluster, each thing a fault with a beginning and an end.

fault          what a fault is, and whom it may hit
processes      killed, paused, flickering, restarted
coordination   ZooKeeper killed, paused, restarted, out of reach
networks       cut whole, one way, between two; slow
disks          full, failing, corrupt, wiped, without power
moves          reassignments while leaders die
"""

from __future__ import annotations

from tests.matrix.faults.coordination import COORDINATION
from tests.matrix.faults.disks import DISKS
from tests.matrix.faults.fault import Fault, Scene
from tests.matrix.faults.moves import MOVES
from tests.matrix.faults.networks import NETWORKS
from tests.matrix.faults.processes import PROCESSES

ALL: tuple[Fault, ...] = (*PROCESSES, *COORDINATION, *NETWORKS, *DISKS, *MOVES)

__all__ = ["ALL", "Fault", "Scene"]
