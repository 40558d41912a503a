"""What a broker does not make itself: time, chance, the disk, the network, and whoever coordinates the cluster.

A test may put others in their place, and run a whole cluster in one process under a clock of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.broker.folder import this_boot
from penstock.cluster.broker_settings import REQUEST_BYTES_MAX
from penstock.cluster.coordination import Coordination
from penstock.cluster.embedded import FILE_NAME, EmbeddedStore
from penstock.cluster.identity import RandomBytes
from penstock.cluster.settings import BrokerSettings
from penstock.replication.commit import Commits, Committer
from penstock.replication.fetching import RESPONSE_MAX
from penstock.replication.partitions import FOLDERS_AT_ONCE
from penstock.storage.disk import Disk
from penstock.storage.worker import Worker
from penstock.transport.listener import Listener
from penstock.transport.peer import FRAME_MAX, Network, TcpNetwork
from penstock.transport.turn import Turn

assert REQUEST_BYTES_MAX + 4 * RESPONSE_MAX <= FRAME_MAX, "a batch that a leader takes could not be copied"


class NoService(Exception):
    """There is nobody to coordinate with; the message says what to do."""


async def open_store(settings: BrokerSettings, data_dir: Path) -> Coordination:
    connect = settings.get("zookeeper.connect")
    if connect is None:
        return await EmbeddedStore.open(data_dir)
    if (data_dir / FILE_NAME).exists():
        raise NoService(
            f"{data_dir} was made by a broker without ZooKeeper. To take its topics into the cluster, run: "
            f"penstock cluster adopt --data {data_dir} --zookeeper {connect}"
        )
    from penstock.broker.reaching import open_zookeeper

    return await open_zookeeper(
        connect, settings.get("zookeeper.session.timeout.ms"), settings.get("zookeeper.connection.timeout.ms")
    )


@dataclass(frozen=True, slots=True)
class World:
    disk: Disk = field(default_factory=Disk)
    clock_ns: Callable[[], int] = time.time_ns
    steady_ns: Callable[[], int] = time.monotonic_ns
    random_bytes: RandomBytes = os.urandom
    random: random.Random = field(default_factory=random.Random)
    boot: str = field(default_factory=this_boot)
    open_store: Callable[[BrokerSettings, Path], Awaitable[Coordination]] = open_store
    committer: Callable[[asyncio.AbstractEventLoop], Commits] = Committer
    worker: Callable[[], Worker] = Worker
    folders_at_once: int = FOLDERS_AT_ONCE
    network: Callable[[asyncio.AbstractEventLoop, Turn, str], Network] = TcpNetwork
    listener: Callable[..., Listener] = Listener
    watchman: bool = True  # whether closed ports tell of dead brokers
    owns_process: bool = True  # whether all that lives here is the broker's

    def now_ms(self) -> int:
        return self.clock_ns() // 1_000_000

    def steady_clock(self) -> Callable[[], int]:
        """The time of day at the start, and what has passed since: time-outs don't care if the clock is set."""
        start_ms = self.now_ms() - self.steady_ns() // 1_000_000
        return lambda: start_ms + self.steady_ns() // 1_000_000
