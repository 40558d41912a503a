"""Changes to the cluster that people and clients ask for: topics, leaders, replicas, settings, blocks of producer ids.

The broker that was asked makes them, one at a time, each as one conditional write: where another broker was faster, the
change is planned again on what that one wrote. They run to their end even if whoever asked has gone. The rules are in
`topic_plans`, `leader_plans` and `config_changes`; that nothing is seen before it is durable is `catalog`'s care.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace as with_changes
from functools import partial
from typing import Any, TypeVar

from penstock.cluster.catalog import Catalog, Conflict, TopicListener, unreadable
from penstock.cluster.config_changes import Changes, apply_changes
from penstock.cluster.coordination import CoordinationError, Set
from penstock.cluster.identity import RandomBytes, new_uuid
from penstock.cluster.leader_plans import Election, elected, reassigned
from penstock.cluster.model import NO_LEADER, BrokerState, ClusterImage, PartitionState, TopicState
from penstock.cluster.nodes import BROKERS, TOPICS, ForeignNode, ProducerIdsNode, save
from penstock.cluster.settings import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    SettingError,
    effective_topic_settings,
)
from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, why_illegal
from penstock.cluster.topic_plans import (
    DEFAULT,
    Assignment,
    NewTopic,
    check_request_size,
    checked_topic_config,
    fitting,
    plan_partitions,
    plan_topic,
)
from penstock.protocol.errors import ApiError, ErrorCode

__all__ = ["Administration", "NewTopic", "TopicListener"]

log = logging.getLogger("penstock.administration")

ATTEMPTS = 20
CONFLICT_REST_S = 0.05
NAMES_TOLD_MAX = 10

TOPICS_AT_ONCE = 500  # made or deleted in one write
TOPICS_PER_WRITE = 200  # of which single partitions are changed
PARTITIONS_PER_WRITE = 4000

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1

T = TypeVar("T")
R = TypeVar("R")
Outcome = TopicState | ApiError
PartitionKey = tuple[str, int]  # a topic's name, and a partition's index
PartitionPlan = Callable[[PartitionState, int], PartitionState]  # given min.insync.replicas too; raises ApiError
PartitionChange = tuple[PartitionKey, PartitionPlan]

# Where the settings of a coordinator's topic are.
_COORDINATORS = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}


class Administration:
    def __init__(
        self,
        catalog: Catalog,
        image: ClusterImage,
        settings: BrokerSettings,
        node_id: int,
        random_bytes: RandomBytes,
    ) -> None:
        self._catalog = catalog
        self._image = image
        self._settings = settings
        self._node_id = node_id
        self._random_bytes = random_bytes
        self._lock = asyncio.Lock()
        self._topics_version: int | None = None  # of the node above the topics, when all names in it were known
        self._changes: set[asyncio.Task[Any]] = set()

    @property
    def is_connected(self) -> bool:
        """Whether what is to be changed could be, as far as is known: the coordination service can be reached."""
        return self._catalog.store.connected

    async def close(self) -> None:
        """Waits for changes that are under way."""
        if self._changes:
            await asyncio.wait(self._changes)

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
        """What became of each. Those that can be created are, in as few writes as they fit in."""
        check_request_size(topics, self._settings)
        if validate_only:
            return await self._exclusively(lambda: self._create_topics(topics, validate_only))
        return await self._in_portions(topics, lambda some: self._create_topics(some, False))

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
        """By name, or by id if it is bytes; in as few writes as they fit in. Internal topics too, as in Kafka."""
        return await self._in_portions(topics, self._delete_topics)

    async def _in_portions(
        self, asked: Sequence[T], change: Callable[[Sequence[T]], Coroutine[Any, Any, list[R]]]
    ) -> list[R | ApiError]:
        """When one fails, those behind it are not tried; if it is the first, nothing was done, and it is raised."""
        outcomes: list[R | ApiError] = []
        portions = deque(asked[start : start + TOPICS_AT_ONCE] for start in range(0, len(asked), TOPICS_AT_ONCE))
        while portions:
            some = portions.popleft()
            try:
                outcomes += await self._exclusively(partial(change, some))
            except ApiError as error:
                if error.code is ErrorCode.POLICY_VIOLATION and len(some) > 1:  # too large together
                    half = len(some) // 2
                    portions.extendleft((some[half:], some[:half]))
                    continue
                if not outcomes:
                    raise
                return outcomes + [error] * (len(asked) - len(outcomes))
        return outcomes

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> TopicState:
        def plan(topic: TopicState) -> TopicState:
            image = self._image if assignments is not None else self._image_for_placing()
            return plan_partitions(topic, count, assignments, image, self._random_start())

        return await self._exclusively(lambda: self._change_topic(name, plan, validate_only))

    async def alter_topic_config(
        self, name: str, changes: Changes, *, replace: bool = False, validate_only: bool = False
    ) -> TopicState:
        def plan(topic: TopicState) -> TopicState:
            config = apply_changes(topic.config, changes, TOPIC_SETTINGS, replace=replace)
            return fitting(with_changes(topic, config=checked_topic_config(config, self._settings)), topic)

        return await self._exclusively(lambda: self._change_topic(name, plan, validate_only))

    async def learn(self, topics: Collection[str | bytes]) -> None:
        """Finds, by name or by id, topics that another broker has made and that were not told of yet."""
        if self._catalog.is_alone:
            return
        names = {key for key in topics if isinstance(key, str) and key not in self._image.topics}
        names = {name for name in names if not why_illegal(name)}
        by_id = any(isinstance(key, bytes) and key not in self._image.topics_by_id for key in topics)
        if len(names) > 1 or by_id:
            there = set(await self._topic_names()) - self._image.topics.keys()
            names = there if by_id else names & there
        await self._catalog.refresh([f"{TOPICS}/{name}" for name in sorted(names)])

    # ---- leaders and replicas

    async def elect_leaders(self, election: Election, partitions: Sequence[PartitionKey]) -> list[ApiError | None]:
        """What became of each. An unclean election is for a person to ask for: committed records may be lost."""

        def plan(state: PartitionState, min_insync: int) -> PartitionState:
            return elected(state, election, self._image.brokers, min_insync)

        asked = [(key, plan) for key in partitions]
        return await self._change_partitions(asked, look_who_lives=election is Election.UNCLEAN)

    async def reassign_partitions(
        self, wanted: Sequence[tuple[PartitionKey, Sequence[int] | None]], *, factor_may_change: bool = True
    ) -> list[ApiError | None]:
        """What became of each. No replicas, but None, cancels what is under way."""

        def plan(replicas: Sequence[int] | None) -> PartitionPlan:
            return lambda state, min_insync: reassigned(
                state, replicas, self._image.brokers, min_insync, factor_may_change=factor_may_change
            )

        return await self._change_partitions([(key, plan(replicas)) for key, replicas in wanted])

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
            for _ in range(ATTEMPTS):
                if self._catalog.in_doubt:
                    await self._catalog.reread()
                try:
                    return await change()
                except Conflict as conflict:
                    changed = str(conflict)
                    await asyncio.sleep(self._random_bytes(1)[0] / 256 * CONFLICT_REST_S)
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Others keep changing {changed}")

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # seen, in case whoever asked has gone

    async def _create_topics(self, topics: Sequence[NewTopic], validate_only: bool) -> list[Outcome]:
        if not topics:
            return []
        version = await self._learn_all()
        planned: dict[str, TopicState] = {}
        outcomes = [self._plan(new, planned) for new in topics]
        written = False
        try:
            if planned and not validate_only:
                await self._write_new(list(planned.values()), version)
                written = True
                self._tell_of_few_replicas([new for new in topics if new.name in planned], planned)
        finally:
            if not written:
                for name in planned.keys() - self._image.topics.keys():
                    self._catalog.names.remove(name)
        return outcomes

    def _tell_of_few_replicas(self, asked: Sequence[NewTopic], created: Mapping[str, TopicState]) -> None:
        """Who asked for no number meant as many as the settings say, and gets no error where brokers are away."""
        if self._catalog.is_alone:
            return
        few: dict[str, list[str]] = {}
        for new in asked:
            prefix = _COORDINATORS.get(new.name, "default")
            setting = f"{prefix}.replication.factor"
            unsaid = not new.assignments and (new.replication_factor == DEFAULT or prefix != "default")
            if unsaid and len(created[new.name].partitions[0].replicas) < self._settings.get(setting):
                few.setdefault(setting, []).append(new.name)
        for setting, names in few.items():
            wanted = self._settings.get(setting)
            facts = {"topics": names[:NAMES_TOLD_MAX], "count": len(names), "brokers": len(self._staying_brokers())}
            log.warning(
                "made with fewer replicas than %s=%s says, because brokers are away: "
                "'penstock cluster rebalance --replicas %s' gives them more", setting, wanted, wanted, extra=facts,
            )  # fmt: skip

    async def _write_new(self, topics: Sequence[TopicState], version: int) -> None:
        """Every creation changes the node above the topics: two brokers can't make names that collide at once."""
        self._topics_version = None
        await self._catalog.write_topics(topics, [Set(TOPICS, b"", version)])
        self._topics_version = version + 1

    async def _learn_all(self) -> int:
        """The version of the node above the topics: unless that rises, no broker makes a topic unknown here."""
        if self._topics_version is None:
            version = (await self._catalog.read(TOPICS)).version
            unknown = set(await self._topic_names()) - self._image.topics.keys()
            await self._catalog.refresh([f"{TOPICS}/{name}" for name in sorted(unknown)])
            self._topics_version = version
        return self._topics_version

    async def _topic_names(self) -> list[str]:
        try:
            return await self._catalog.store.children(TOPICS)
        except CoordinationError as error:
            raise unreadable(error) from error

    def _image_for_placing(self) -> ClusterImage:
        """No new replica goes to a broker that stops."""
        return with_changes(self._image, brokers=self._staying_brokers())

    def _staying_brokers(self) -> dict[int, BrokerState]:
        return {node_id: broker for node_id, broker in self._image.brokers.items() if not broker.stopping}

    def _plan(self, new: NewTopic, planned: dict[str, TopicState]) -> Outcome:
        names = self._catalog.names
        try:
            if new.name in planned:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic_id = new_uuid(self._random_bytes)
            image = self._image if new.assignments else self._image_for_placing()
            topic = plan_topic(new, topic_id, image, self._settings, names, self._random_start())
        except ApiError as error:
            return error
        names.add(topic.name)
        planned[topic.name] = topic
        return topic

    async def _auto_create_topics(self, names: Sequence[str]) -> list[Outcome]:
        missing = [self._automatic(name) for name in dict.fromkeys(names) if name not in self._image.topics]
        check_request_size(missing, self._settings)
        created = dict(zip((new.name for new in missing), await self._create_topics(missing, False)))
        # Another broker may have been faster: whoever made it, there it is.
        return [self._image.topics.get(name) or created[name] for name in names]

    def _automatic(self, name: str) -> NewTopic:
        prefix = _COORDINATORS.get(name)
        if prefix is None:
            return NewTopic(name)
        partitions = self._settings.get(f"{prefix}.num.partitions")
        replicas = max(min(self._settings.get(f"{prefix}.replication.factor"), len(self._staying_brokers())), 1)
        segment_bytes = str(self._settings.get(f"{prefix}.segment.bytes"))
        config = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment_bytes}
        return NewTopic(name, partitions, replicas, (), config)

    async def _delete_topics(self, topics: Sequence[str | bytes]) -> list[ApiError | None]:
        await self.learn(topics)
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
        await self.learn([name])
        before = self._existing(name)
        after = plan(before)
        if after != before and not validate_only:
            await self._catalog.write_topics([after])
        return after

    def _existing(self, name: str) -> TopicState:
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    async def _change_partitions(
        self, asked: Sequence[PartitionChange], *, look_who_lives: bool = False
    ) -> list[ApiError | None]:
        """In as few writes as they fit in. When one fails, those behind it are not tried."""
        outcomes: list[ApiError | None] = []
        for some in self._in_writes(asked):
            try:
                outcomes += await self._exclusively(partial(self._change_some, some, look_who_lives))
            except ApiError as error:
                return outcomes + [error] * (len(asked) - len(outcomes))
        return outcomes

    def _in_writes(self, asked: Sequence[PartitionChange]) -> Iterator[list[PartitionChange]]:
        some: list[PartitionChange] = []
        names: set[str] = set()
        partitions = 0
        for change in asked:
            name = change[0][0]
            if name not in names:
                topic = self._image.topics.get(name)
                size = len(topic.partitions) if topic else 0
                if some and (len(names) == TOPICS_PER_WRITE or partitions + size > PARTITIONS_PER_WRITE):
                    yield some
                    some, names, partitions = [], set(), 0
                names.add(name)
                partitions += size
            some.append(change)
        if some:
            yield some

    async def _change_some(self, asked: Sequence[PartitionChange], look_who_lives: bool) -> list[ApiError | None]:
        await self.learn({name for (name, _), _ in asked})
        if look_who_lives:  # who has returned just now may save what an unclean election gives up
            await self._look_who_lives({name for (name, _), _ in asked})
        outcomes: list[ApiError | None] = []
        changed: dict[str, list[PartitionState]] = {}
        for (name, index), plan in asked:
            try:
                topic = self._existing(name)
                partitions = changed.get(name) or list(topic.partitions)
                if not 0 <= index < len(partitions):
                    message = f"The topic '{name}' has no partition {index}."
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                value: Mapping[str, Any] = effective_topic_settings(topic.config, self._settings)
                partitions[index] = plan(partitions[index], value["min.insync.replicas"])
                changed[name] = partitions
                outcomes.append(None)
            except ApiError as error:
                outcomes.append(error)
        too_large = self._too_large(changed)
        await self._write_partitions({name: states for name, states in changed.items() if name not in too_large})
        return [outcome or too_large.get(name) for ((name, _), _), outcome in zip(asked, outcomes, strict=True)]

    def _too_large(self, changed: Mapping[str, Sequence[PartitionState]]) -> dict[str, ApiError]:
        """Topics that would not fit into their nodes. Of such a one, nothing is changed."""
        errors: dict[str, ApiError] = {}
        for name, states in changed.items():
            topic = self._image.topics[name]
            try:
                fitting(with_changes(topic, partitions=tuple(states)), topic)
            except ApiError as error:
                errors[name] = error
        return errors

    async def _look_who_lives(self, names: Collection[str]) -> None:
        topics = (topic for name in names if (topic := self._image.topics.get(name)))
        replicas = {replica for topic in topics for state in topic.partitions for replica in state.replicas}
        await self._catalog.refresh([f"{BROKERS}/{replica}" for replica in sorted(replicas)])

    async def _write_partitions(self, changed: Mapping[str, Sequence[PartitionState]]) -> None:
        topics = [(self._image.topics[name], tuple(partitions)) for name, partitions in changed.items()]
        after = [with_changes(topic, partitions=states) for topic, states in topics if states != topic.partitions]
        if after:
            await self._catalog.write_topics(after)
        for topic, states in topics:
            for index, (was, now) in enumerate(zip(topic.partitions, states)):
                if now.leader != was.leader and now.leader not in (*was.isr, *was.eligible, was.last_leader, NO_LEADER):
                    facts = {"partition": f"{topic.name}-{index}", "leader": now.leader}
                    log.warning(
                        "a leader was elected that may lack committed records: someone asked for it", extra=facts
                    )

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
        try:
            node = ProducerIdsNode.decode(await self._catalog.read(ProducerIdsNode.path))
        except ForeignNode as error:
            log.error("no producer gets an id: %s", error)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
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
