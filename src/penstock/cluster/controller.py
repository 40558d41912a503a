"""The one who decides on changes to the cluster: topics, partitions, settings, blocks of producer ids.

Changes happen one at a time, each as one conditional write, and run to their end even if whoever asked has gone. The
rules are in `topic_plans` and `config_changes`; that nothing is seen before it is durable is `catalog`'s care.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace as with_changes
from typing import Any, TypeVar

from penstock.cluster.catalog import Catalog, TopicListener
from penstock.cluster.config_changes import Changes, apply_changes
from penstock.cluster.coordination import Coordination
from penstock.cluster.identity import RandomBytes, new_uuid
from penstock.cluster.model import ClusterImage, TopicState
from penstock.cluster.nodes import ProducerIdsNode, save
from penstock.cluster.settings import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    SettingError,
)
from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.cluster.topic_plans import (
    DEFAULT,
    Assignment,
    NewTopic,
    check_request_size,
    checked_topic_config,
    plan_partitions,
    plan_topic,
)
from penstock.protocol.errors import ApiError, ErrorCode

__all__ = ["Controller", "NewTopic", "TopicListener"]

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1

T = TypeVar("T")
Outcome = TopicState | ApiError


# Where the settings of a coordinator's topic are.
_COORDINATORS = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}


class Controller:
    def __init__(
        self,
        store: Coordination,
        image: ClusterImage,
        settings: BrokerSettings,
        node_id: int,
        random_bytes: RandomBytes,
    ) -> None:
        self._catalog = Catalog(store, image, settings, node_id)
        self._image = image
        self._settings = settings
        self._node_id = node_id
        self._random_bytes = random_bytes
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()

    async def load(self) -> None:
        """Fills the image from the store. Tells no listener."""
        await self._catalog.load(self._random_bytes)

    async def close(self) -> None:
        """Waits for changes that are under way."""
        if self._changes:
            await asyncio.wait(self._changes)

    def subscribe(self, listener: TopicListener) -> None:
        self._catalog.subscribe(listener)

    # ---- topics

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        assignments: Sequence[Assignment] = (),
        config: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        new = NewTopic(name, partitions, replication_factor, assignments, config or {})
        (outcome,) = await self.create_topics([new], validate_only=validate_only)
        return _or_raise(outcome)

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[Outcome]:
        """What became of each. Those that can be created are, in one write."""
        return await self._exclusively(lambda: self._create_topics(topics, validate_only))

    async def auto_create_topics(self, names: Sequence[str]) -> list[Outcome]:
        """Those that do not exist yet are created as the broker's settings say."""
        return await self._exclusively(lambda: self._auto_create_topics(names))

    async def ensure_topic(self, name: str) -> TopicState:
        """A coordinator's topic, created if nobody has needed it before."""
        if existing := self._image.topics.get(name):
            return existing
        (outcome,) = await self.auto_create_topics([name])
        return _or_raise(outcome)

    async def delete_topic(self, name: str) -> None:
        (failure,) = await self.delete_topics([name])
        if failure is not None:
            raise failure

    async def delete_topics(self, topics: Sequence[str | bytes]) -> list[ApiError | None]:
        """By name, or by id if it is bytes; in one write. Internal topics too, as in Kafka."""
        return await self._exclusively(lambda: self._delete_topics(topics))

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> TopicState:
        def plan(topic: TopicState) -> TopicState:
            return plan_partitions(topic, count, assignments, self._image, self._random_start())

        return await self._exclusively(lambda: self._change_topic(name, plan, validate_only))

    async def alter_topic_config(
        self, name: str, changes: Changes, *, replace: bool = False, validate_only: bool = False
    ) -> TopicState:
        def plan(topic: TopicState) -> TopicState:
            config = apply_changes(topic.config, changes, TOPIC_SETTINGS, replace=replace)
            return with_changes(topic, config=checked_topic_config(config, self._settings))

        return await self._exclusively(lambda: self._change_topic(name, plan, validate_only))

    # ---- brokers, groups and producers

    async def alter_broker_config(
        self, node_id: int | None, changes: Changes, *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """`node_id` None changes the settings of every broker."""
        assert node_id in (None, self._node_id), "a broker's own settings are changed by that broker"
        await self._exclusively(lambda: self._alter_broker_config(node_id, changes, replace, validate_only))

    async def alter_group_config(
        self, group_id: str, changes: Changes, *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """The group need not exist: it finds its settings when it comes."""
        await self._exclusively(lambda: self._alter_group_config(group_id, changes, replace, validate_only))

    async def next_producer_id_block(self) -> range:
        """Ids that nobody has had and nobody else will get, even if this process dies now."""
        return await self._exclusively(self._next_producer_id_block)

    # ---- one change at a time

    async def _exclusively(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # In a task of its own: a client that hangs up must not leave a write in the store that the image lacks.
        task = asyncio.get_running_loop().create_task(self._alone(change))
        self._changes.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def _alone(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._lock:
            if self._catalog.in_doubt:
                await self._catalog.reread()
            return await change()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # seen, in case whoever asked has gone

    async def _create_topics(self, topics: Sequence[NewTopic], validate_only: bool) -> list[Outcome]:
        check_request_size(topics, self._settings)
        planned: dict[str, TopicState] = {}
        outcomes = [self._plan(new, planned) for new in topics]
        written = False
        try:
            if planned and not validate_only:
                await self._catalog.write_topics(list(planned.values()))
                written = True
        finally:
            if not written:
                for name in planned:
                    self._catalog.names.remove(name)
        return outcomes

    def _plan(self, new: NewTopic, planned: dict[str, TopicState]) -> Outcome:
        names = self._catalog.names
        try:
            if new.name in planned:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic_id = new_uuid(self._random_bytes)
            topic = plan_topic(new, topic_id, self._image, self._settings, names, self._random_start())
        except ApiError as error:
            return error
        names.add(topic.name)
        planned[topic.name] = topic
        return topic

    async def _auto_create_topics(self, names: Sequence[str]) -> list[Outcome]:
        missing = [self._automatic(name) for name in dict.fromkeys(names) if name not in self._image.topics]
        created = dict(zip((new.name for new in missing), await self._create_topics(missing, False)))
        return [created[name] if name in created else self._image.topics[name] for name in names]

    def _automatic(self, name: str) -> NewTopic:
        prefix = _COORDINATORS.get(name)
        if prefix is None:
            return NewTopic(name)
        partitions = self._settings.get(f"{prefix}.num.partitions")
        replicas = min(self._settings.get(f"{prefix}.replication.factor"), len(self._image.brokers))
        segment_bytes = str(self._settings.get(f"{prefix}.segment.bytes"))
        config = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment_bytes}
        return NewTopic(name, partitions, replicas, (), config)

    async def _delete_topics(self, topics: Sequence[str | bytes]) -> list[ApiError | None]:
        failures: list[ApiError | None] = []
        doomed: dict[str, TopicState] = {}
        for key in topics:
            by_name = isinstance(key, str)
            topic = self._image.topics.get(key) if isinstance(key, str) else self._image.topics_by_id.get(key)
            if topic is None or topic.name in doomed:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
                failures.append(ApiError(code))
            else:
                doomed[topic.name] = topic
                failures.append(None)
        if doomed:
            await self._catalog.delete_topics(list(doomed.values()))
        return failures

    async def _change_topic(
        self, name: str, plan: Callable[[TopicState], TopicState], validate_only: bool
    ) -> TopicState:
        before = self._image.topics.get(name)
        if before is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        after = plan(before)
        if after != before and not validate_only:
            await self._catalog.write_topics([after])
        return after

    async def _alter_broker_config(
        self, node_id: int | None, changes: Changes, replace: bool, validate_only: bool
    ) -> None:
        current = self._catalog.broker_config(node_id).config
        config = apply_changes(current, changes, BROKER_SETTINGS, replace=replace)
        try:
            self._settings.validate_dynamic(config, per_broker=node_id is not None)
        except SettingError as error:
            # Kafka has always answered so, and not INVALID_CONFIG, for settings of brokers (KAFKA-13609).
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        if config != current and not validate_only:
            await self._catalog.write_broker_config(node_id, config)

    async def _alter_group_config(self, group_id: str, changes: Changes, replace: bool, validate_only: bool) -> None:
        current = self._catalog.group_config(group_id).config
        config = apply_changes(current, changes, GROUP_SETTINGS, replace=replace)
        try:
            self._settings.check_group_config(config)
        except SettingError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if config != current and not validate_only:
            await self._catalog.write_group_config(group_id, config)

    async def _next_producer_id_block(self) -> range:
        node = ProducerIdsNode.decode(await self._catalog.read(ProducerIdsNode.path))
        first = node.next_producer_id
        if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Have exhausted all producerIds.")
        await self._catalog.write([save(ProducerIdsNode(first + PRODUCER_ID_BLOCK_SIZE, node.version))])
        return range(first, first + PRODUCER_ID_BLOCK_SIZE)

    def _random_start(self) -> int:
        return int.from_bytes(self._random_bytes(4), "big")


def _or_raise(outcome: Outcome) -> TopicState:
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome
