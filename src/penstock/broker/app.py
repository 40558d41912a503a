"""Builds the rooms and connects them; nothing else does.

Start: the lock on the data folder, the cluster's state, the logs, the coordinators, the listeners, and last this
broker's announcement, so that whoever is sent here is served. Stop is the same backwards: leaderships to others, no new
connections, what was staged written, logs closed, and the summary that lets the next start trust them.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from penstock.broker import folder
from penstock.broker.endpoints import BadAddress, between_brokers, places, reachable
from penstock.broker.folder import FolderError
from penstock.broker.introductions import client_id_of, is_broker
from penstock.broker.retirement import Leaderships
from penstock.broker.suspicion import Suspicion
from penstock.broker.topic_view import ImageTopics
from penstock.broker.watchman import Watchman
from penstock.broker.world import NoService, World
from penstock.cluster.administration import Administration
from penstock.cluster.catalog import Catalog
from penstock.cluster.controller import Controller
from penstock.cluster.coordination import CoordinationError, Disconnected
from penstock.cluster.deletions import Deletions
from penstock.cluster.departures import Departures
from penstock.cluster.embedded import FILE_NAME
from penstock.cluster.membership import IdTaken, Membership
from penstock.cluster.model import NO_LEADER, BrokerState, ClusterImage, Endpoint, TopicState
from penstock.cluster.nodes import ForeignNode
from penstock.cluster.partition_changes import PartitionChanges
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.coordinator.runtime import Runtime
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partitions import Partitions
from penstock.replication.replicas import Replicas
from penstock.replication.upkeep import Upkeep
from penstock.server import replica_fetch
from penstock.server.context import Context
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.remote_transactions import RemoteTransactions
from penstock.server.router import Router
from penstock.server.routing import HANDLERS
from penstock.storage.disk import Disk
from penstock.transactions.marker_writer import MarkerWriter
from penstock.transactions.markers import Markers
from penstock.transport.cold_reads import ColdReads
from penstock.transport.connection_limit import ConnectionLimit
from penstock.transport.listener import Listener
from penstock.transport.memory import MemoryBudget
from penstock.transport.peer import Address
from penstock.transport.peers import Peers
from penstock.transport.turn import Turn

if TYPE_CHECKING:
    from penstock.groups.machine import GroupMachine
    from penstock.transactions.machine import TransactionMachine

log = logging.getLogger("penstock.broker")

IDLE_POLL_US = 50
LOST_TOPICS_MAX = 10_000
RETIREMENT_LOOK_S = 0.02
START_AGAIN_S = 0.5
ID_PATIENCE = 1.5  # sessions that another broker of the same number may take to expire


class StartError(Exception):
    """The broker can't start; the message says what to do."""


class Unreachable(StartError):
    """Whoever coordinates the cluster has gone away meanwhile: another attempt may do better."""


class Broker:
    """One broker in this process. `start` returns when it answers, `stop` when all is on disk."""

    def __init__(self, settings: BrokerSettings, disk: Disk | None = None, world: World | None = None) -> None:
        self.settings = settings
        self.data_dir = Path(settings.get("data"))
        self._world = world or World()
        if disk is not None:
            self._world = replace(self._world, disk=disk)
        self._node_id: int = settings.get("node.id")
        self._in_cluster = settings.get("zookeeper.connect") is not None
        self.host, self.port = "", 0
        self._listeners: list[Listener] = []
        self._deleted_topics: list[str] = []
        self._unreachable: dict[int, int] = {}  # epochs of brokers that were told of
        self._lost_topics: dict[str, bytes] = {}  # ids by name, the newest last
        self._groups_to_be_told = False
        self._machines = itertools.count(1)
        self.replaced = asyncio.Event()  # by another process
        self.has_store = False  # until then a start may be broken off anywhere
        self._is_settled = False  # whoever must know what this broker's replicas may have lost was told

    async def start(self) -> None:
        try:
            self._lock = folder.lock(self.data_dir)
        except FolderError as error:
            raise StartError(str(error)) from None
        try:
            await self._load()
            self._build()
            self._listen()
            await self._join()
        except ApiError as error:
            await self.stop()
            unreachable = error.code == ErrorCode.REQUEST_TIMED_OUT
            raise (Unreachable if unreachable else StartError)(error.message or str(error)) from None
        except Disconnected as error:
            await self.stop()
            raise (Unreachable if self._in_cluster else StartError)(str(error)) from None
        except (FolderError, NoService, BadAddress, IdTaken, ForeignNode, CoordinationError) as error:
            await self.stop()
            raise StartError(str(error)) from None
        except BaseException:
            await self.stop()
            raise

    async def _load(self) -> None:
        """The cluster's state, and what the last stop has left in the folder."""
        world, settings, node_id = self._world, self.settings, self._node_id
        self._places = places(settings)
        known = folder.read(world.disk, self.data_dir)
        if known is not None:
            folder.check(self.data_dir, known, node_id, known.cluster_id)
            if not self._in_cluster and not (self.data_dir / FILE_NAME).exists():
                raise FolderError(
                    f"{self.data_dir} belongs to a broker of a cluster. Say where its ZooKeeper is, with --zookeeper."
                )
        self.image = ClusterImage(cluster_id="", controller_id=NO_LEADER)
        self._topic_view = ImageTopics(self.image)
        self._store = await world.open_store(settings, self.data_dir)
        self.has_store = True
        self._catalog = Catalog(self._store, self.image, settings, node_id)
        if known is not None and known.cluster_id and self._in_cluster:  # or it would make one where there is none
            folder.check(self.data_dir, known, node_id, await self._catalog.find_cluster())
        await self._catalog.load(world.random_bytes)
        identity = known or folder.new(world.random_bytes, node_id)
        folder.check(self.data_dir, identity, node_id, self.image.cluster_id)
        loop = asyncio.get_running_loop()
        self._turn = Turn(loop, world.clock_ns)
        self._committer = world.committer(loop)
        self._cold_reads = ColdReads(loop)
        self.partitions = Partitions(
            world.disk, self.data_dir, self.image, settings, self._turn, self._committer, node_id,
            world.folders_at_once,
        )  # fmt: skip
        self._deletions = Deletions(self._catalog, node_id)
        doomed = self._deletions.awaited
        was_clean = self.partitions.load(doomed)
        power_lost = not was_clean and (identity.boot != world.boot or not world.boot)
        if power_lost:
            self.partitions.suspect_aside()
        self._suspicion = Suspicion(
            node_id, settings, damaged=self.partitions.damaged, lost=self.partitions.lost, folder_is_new=known is None,
            power_lost=power_lost,
            unsynced=self.partitions.unsynced_topics,
        )  # fmt: skip
        self._known = known
        self._identity = replace(identity, cluster_id=self.image.cluster_id, boot=world.boot)
        if not self._in_cluster or (was_clean and known is not None and not self.partitions.damaged):
            self._settle()  # there is nobody to tell, or nothing
        self._deletions.done(doomed)

    def _settle(self) -> None:
        """From here on the folder vouches for itself again. Before, the next start must find what this one found."""
        if self._is_settled:
            return
        self.partitions.settle()
        if self._identity != self._known:
            folder.save(self._world.disk, self.data_dir, self._identity)
        self._is_settled = True

    def _build(self) -> None:
        world, settings, node_id = self._world, self.settings, self._node_id
        loop, now_ms, catalog, image = asyncio.get_running_loop(), world.now_ms, self._catalog, self.image
        self.administration = Administration(catalog, image, settings, node_id, world.random_bytes)
        self._membership = Membership(
            self._store, node_id, self._identity.folder, world.random_bytes, catalog.of_cluster, self._was_replaced
        )
        self._network = world.network(loop, self._turn, client_id_of(node_id, self._identity.folder))
        self._peers = Peers(self._network, self._address_of)
        self._changes = PartitionChanges(catalog, self._store, image)
        self._worker = world.worker()
        self._upkeep = Upkeep(self.partitions, settings, self._worker, now_ms, self._committed)
        self.replicas = Replicas(
            node_id, self.partitions, image, settings, self._changes, self._upkeep, self._network, self._turn,
            self._address_of, lambda: self._membership.epoch, now_ms,
        )  # fmt: skip
        self.groups = Runtime(OFFSETS_TOPIC, self._new_group_machine, self.partitions, world.steady_clock())
        # Of their own: a question that waits for a commit must not hold them up, nor they it.
        self._marker_peers = Peers(self._network, self._address_of)
        self._offset_peers = Peers(self._network, self._address_of)
        self.markers = Markers(self.partitions, {OFFSETS_TOPIC: self.groups}, image, now_ms)
        self._marker_writer = MarkerWriter(self.markers, lambda: self.transactions, node_id, image, self._marker_peers)
        self.transactions = Runtime(
            TRANSACTIONS_TOPIC, self._new_transaction_machine, self.partitions, world.steady_clock(),
            self._marker_writer,
        )  # fmt: skip
        sessions = FetchSessions(settings.get("max.incremental.fetch.session.cache.slots"), world.random)
        context = Context(
            node_id=node_id, image=image, settings=settings, administration=self.administration,
            partitions=self.partitions, groups=self.groups, transactions=self.transactions, markers=self.markers,
            upkeep=self._upkeep, worker=self._worker, fetch_sessions=sessions, now_ms=now_ms, replicas=self.replicas,
            remote_transactions=RemoteTransactions(self._peers),
        )  # fmt: skip
        self.router = Router(context, self._turn)
        # In this order: roles change before those who follow or coordinate learn of it.
        for listener in (self.partitions, self.replicas, self._deletions, self.groups, self.transactions, self):
            catalog.subscribe(listener)
        catalog.on_cluster(self.replicas.brokers_changed)
        catalog.on_cluster(lambda: replica_fetch.close_gone(context))
        self._departures = Departures(image, node_id)
        catalog.on_cluster(self._departures.look)
        catalog.on_cluster(lambda: self._membership.look(image.brokers))
        settings.subscribe(self.partitions.settings_changed)
        self._controller = Controller(catalog, self._store, image, settings, node_id, alone=not self._in_cluster)
        self._watchman = Watchman(node_id, image, self._store, self._address_of)
        if self._in_cluster and world.watchman:
            catalog.on_cluster(self._watchman.look)
        if self._in_cluster:
            catalog.on_cluster(self._look_for_unreachable)

    def _address_of(self, node_id: int) -> Address | None:
        """Where other brokers reach it."""
        broker = self.image.brokers.get(node_id)
        name = self._between
        found = next((each for each in broker.endpoints if each.listener == name), None) if broker else None
        return Address(found.host, found.port) if found is not None else None

    def _look_for_unreachable(self) -> None:
        """Brokers whose listeners have other names are not reached, though they are there and answer their clients."""
        for node_id, broker in self.image.brokers.items():
            if self._address_of(node_id) is None and self._unreachable.get(node_id) != broker.epoch:
                self._unreachable[node_id] = broker.epoch
                log.error(
                    "broker %s has no listener of the name %s, by which brokers reach each other here: nothing is "
                    "copied from it or to it. Give all brokers the same inter.broker.listener.name",
                    node_id, self._between, extra={"listeners": [each.listener for each in broker.endpoints]},
                )  # fmt: skip

    def addresses(self) -> list[str]:
        """Where its clients find the brokers that are there: this one first."""
        name = self._endpoints[0].listener
        brokers = sorted(self.image.brokers.values(), key=lambda each: (each.node_id != self._node_id, each.node_id))
        found = [each for broker in brokers for each in broker.endpoints if each.listener == name]
        return [f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}" for each in found]

    def _listen(self) -> None:
        settings = self.settings
        self._between = between_brokers(settings)
        memory = MemoryBudget(settings.get("queued.max.bytes"))
        known = (lambda client_id: is_broker(client_id, self.image.brokers)) if self._in_cluster else None
        limit = ConnectionLimit(lambda: int(settings.get("max.connections")), known)
        endpoints: list[Endpoint] = []
        for place in self._places:
            listener = self._world.listener(
                asyncio.get_running_loop(), name=place.name, turn=self._turn, memory=memory,
                cold_reads=self._cold_reads, dispatch=self.router.dispatch,
                frame_max=settings.get("socket.request.max.bytes"),
                limit=limit, idle_ms_max=settings.get("connections.max.idle.ms"),
                for_brokers=place.name == self._between,
            )  # fmt: skip
            try:
                bound = listener.start(place.host, place.port, hold=True)
            except OSError as error:
                raise StartError(
                    f"cannot listen on {place.host}:{place.port}: {error.strerror}. Choose another with --listen."
                ) from None
            self._listeners.append(listener)
            if not self.port:
                self.host, self.port = bound
            endpoints.append(Endpoint(place.name, *(place.advertised or (reachable(bound[0]), bound[1]))))
        # Brokers of a cluster may share a machine, and each waits for the others: they need the cores that it has.
        self._turn.stay_awake(self._idle_poll_us(), lambda: self._committer.is_busy, gives_way=self._in_cluster)
        self._endpoints = tuple(endpoints)
        self.image.here = BrokerState(self._node_id, self._endpoints, settings.get("broker.rack"))

    def _idle_poll_us(self) -> int:
        """Where a broker shares its only core, or its process, one that does not sleep takes time from the others."""
        given = self.settings.get("idle.poll.us")
        if given is not None:
            return int(given)
        return IDLE_POLL_US if self._world.owns_process and len(os.sched_getaffinity(0)) > 1 else 0

    def _refuse_taken_address(self) -> None:
        """Clients and brokers would ask one for what the other has."""
        here = {(each.host, each.port) for each in self._endpoints}
        for broker in self.image.brokers.values():
            for each in broker.endpoints:
                if broker.node_id != self._node_id and (each.host, each.port) in here:
                    raise StartError(
                        f"broker {broker.node_id} is known at {each.host}:{each.port} already. Give this one an "
                        "address of its own with --listen or 'advertised'; if that one is gone, try again in a moment"
                    )

    async def _join(self) -> None:
        """Announces this broker. From here on it leads and follows."""
        patience_s = ID_PATIENCE * self.settings.get("zookeeper.session.timeout.ms") / 1000
        await self._membership.claim(patience_s)
        self._refuse_taken_address()
        await self._suspicion.act(self._catalog, self.image)
        self._settle()
        rack = self.settings.get("broker.rack")
        broker = await self._membership.join(self._endpoints, rack)
        self.image.brokers[self._node_id] = broker
        self.image.generation += 1
        self._departures.look()
        await self._controller.start()
        self.replicas.start()
        if topic := self.image.topics.get(OFFSETS_TOPIC):
            self.groups.load_all(len(topic.partitions))
        if topic := self.image.topics.get(TRANSACTIONS_TOPIC):
            self.transactions.load_all(len(topic.partitions))
        self._upkeep.start()
        for listener in self._listeners:
            listener.go_on()
        self._loading = asyncio.ensure_future(self._load_the_rest())

    async def _load_the_rest(self) -> None:
        """What was left out to answer early, a piece at a time, so that the first clients do not wait for all of it."""
        for route in HANDLERS.values():
            await asyncio.sleep(0.002)
            _ = route.handle
        self._new_group_machine()
        self._new_transaction_machine()
        if self._in_cluster:
            self._prepare_producer_ids()
        if self._world.owns_process:
            gc.freeze()  # what lives by now lives to the end: the collector need not look at it
            gc.enable()

    def _prepare_producer_ids(self) -> None:
        """Producers are to begin while ZooKeeper is away, too."""
        from penstock.server.producer_ids import producer_ids

        producer_ids(self.administration).prepare()

    def _new_group_machine(self) -> GroupMachine:
        from penstock.broker.group_machines import new_group_machine

        return new_group_machine(self.settings, self.image, self._topic_view)

    async def _committed(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """For retention that waits for a group."""
        from penstock.server.committed_offsets import CommittedOffsets

        committed = CommittedOffsets(self._node_id, self.image, self.groups, self._offset_peers)
        return await committed.of(group_id, partitions)

    def _new_transaction_machine(self) -> TransactionMachine:
        from penstock.transactions.config import TransactionConfig
        from penstock.transactions.machine import TransactionMachine

        get = self.settings.get
        config = TransactionConfig(
            max_timeout_ms=get("transaction.max.timeout.ms"),
            two_phase_commit=get("transaction.two.phase.commit.enable"),
            id_expiration_ms=get("transactional.id.expiration.ms"),
            expiration_check_ms=get("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
        return TransactionMachine(config, next(self._machines))

    # ---- what the catalog tells

    def topic_created(self, topic: TopicState) -> None:
        log.info("created topic", extra={"topic": topic.name, "partitions": len(topic.partitions)})
        lost = self._lost_topics.pop(topic.name, None)
        if lost is not None and lost != topic.topic_id:
            self._deleted_topics.append(topic.name)
        self._tell_groups_soon()

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        """Leaders and in-sync replicas come and go, and are nothing to groups."""
        if len(before.partitions) != len(after.partitions) or before.config != after.config:
            log.info("changed topic", extra={"topic": after.name, "partitions": len(after.partitions)})
        if [each.replicas for each in before.partitions] != [each.replicas for each in after.partitions]:
            self._tell_groups_soon()

    def topic_deleted(self, topic: TopicState) -> None:
        log.info("deleted topic", extra={"topic": topic.name})
        self._deleted_topics.append(topic.name)
        self._tell_groups_soon()

    def topic_lost(self, topic: TopicState) -> None:
        """What groups have committed for it stays, until it is known to be deleted or another has its name."""
        self._lost_topics[topic.name] = topic.topic_id
        if len(self._lost_topics) > LOST_TOPICS_MAX:
            del self._lost_topics[next(iter(self._lost_topics))]
        self._tell_groups_soon()

    def lost_topic_deleted(self, topic: TopicState) -> None:
        self.topic_deleted(topic)

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
        """Also after a start that failed half way."""
        if hasattr(self, "_loading"):
            await self._retire()
            self._loading.cancel()
        for listener in self._listeners:
            listener.stop_accepting()
        if hasattr(self, "router"):
            self._turn.flush()
            await self.router.close()
            await self._watchman.close()
            await self._controller.close()
            await self.replicas.close()
            await self._changes.close()
            await self._deletions.close()
            await self._membership.leave()
            await self._upkeep.close()
            self._marker_writer.close()
            self.transactions.close()
            self.groups.close()
            for listener in self._listeners:
                listener.close()
            self._peers.close()
            self._marker_peers.close()
            self._offset_peers.close()
            self._turn.flush()
            self._cold_reads.close()
            self._committer.close()
            await self._worker.close()
            self.partitions.close(vouch=self._is_settled)
            await self.administration.close()
        if hasattr(self, "_catalog"):
            await self._catalog.close()
        if self.has_store:
            await self._store.close()
        os.close(self._lock)

    def _was_replaced(self, other: BrokerState) -> None:
        """Another process is this broker now, with a copy of its folder: whatever this one led, it leads no more."""
        log.critical(
            "another process has taken this broker's place: it stops", extra={"host": other.host, "pid": other.pid}
        )
        for partition in self.partitions.opened():
            if partition.leads:
                partition.follow(partition.leader_epoch)
        self.replaced.set()

    async def _retire(self) -> None:
        """Others are to lead first, so that clients hardly notice."""
        get = self.settings.get
        if not (self._in_cluster and get("controlled.shutdown.enable") and self._store.connected):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + get("controlled.shutdown.timeout.ms") / 1000
        try:
            await self._membership.retire()
        except CoordinationError as error:
            log.warning("stops without moving its leaderships: %s", error)
            return
        leaderships = Leaderships(self.image, self._node_id)
        for _ in range(int((deadline - loop.time()) / RETIREMENT_LOOK_S)):
            if not (leaderships.are_left() and self._store.connected):
                return
            await asyncio.sleep(RETIREMENT_LOOK_S)
        log.warning("stops though it leads partitions still")


def raise_file_limit() -> None:
    """A log is a few open files, a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(settings: BrokerSettings, ready: Callable[[list[str]], None]) -> None:
    began = time.monotonic()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = await _started(settings, stopping)
    if broker is None:
        log.info("stopped")
        return
    facts = {
        "address": f"{broker.host}:{broker.port}", "data": broker.data_dir, "flush": settings.get("flush"),
        "topics": len(broker.image.topics), "ms": int((time.monotonic() - began) * 1000),
    }  # fmt: skip
    ready(broker.addresses())
    log.info("ready", extra=facts)
    waits = [asyncio.ensure_future(event.wait()) for event in (stopping, broker.replaced)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
    log.info("stopping")
    await broker.stop()
    log.info("stopped")


async def _started(settings: BrokerSettings, stopping: asyncio.Event) -> Broker | None:
    """A ZooKeeper that goes away during the start is waited for, as long as for one that is not there yet.

    None if it was told to stop before there was one.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.get("zookeeper.connection.timeout.ms") / 1000
    while True:
        broker = Broker(settings)
        try:
            return broker if await _start(broker, stopping) else None
        except Unreachable as error:
            if loop.time() >= deadline or stopping.is_set():
                raise
            log.warning("starts again: %s", error)
        await asyncio.sleep(START_AGAIN_S)


async def _start(broker: Broker, stopping: asyncio.Event) -> bool:
    """False if it was told to stop while it waited for ZooKeeper. What has begun behind that is ended in order."""
    starting, told = asyncio.ensure_future(broker.start()), asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done() and not broker.has_store:
        starting.cancel()
    await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True


def run(settings: BrokerSettings, ready: Callable[[list[str]], None] = lambda addresses: None) -> int:
    """Serves until SIGTERM or SIGINT, and tells when it does where the cluster's brokers are; the exit code."""
    raise_file_limit()
    try:
        uvloop.run(_serve(settings, ready))
    except StartError as error:
        log.error("%s", error)
        return 1
    return 0
