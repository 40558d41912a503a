"""The controller: one broker of the cluster that sees to it that every partition has a leader.

Brokers compete for the post with an ephemeral node. Whoever gets it begins a term, and every write of it is conditional
on the version of the term's node: what a former controller still wants to write fails. The work is a comparison, not a
list of events: whenever something has changed, `elections` says what a topic should be, and what differs is written. So
it does not matter which changes were missed, or what another controller has left half done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.cluster.catalog import Catalog, Conflict
from penstock.cluster.coordination import (
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Delete,
    NodeExists,
    NoNode,
    Session,
)
from penstock.cluster.elections import prefer, settle_topic
from penstock.cluster.model import NO_LEADER, ClusterImage, TopicState
from penstock.cluster.nodes import ControllerEpochNode, ControllerNode, ForeignNode, save
from penstock.cluster.settings import BrokerSettings, effective_topic_settings
from penstock.protocol.errors import ApiError

log = logging.getLogger("penstock.controller")

AGAIN_S = 0.2  # until something that failed is tried again
CONFLICTS_MAX = 5  # one after another, until it is tried more seldom, and told
SELDOM_S = 2.0
PARTITIONS_PER_WRITE = 4000
TOPICS_PER_WRITE = 200
TOPICS_PER_LOOK = 500  # then others get their turn


@dataclass(frozen=True, slots=True)
class Term:
    epoch: int
    version: int  # of the node that holds the epoch

    @property
    def condition(self) -> Check:
        return Check(ControllerEpochNode.path, self.version)


class Controller:
    def __init__(
        self,
        catalog: Catalog,
        store: Coordination,
        image: ClusterImage,
        settings: BrokerSettings,
        node_id: int,
        *,
        alone: bool = False,
    ) -> None:
        self._level = logging.DEBUG if alone else logging.INFO  # nobody asks who controls a single broker
        self._catalog = catalog
        self._store = store
        self._image = image
        self._settings = settings
        self._node_id = node_id
        self.term: Term | None = None
        self._dirty: dict[str, None] = {}  # names of topics to look at, in order
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._brokers = dict(image.brokers)
        self._conflicts = 0  # one after another
        catalog.subscribe(self)
        catalog.on_cluster(self._cluster_changed)
        store.on_session(self._session)

    async def start(self) -> None:
        """Competes for the post at once: a broker that stands alone is its own controller when this returns."""
        await self._compete()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._balance())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        term, self.term = self.term, None
        if term is not None and self._store.connected:
            try:  # not to be waited for until the session expires; of a later term nothing is deleted
                await self._store.multi([term.condition, Delete(ControllerNode.path)])
            except CoordinationError as error:
                log.warning("not resigned: %s", error)

    # ---- what changes

    def topic_created(self, topic: TopicState) -> None:
        self._look_at(topic.name)

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        self._look_at(after.name)

    def topic_deleted(self, topic: TopicState) -> None:
        """Nothing is left to decide."""

    def topic_lost(self, topic: TopicState) -> None: ...

    def lost_topic_deleted(self, topic: TopicState) -> None: ...

    def _look_at(self, name: str) -> None:
        if self.term is not None:
            self._dirty[name] = None
            self._wake.set()

    def _cluster_changed(self) -> None:
        if self.term is not None and self._image.controller_id not in (self._node_id, NO_LEADER):
            self._end_term("another broker is the controller")
        if self._brokers != self._image.brokers:
            self._brokers = dict(self._image.brokers)
            self._look_at_all()
        self._wake.set()

    def _look_at_all(self) -> None:
        if self.term is not None:
            self._dirty.update(dict.fromkeys(self._image.topics))
            self._wake.set()

    def _session(self, session: Session) -> None:
        if session is Session.RENEWED and self.term is not None:
            self._end_term("the session was lost")
        self._wake.set()

    # ---- the post

    async def _compete(self) -> None:
        """Raises CoordinationError if the service can't be asked, and ApiError if it holds another cluster."""
        if self.term is not None or self._image.controller_id != NO_LEADER:
            await self._end_own_former_term()
            return
        conditions = await self._catalog.of_cluster()
        try:
            current = ControllerEpochNode.decode(await self._store.get(ControllerEpochNode.path))
            epoch = current.epoch + 1
            node = ControllerNode(self._node_id, epoch)
            count = ControllerEpochNode(epoch, current.version)
            await self._store.multi([node.announce(), save(count), *conditions])
        except (NodeExists, BadVersion):
            return  # someone else is, which will be told
        self.term = Term(epoch, current.version + 1)
        self._image.controller_id = self._node_id
        self._image.generation += 1
        log.log(self._level, "became the controller", extra={"epoch": epoch})
        self._look_at_all()

    async def _end_own_former_term(self) -> None:
        """The post may be held by a life of this broker that ended before its session did."""
        if self.term is not None or self._image.controller_id != self._node_id:
            return
        conditions = await self._catalog.of_cluster()
        try:
            stored = await self._store.get(ControllerNode.path)
            if ControllerNode.decode(stored).node_id == self._node_id:
                await self._store.multi([Delete(ControllerNode.path, stored.version), *conditions])
        except (NoNode, BadVersion, ForeignNode):
            pass

    def _end_term(self, reason: str) -> None:
        log.info("is the controller no more: %s", reason)
        self.term = None
        self._dirty.clear()

    # ---- the work

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self.term is None:
                    await self._compete()
                while self._dirty and self.term is not None:
                    await self._settle_some(self.term)
                    self._conflicts = 0
            except Conflict as conflict:
                await self._check_term()
                await self._rest_from_conflicts(conflict)
            except (CoordinationError, ApiError, ForeignNode) as error:
                log.warning("can't decide now: %s", error)
                self._again()
            except Exception:
                log.exception("a decision failed: it will be tried again")
                self._again()

    async def _rest_from_conflicts(self, conflict: Conflict) -> None:
        """Others write too, and then it is soon tried again. What goes on for long is something else."""
        self._conflicts += 1
        if self._conflicts >= CONFLICTS_MAX:
            log.warning(
                "can't decide: what is written is not what is known of it",
                extra={"nodes": str(conflict), "attempts": self._conflicts},
            )
            await asyncio.sleep(SELDOM_S)
        self._again()

    def _again(self) -> None:
        asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)

    async def _check_term(self) -> None:
        try:
            current = await self._store.get(ControllerEpochNode.path)
        except CoordinationError:
            return
        if self.term is not None and current.version != self.term.version:
            self._end_term("another broker has become it")

    async def _settle_some(self, term: Term) -> None:
        await self._apply(term, lambda topic: self.settled(topic))

    async def _apply(self, term: Term, decide: Callable[[TopicState], TopicState]) -> None:
        """To the topics that are to be looked at, until a write's worth of changes has come together."""
        looked: list[str] = []
        changed: list[TopicState] = []
        partitions = 0
        for name in list(self._dirty)[:TOPICS_PER_LOOK]:
            topic = self._image.topics.get(name)
            looked.append(name)
            if topic is not None and (after := _decided(topic, decide)) is not topic:
                changed.append(after)
                partitions += len(after.partitions)
                if partitions >= PARTITIONS_PER_WRITE or len(changed) >= TOPICS_PER_WRITE:
                    break
        for name in looked:
            del self._dirty[name]
        try:
            if changed:
                await self._catalog.write_apart(changed, [term.condition])
        except BaseException:
            if self.term is term:
                self._dirty.update(dict.fromkeys(topic.name for topic in changed))
            raise
        await asyncio.sleep(0)

    def settled(self, topic: TopicState) -> TopicState:
        value: Mapping[str, Any] = effective_topic_settings(topic.config, self._settings)
        unclean = value["unclean.leader.election.enable"]
        after = settle_topic(topic, self._image.brokers, value["min.insync.replicas"], unclean)
        if unclean and after is not topic:
            _tell_of_loss(topic, after)
        return after

    # ---- preferred leaders

    async def _balance(self) -> None:
        while True:
            await asyncio.sleep(self._settings.get("leader.imbalance.check.interval.seconds"))
            term = self.term
            if term is None or not self._settings.get("auto.leader.rebalance.enable"):
                continue
            try:
                moved = [
                    after
                    for topic in list(self._image.topics.values())
                    if (after := _decided(topic, self._preferred)) is not topic
                ]
                if moved:
                    await self._catalog.write_apart(moved, [term.condition])
            except (Conflict, CoordinationError, ApiError) as error:
                log.info("leaders are balanced later: %s", error)

    def _preferred(self, topic: TopicState) -> TopicState:
        partitions = tuple(prefer(state, self._image.brokers) for state in topic.partitions)
        if all(after is before for after, before in zip(partitions, topic.partitions)):
            return topic
        return replace(topic, partitions=partitions)


def _decided(topic: TopicState, decide: Callable[[TopicState], TopicState]) -> TopicState:
    """One topic that can't be decided on is left as it is until it changes: the others need leaders all the same."""
    try:
        return decide(topic)
    except Exception:
        log.exception("a topic is left as it is: no decision on it was possible", extra={"topic": topic.name})
        return topic


def _tell_of_loss(before: TopicState, after: TopicState) -> None:
    for index, (was, now) in enumerate(zip(before.partitions, after.partitions)):
        if now.leader not in (NO_LEADER, was.leader, was.last_leader, *was.isr, *was.eligible):
            facts = {"partition": f"{after.name}-{index}", "leader": now.leader}
            log.warning("unclean election, as the topic allows: acknowledged records may be lost", extra=facts)
