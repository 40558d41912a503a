"""Builds the rooms and connects them; nothing else does.

Start: the lock on the data folder, the cluster's state, the logs, the coordinators, and last the listener, so that
whoever can connect is served. Stop is the same backwards: no new connections, what was staged written, logs closed,
and the summary that lets the next start trust them.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import itertools
import logging
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from penstock.broker.topic_view import ImageTopics
from penstock.cluster.controller import Controller
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.model import BrokerState, ClusterImage, Endpoint, TopicState
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.coordinator.runtime import Runtime
from penstock.replication.commit import Committer
from penstock.replication.partitions import Partitions
from penstock.replication.upkeep import Upkeep
from penstock.server.context import Context
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.router import Router
from penstock.server.routing import HANDLERS
from penstock.storage.disk import Disk
from penstock.storage.worker import Worker
from penstock.transactions.markers import Markers, MarkerWriter
from penstock.transport.listener import Listener
from penstock.transport.memory import MemoryBudget
from penstock.transport.turn import Turn

if TYPE_CHECKING:
    from penstock.groups.machine import GroupMachine
    from penstock.transactions.machine import TransactionMachine

log = logging.getLogger("penstock.broker")

LISTENER = "PLAINTEXT"


class StartError(Exception):
    """The broker can't start; the message says what to do."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_clock() -> Callable[[], int]:
    """The time of day as it was at the start, and what has passed since: time-outs don't care if the clock is set."""
    start_ms = now_ms() - time.monotonic_ns() // 1_000_000
    return lambda: start_ms + time.monotonic_ns() // 1_000_000


class Broker:
    """One broker in this process. `start` returns when it answers, `stop` when all is on disk."""

    def __init__(self, settings: BrokerSettings, disk: Disk | None = None) -> None:
        self.settings = settings
        self.data_dir = Path(settings.get("data"))
        self._disk = disk or Disk()
        self.host, self.port = "", 0
        self._deleted_topics: list[str] = []
        self._groups_to_be_told = False
        self._machines = itertools.count(1)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        settings, node_id = self.settings, self.settings.get("node.id")
        self._lock = lock_folder(self.data_dir)
        self.image = ClusterImage(cluster_id="", controller_id=node_id)
        self._topic_view = ImageTopics(self.image)
        self._store = await EmbeddedStore.open(self.data_dir)
        self.controller = Controller(self._store, self.image, settings, node_id, os.urandom)
        await self.controller.load()
        self._turn = Turn(loop)
        self._committer = Committer(loop)
        self._worker = Worker()
        self.partitions = Partitions(self._disk, self.data_dir, self.image, settings, self._turn, self._committer)
        self.partitions.load()
        self.controller.subscribe(self.partitions)
        settings.subscribe(self.partitions.settings_changed)
        self.controller.subscribe(self)
        self.groups = Runtime(OFFSETS_TOPIC, self._new_group_machine, self.partitions, steady_clock())
        self.markers = Markers(self.partitions, {OFFSETS_TOPIC: self.groups}, now_ms)
        self._marker_writer = MarkerWriter(self.markers, lambda: self.transactions)
        self.transactions = Runtime(
            TRANSACTIONS_TOPIC, self._new_transaction_machine, self.partitions, steady_clock(), self._marker_writer
        )
        self._upkeep = Upkeep(self.partitions, settings, self._worker, now_ms)
        sessions = FetchSessions(settings.get("max.incremental.fetch.session.cache.slots"), random.Random())
        context = Context(
            node_id=node_id, image=self.image, settings=settings, controller=self.controller,
            partitions=self.partitions, groups=self.groups, transactions=self.transactions, markers=self.markers,
            upkeep=self._upkeep, worker=self._worker, fetch_sessions=sessions, now_ms=now_ms,
        )  # fmt: skip
        self._router = Router(context, self._turn)
        self._listener = Listener(
            loop, name=LISTENER, turn=self._turn, memory=MemoryBudget(settings.get("queued.max.bytes")),
            dispatch=self._router.dispatch, frame_max=settings.get("socket.request.max.bytes"),
            connections_max=lambda: int(settings.get("max.connections")),
            idle_ms_max=settings.get("connections.max.idle.ms"),
        )  # fmt: skip
        if topic := self.image.topics.get(OFFSETS_TOPIC):
            self.groups.load_all(len(topic.partitions))
        if topic := self.image.topics.get(TRANSACTIONS_TOPIC):
            self.transactions.load_all(len(topic.partitions))
        self._upkeep.start()
        self._loading = asyncio.ensure_future(self._load_the_rest())
        try:
            self._listen()
        except StartError:
            await self.stop()
            raise

    def _listen(self) -> None:
        host, port = host_and_port(self.settings.get("listen"))
        try:
            self.host, self.port = self._listener.start(host, port)
        except OSError as error:
            raise StartError(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another with --listen."
            ) from None
        advertised = self.settings.get("advertised")
        shown = host_and_port(advertised) if advertised else (_reachable(self.host), self.port)
        node_id = self.settings.get("node.id")
        self.image.brokers[node_id] = BrokerState(
            node_id, (Endpoint(LISTENER, *shown),), self.settings.get("broker.rack")
        )
        self.image.generation += 1

    async def _load_the_rest(self) -> None:
        """What was left out to answer early, a piece at a time, so that the first clients do not wait for all of it."""
        for route in HANDLERS.values():
            await asyncio.sleep(0.002)
            _ = route.handle
        self._new_group_machine()
        self._new_transaction_machine()
        gc.freeze()  # what lives by now lives to the end: the collector need not look at it
        gc.enable()

    def _new_group_machine(self) -> GroupMachine:
        from penstock.broker.group_machines import new_group_machine

        return new_group_machine(self.settings, self.image, self._topic_view)

    def _new_transaction_machine(self) -> TransactionMachine:
        from penstock.transactions.config import TransactionConfig
        from penstock.transactions.machine import TransactionMachine

        get = self.settings.get
        config = TransactionConfig(
            max_timeout_ms=get("transaction.max.timeout.ms"),
            id_expiration_ms=get("transactional.id.expiration.ms"),
            expiration_check_ms=get("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
        return TransactionMachine(config, next(self._machines))

    # ---- what the controller tells

    def topic_created(self, topic: TopicState) -> None:
        log.info("created topic", extra={"topic": topic.name, "partitions": len(topic.partitions)})
        self._tell_groups_soon()

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        log.info("changed topic", extra={"topic": after.name, "partitions": len(after.partitions)})
        if before.partitions != after.partitions:
            self._tell_groups_soon()

    def topic_deleted(self, topic: TopicState) -> None:
        log.info("deleted topic", extra={"topic": topic.name})
        self._deleted_topics.append(topic.name)
        self._tell_groups_soon()

    def _tell_groups_soon(self) -> None:
        """Once for all changes of one request."""
        if not self._groups_to_be_told:
            self._groups_to_be_told = True
            asyncio.get_running_loop().call_soon(self._tell_groups)

    def _tell_groups(self) -> None:
        """Subscriptions may mean other topics now, and offsets that were committed for topics that are gone go too."""
        from penstock.groups import commands

        self._groups_to_be_told = False
        names, self._deleted_topics = frozenset(self._deleted_topics), []
        if names:
            self.groups.broadcast(lambda ticket: commands.TopicsDeleted(ticket, names))
        self.groups.broadcast(commands.TopicsChanged)

    async def stop(self) -> None:
        self._listener.stop_accepting()
        self._loading.cancel()
        self._turn.flush()
        await self._router.close()
        await self._upkeep.close()
        self._marker_writer.close()
        self.transactions.close()
        self.groups.close()
        self._listener.close()
        self._turn.flush()
        self._committer.close()
        await self._worker.close()
        self.partitions.close()
        await self.controller.close()
        await self._store.close()
        os.close(self._lock)


def _reachable(host: str) -> str:
    """What clients on this machine can dial when the broker listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise StartError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def lock_folder(data_dir: Path) -> int:
    """Two brokers on one folder would destroy it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        fd = os.open(data_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StartError(f"cannot use the data folder {data_dir}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StartError(f"another broker uses {data_dir}. Stop it, or choose another folder with --data.") from None
    return fd


def raise_file_limit() -> None:
    """A log is a few open files, a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: BrokerSettings, ready: Callable[[], None]) -> None:
    began = time.monotonic()
    broker = Broker(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await broker.start()
    facts = {
        "address": f"{broker.host}:{broker.port}", "data": broker.data_dir, "flush": settings.get("flush"),
        "topics": len(broker.image.topics), "ms": int((time.monotonic() - began) * 1000),
    }  # fmt: skip
    ready()
    log.info("ready", extra=facts)
    await stopping.wait()
    log.info("stopping")
    await broker.stop()
    log.info("stopped")


def run(settings: BrokerSettings, ready: Callable[[], None] = lambda: None) -> int:
    """Serves until SIGTERM or SIGINT, and calls back when it does; the exit code of the process."""
    raise_file_limit()
    try:
        uvloop.run(_serve(settings, ready))
    except StartError as error:
        log.error("%s", error)
        return 1
    return 0
