"""This broker's replicas: which leader each one follows, and who is in sync with those that it leads.

Roles come from the image. A leader takes a follower into the in-sync set when it has caught up, at the moment of a
fetch that shows it, and puts one out that has lagged for too long. Both are writes to the coordination service; while
it can't be reached the sets stay as they are, and leaders and followers go on.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable

from penstock.cluster.elections import expand, shrink, withdraw
from penstock.cluster.model import NO_LEADER, ClusterImage, PartitionState, TopicState
from penstock.cluster.partition_changes import PartitionChanges
from penstock.cluster.settings import BrokerSettings
from penstock.protocol.errors import ApiError
from penstock.replication.epochs_ahead import EpochsAhead
from penstock.replication.fetcher import Fetcher
from penstock.replication.low_watermarks import LowWatermarks
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Side, Throttle
from penstock.replication.upkeep import Upkeep
from penstock.storage.segment import CorruptSegment
from penstock.transport.peer import Address, Network
from penstock.transport.turn import Turn

log = logging.getLogger("penstock.replication")

LOOK_S = 0.5  # how often lagging followers, failed disks and impatient producers are looked for
HIGH_WATERMARKS_EVERY = 10  # looks
UNREACHABLE_S = 1.0
WRITE_BACK_MS = 5  # until it is looked again how much of a copy is on its way to the device

Key = tuple[str, int]


class Replicas:
    def __init__(
        self,
        node_id: int,
        partitions: Partitions,
        image: ClusterImage,
        settings: BrokerSettings,
        changes: PartitionChanges,
        upkeep: Upkeep,
        network: Network,
        turn: Turn,
        address_of: Callable[[int], Address | None],
        broker_epoch: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.turn = turn
        self.now_ms = now_ms
        self._node_id = node_id
        self._partitions = partitions
        self._image = image
        self._settings = settings
        self._changes = changes
        self._epochs_ahead = EpochsAhead(image, changes)
        self._upkeep = upkeep
        self._network = network
        self._address_of = address_of
        self._broker_epoch = broker_epoch
        self._fetchers: dict[int, Fetcher] = {}
        self._followed: dict[Key, tuple[Partition, int, int]] = {}  # with whom it follows, and in which epoch
        self._lives: dict[int, int] = {}  # the epochs of brokers
        self._leaving: set[Key] = set()  # partitions that this broker is giving up
        self._healing: set[Key] = set()
        self._sends = Throttle(Side.LEADER, node_id, image, settings)
        self._fetches = Throttle(Side.FOLLOWER, node_id, image, settings)
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks = 0
        self.low_watermarks = LowWatermarks(image)

    def start(self) -> None:
        self._lives = {broker.node_id: broker.epoch for broker in self._image.brokers.values()}
        for topic in list(self._image.topics.values()):
            self._assign(topic)
        self._task = asyncio.get_running_loop().create_task(self._look_around())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()

    # ---- whom to follow

    def topic_created(self, topic: TopicState) -> None:
        self._assign(topic)

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        if before.partitions != after.partitions:
            self._assign(after)
            self.low_watermarks.look()

    def topic_deleted(self, topic: TopicState) -> None:
        for index in range(len(topic.partitions)):
            self._unfollow((topic.name, index))
        self.low_watermarks.look()

    def topic_lost(self, topic: TopicState) -> None:
        self.topic_deleted(topic)

    def lost_topic_deleted(self, topic: TopicState) -> None: ...

    def _assign(self, topic: TopicState) -> None:
        for index, state in enumerate(topic.partitions):
            if self._node_id in state.replicas and len(state.replicas) > 1:
                self._follow(topic, index, state)
            else:
                self._unfollow((topic.name, index))

    def _follow(self, topic: TopicState, index: int, state: PartitionState) -> None:
        key = (topic.name, index)
        partition = self._partitions.get(topic.name, index)
        if partition is None:
            return
        if self._epochs_ahead.is_ahead(partition, state):
            self._unfollow(key)
            return
        followed = self._followed.get(key)
        if followed is not None and followed == (partition, state.leader, state.leader_epoch):
            return
        self._unfollow(key)
        if state.leader in (self._node_id, NO_LEADER) or key in self._healing or partition.error is not None:
            return
        self._followed[key] = (partition, state.leader, state.leader_epoch)
        self._fetcher(state.leader).add(partition, state.leader_epoch)

    def _unfollow(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            fetcher = self._fetchers.get(followed[1])
            if fetcher is not None:
                fetcher.remove(followed[0])

    def _fetcher(self, leader: int) -> Fetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(
                leader, self._network, lambda: self._address_of(leader), self._node_id, self._broker_epoch,
                lambda: int(self._settings.get("replica.fetch.wait.max.ms")), self, self.turn,
            )  # fmt: skip
        return fetcher

    def brokers_changed(self) -> None:
        """What was known of a follower's log is not true of its next life."""
        lives = {broker.node_id: broker.epoch for broker in self._image.brokers.values()}
        reborn = [node_id for node_id, epoch in self._lives.items() if lives.get(node_id) != epoch]
        self._lives = lives
        for node_id in reborn:
            for partition in self._partitions.opened():
                if partition.in_sync is not None:
                    partition.in_sync.forget(node_id)
        self.low_watermarks.look()

    # ---- the keeper of followers' logs

    def truncate(self, partition: Partition, offset: int) -> Awaitable[None]:
        return self._upkeep.cut(partition, offset, partition.leader_epoch, partition.log.end_offset)

    def restart(self, partition: Partition, offset: int) -> Awaitable[None]:
        return self._upkeep.cut(partition, offset, partition.leader_epoch, partition.log.end_offset, restart=True)

    def advance_start(self, partition: Partition, offset: int, advanced: Callable[[], None]) -> None:
        if offset > partition.log.start_offset:
            self._upkeep.advance_start_soon(partition, offset, advanced)

    def reached(self, leader: int, reached: bool) -> None:
        """Clients are not sent to a leader to which the connection has just been lost: it may be dead, and they would
        ask again later than they do if there is none."""
        if reached:
            self._image.unreachable.discard(leader)
        else:
            self._image.unreachable.add(leader)
            asyncio.get_running_loop().call_later(UNREACHABLE_S, self._image.unreachable.discard, leader)

    # ---- how fast

    def may_send(self, partition: Partition, replica: int, now_ms: int) -> bool:
        """Only those that are not in sync are throttled: producers wait for the others."""
        in_sync = partition.in_sync
        if in_sync is None or replica in in_sync.members:
            return True
        return self._sends.may_send(partition.topic, partition.index, now_ms)

    def sent(self, partition: Partition, size: int, now_ms: int) -> None:
        self._sends.sent(partition.topic, partition.index, size, now_ms)

    def next_send_ms(self, now_ms: int) -> int:
        return self._sends.next_ms(now_ms)

    def fetch_delay_ms(self, partition: Partition, now_ms: int) -> int:
        topic = self._image.topics.get(partition.topic)
        if topic is None:
            return 0
        if self._node_id in topic.partitions[partition.index].isr:
            partition.syncs.keep()
            return 0
        if not partition.syncs.write_back():
            return WRITE_BACK_MS
        if self._fetches.may_send(partition.topic, partition.index, now_ms):
            return 0
        return max(self._fetches.next_ms(now_ms), 1)

    def took(self, partition: Partition, size: int, now_ms: int) -> None:
        self._fetches.sent(partition.topic, partition.index, size, now_ms)

    # ---- who is in sync

    def fetched(self, partition: Partition, replica: int, offset: int, now_ms: int) -> None:
        """A follower has all before the offset."""
        if partition.fetched(replica, offset, now_ms):
            self.propose(partition, replica)

    def propose(self, partition: Partition, replica: int) -> None:
        """Takes a follower into the in-sync set if its fetches in this epoch show that it may be."""
        in_sync = partition.in_sync
        if in_sync is not None and in_sync.may_join(replica, partition.high_watermark):
            broker = self._image.brokers.get(replica)
            if broker is not None and not broker.stopping:
                self._change(
                    partition, replica, lambda state, least: expand(state, replica, least), "joined", once=True
                )

    def _change(
        self,
        partition: Partition,
        replica: int,
        change: Callable[[PartitionState, int], PartitionState],
        what: str,
        *,
        once: bool = False,
    ) -> None:
        """Until it is known whether the change was made, the replica counts both ways."""
        in_sync, epoch = partition.in_sync, partition.leader_epoch
        assert in_sync is not None
        in_sync.begin_change(replica)

        def apply(state: PartitionState) -> PartitionState | None:
            if state.leader != self._node_id or state.leader_epoch != epoch:
                return None
            return change(state, partition.settings.min_insync_replicas)

        def done(made: bool) -> None:
            in_sync.end_change(replica)
            if made:
                log.info("in-sync replicas: %s", what, extra={"partition": partition.name, "broker": replica})
            if partition.in_sync is in_sync:
                partition.advance_in_sync()

        self._changes.ask(partition.topic, partition.index, apply, done, once=once)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look()
                self._looks += 1
                if self._looks % HIGH_WATERMARKS_EVERY == 0:
                    await self._upkeep.save_high_watermarks()
            except Exception:
                log.exception("replicas were not looked after: it will be tried again")

    def _close_idle(self) -> None:
        """Fetchers of brokers that are gone."""
        for leader, fetcher in list(self._fetchers.items()):
            if leader not in self._image.brokers and not fetcher.follows:
                fetcher.close()
                del self._fetchers[leader]

    def _look(self) -> None:
        self._close_idle()
        self._epochs_ahead.look()
        now_ms, lag_ms = self.turn.steady_ms(), self._settings.get("replica.lag.time.max.ms")
        for partition in self._partitions.opened():
            in_sync = partition.in_sync
            if partition.waiters:
                partition.waiters.release_overdue(now_ms)
            if partition.error is not None:
                self._give_up(partition)
            elif in_sync is not None:
                for replica in in_sync.lagging(now_ms, lag_ms, partition.log.end_offset):
                    self._change(partition, replica, _without(replica), "left: it lags")

    def shown_epoch(self, partition: Partition, epoch: int) -> None:
        """Someone knows of a later leader: this one leads no more, whatever it has been told so far."""
        if partition.leads:
            log.info("steps down: there is a later epoch", extra={"partition": partition.name, "epoch": epoch})
            partition.follow(partition.leader_epoch)

    # ---- what can't be trusted

    def _give_up(self, partition: Partition) -> None:
        """Its disk has failed: another replica is to lead, and this one counts for nothing."""
        self._unfollow((partition.topic, partition.index))  # or its leader would take it in again
        self._leave(partition)

    def _leave(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        topic = self._image.topics.get(partition.topic)
        if partition.deleted or key in self._leaving or topic is None or partition.index >= len(topic.partitions):
            return
        state = topic.partitions[partition.index]
        least = partition.settings.min_insync_replicas
        if withdraw(state, self._node_id, least) is state:
            return
        self._leaving.add(key)

        def done(made: bool) -> None:
            self._leaving.discard(key)
            if made:
                log.warning("gave up a replica that can't be trusted", extra={"partition": partition.name})

        self._changes.ask(partition.topic, partition.index, lambda state: withdraw(state, self._node_id, least), done)

    def unreadable(self, partition: Partition, offset: int, error: Exception) -> None:
        """Some of the log is damaged: this replica fetches it anew from another, if one has it all. An error that comes
        from elsewhere, such as too many open files, says nothing about the log."""
        log.error("not served: %s", error, extra={"partition": partition.name, "offset": offset})
        if not (isinstance(error, CorruptSegment) or (isinstance(error, OSError) and error.errno == errno.EIO)):
            return
        key = (partition.topic, partition.index)
        topic = self._image.topics.get(partition.topic)
        if topic is None or key in self._healing or len(topic.partitions[partition.index].replicas) == 1:
            return
        self._healing.add(key)
        self._unfollow(key)
        task = asyncio.get_running_loop().create_task(self._heal(partition, key, offset))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._healed(done, key))

    def _trusts(self, key: Key) -> bool:
        """Whether the cluster relies on what this broker holds of the partition."""
        topic = self._image.topics.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return False
        state = topic.partitions[key[1]]
        return self._node_id in (*state.isr, *state.eligible)

    async def _heal(self, partition: Partition, key: Key, offset: int) -> None:
        while not partition.deleted:
            self._leave(partition)
            await asyncio.sleep(LOOK_S)
            topic = self._image.topics.get(key[0])
            if topic is None or key[1] >= len(topic.partitions):
                return
            state = topic.partitions[key[1]]
            if state.leader in (self._node_id, NO_LEADER) or self._trusts(key):
                continue
            try:  # whoever was about to take it in fails, and nothing of it is left that would make anyone want to
                await self._changes.touch(key[0])
            except ApiError as error:
                log.warning("damaged records are fetched later: %s", error, extra={"partition": partition.name})
                continue
            if self._image.topics.get(key[0]) is None or self._trusts(key):
                continue
            base = partition.log.segments[partition.log.segment_of(offset)].base_offset if partition.log.segments else 0
            await self._upkeep.cut(partition, base, partition.leader_epoch, partition.log.end_offset)
            log.warning("fetches anew what was damaged", extra={"partition": partition.name, "from": base})
            return

    def _healed(self, task: asyncio.Task[None], key: Key) -> None:
        self._tasks.discard(task)
        self._healing.discard(key)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("not healed: %s", error, extra={"partition": f"{key[0]}-{key[1]}"})
        topic = self._image.topics.get(key[0])
        if topic is not None and key[1] < len(topic.partitions) and self._node_id in topic.partitions[key[1]].replicas:
            self._follow(topic, key[1], topic.partitions[key[1]])


def _without(replica: int) -> Callable[[PartitionState, int], PartitionState]:
    return lambda state, least: shrink(state, (replica,), least)
