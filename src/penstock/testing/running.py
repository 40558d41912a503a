"""A broker on an event loop of its own, in a thread of this process: started, stopped, killed, started again.

All that the host may ask of it goes through `call`, which runs on that loop and waits. Whatever ends the broker ends
its thread too, with its sockets and files: nothing of it is left in the host's process but its folder.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from penstock.broker.app import Broker
from penstock.broker.world import World
from penstock.cluster.coordination import Coordination
from penstock.cluster.embedded import FILE_NAME as ALONE
from penstock.cluster.settings import BrokerSettings
from penstock.storage import summary
from penstock.testing.clock import Clock, TravellingLoop
from penstock.testing.coordination import CoordinationService, InProcessStore
from penstock.testing.disk import UnsyncedDisk
from penstock.testing.faults import Faults, FaultyListener
from penstock.transport.listener import Listener

T = TypeVar("T")

ANSWER_S_MAX = 30.0
BETWEEN_BROKERS = "BROKERS"  # the listener on which no fault is met

# Without a handler anywhere, warnings would go to the host's standard error.
logging.getLogger("penstock").addHandler(logging.NullHandler())


class End(Enum):
    STOP = "stop"  # as with SIGTERM
    KILL = "kill"  # as with SIGKILL: nobody is told


class RunningBroker:
    """A number, a folder and settings; and while it runs, a broker."""

    def __init__(
        self, number: int, settings: Mapping[str, str], clock: Clock, faults: Faults, service: CoordinationService
    ) -> None:
        self.number = number
        self.settings = dict(settings)
        self._clock = clock
        self._faults = faults
        self._service = service
        self._folder = Path(self.settings["data"])
        self._listeners: list[Listener] = []
        self._store: InProcessStore | None = None
        self._thread: threading.Thread | None = None
        self._end: asyncio.Future[End]
        self.broker: Broker
        self.loop: TravellingLoop

    @property
    def is_up(self) -> bool:
        return self._thread is not None

    @property
    def address(self) -> str:
        """Of its clients; the same after a restart."""
        return f"{self.broker.host}:{self.broker.port}"

    # ---- from the host's threads

    def start(self) -> None:
        """Returns when it answers; raises what keeps it from starting."""
        assert not self.is_up
        started: Future[None] = Future()
        name = f"penstock-broker-{self.number}"
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def end(self, how: End) -> None:
        """Returns when nothing of it is left. Ending twice is ending once."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.loop.call_soon_threadsafe(self._end.set_result, how)
            thread.join()

    def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(self.broker), self.loop).result(ANSWER_S_MAX)

    def meet_faults(self) -> None:
        """Those that were added, from the next request on."""

        async def forget(broker: Broker) -> None:
            for listener in self._faulty():
                listener.forget_memos()

        self.call(forget)

    def disconnect_clients(self) -> None:
        async def disconnect(broker: Broker) -> None:
            for listener in self._faulty():
                listener.disconnect()

        self.call(disconnect)

    def _faulty(self) -> list[FaultyListener]:
        return [listener for listener in self._listeners if isinstance(listener, FaultyListener)]

    # ---- in the broker's thread

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner(loop_factory=lambda: TravellingLoop(self._clock)) as runner:
            runner.run(self._live(started))

    async def _live(self, started: Future[None]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravellingLoop)
        self.loop = loop
        self._end = loop.create_future()
        self._listeners = []
        try:
            self.broker = broker = Broker(BrokerSettings(self.settings), world=self._world())
            await broker.start()
        except BaseException as error:
            started.set_exception(error)
            return
        self._keep_port(broker)
        started.set_result(None)
        if await self._end is End.KILL:
            self._die()
            await broker.stop()
            (self._folder / summary.FILE_NAME).unlink(missing_ok=True)
        else:
            await broker.stop()

    def _die(self) -> None:
        """Towards the others, in one moment: its session is over and its sockets are closed."""
        assert self._store is not None
        self._store.end()
        for listener in self._listeners:
            listener.close()

    def _keep_port(self, broker: Broker) -> None:
        """Whoever knows this broker finds it there again after a restart."""
        name = "listeners" if "listeners" in self.settings else "listen"
        self.settings[name] = self.settings[name].replace(f"{broker.host}:0", f"{broker.host}:{broker.port}", 1)

    def _world(self) -> World:
        clock = self._clock
        return World(
            disk=UnsyncedDisk(), clock_ns=clock.wall_ns, steady_ns=clock.steady_ns, open_store=self._open_store,
            listener=self._new_listener, watchman=False, owns_process=False,
        )  # fmt: skip

    async def _open_store(self, settings: BrokerSettings, data_dir: Path) -> Coordination:
        if settings.get("zookeeper.connect") is None:
            (data_dir / ALONE).touch()  # by which a broker knows that its folder is no cluster's
        self._store = self._service.connect()
        return self._store

    def _new_listener(self, loop: asyncio.AbstractEventLoop, **options: Any) -> Listener:
        listener = (
            Listener(loop, **options)
            if options["name"] == BETWEEN_BROKERS
            else FaultyListener(loop, faults=self._faults, context=lambda: self.broker.router.context, **options)
        )
        self._listeners.append(listener)
        return listener
