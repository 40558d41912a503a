"""The brokers of a cluster, as a job sees them: who leads what, and requests that are tried again while it may help."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock.pipeline.connection import Address, ClientSettings, Connection, Unreachable
from penstock.pipeline.problem import PipelineError
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from penstock.protocol.schema import Message

EARLIEST, LATEST = -2, -1  # timestamps that ListOffsets takes for the ends of a log
PAUSE_S_FIRST, PAUSE_S_MAX = 0.02, 1.0
GROUP, TRANSACTION = 0, 1  # what coordinators coordinate

# What passes by itself: leaders move, coordinators load, replicas come back.
PASSING = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)

T = TypeVar("T")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    internal: bool
    leaders: dict[int, int]  # by partition; -1 while nobody leads

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in sorted(self.leaders)]


class Brokers:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._addresses: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._reached = False  # any broker, ever
        self.cluster_id: str | None = None  # as the last answer about topics told

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- connections

    def at(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self.settings)
            self._reached = True
        return connection

    def any(self) -> Connection:
        """A broker that answers: one that is known to live, or one of those that were named first."""
        problems = []
        for address in dict.fromkeys([*self._connections, *self._addresses.values(), *self.settings.bootstrap]):
            try:
                return self.at(address)
            except Unreachable as error:
                problems.append(str(error))
        raise Unreachable(f"no broker answers ({'; '.join(problems[:3])})")

    def all(self) -> list[Connection]:
        """Every broker that lives."""
        self._ask_topics([])
        return [self.at(address) for address in self._addresses.values()]

    def forget(self) -> None:
        """After a failure: connections that may be of no use, and whatever was known of leaders and coordinators."""
        self.close()
        self._topics.clear()
        self._coordinators.clear()

    def until_answered(self, attempt: Callable[[], T], what: str, patience_s: float | None = None) -> T:
        """Tries again while the failure is of the kind that passes, and the time lasts."""
        begun = time.monotonic()
        patience_s = self.settings.patience_s if patience_s is None else patience_s
        pause_s = PAUSE_S_FIRST
        while True:
            deadline = begun + patience_s
            try:
                return attempt()
            except Unreachable as error:
                problem: Exception = error
                if self.settings.reach_s is not None and not self._reached:
                    deadline = begun + min(patience_s, self.settings.reach_s)
            except ApiError as error:
                if error.code not in PASSING:
                    raise
                problem = error
            self.forget()
            if time.monotonic() + pause_s > deadline:
                raise PipelineError(f"{what}: {problem}") from problem
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    # ---- topics and leaders

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """The topics of these names that exist, or all that there are."""
        return self.until_answered(lambda: self._ask_topics(names), "metadata of topics")

    def _ask_topics(self, names: Collection[str] | None) -> dict[str, Topic]:
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in sorted(names)]
        connection = self.any()
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = connection.ask(request, connection.newest(MetadataRequest, 12))
        self.cluster_id = answer.cluster_id
        self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        found = {each.name: _topic(each) for each in answer.topics if _exists(each)}
        self._topics.update(found)
        return found

    def leader(self, place: TopicPartition) -> Connection:
        """Raises ApiError where there is no such partition, or nobody leads it now."""
        topic = self._topics.get(place.topic) or self._ask_topics([place.topic]).get(place.topic)
        if topic is None or place.partition not in topic.leaders:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {place}")
        address = self._addresses.get(topic.leaders[place.partition])
        if address is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {place}")
        return self.at(address)

    # ---- offsets

    def offsets(self, wanted: Mapping[TopicPartition, int], *, committed: bool = True) -> dict[TopicPartition, int]:
        """The first offset whose timestamp is as late as wanted (or an end of the log), -1 where there is none.

        Partitions that do not exist are left out. `committed` ends a log where its first open transaction begins.
        """
        found: dict[TopicPartition, int] = {}
        missing = dict(wanted)
        while missing:
            asked = dict(list(missing.items())[:10_000])
            found |= self.until_answered(lambda: self._ask_offsets(asked, committed), "offsets of partitions")  # noqa: B023
            for place in asked:
                del missing[place]
        return found

    def _ask_offsets(self, wanted: Mapping[TopicPartition, int], committed: bool) -> dict[TopicPartition, int]:
        known = self._ask_topics({place.topic for place in wanted})
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            topic = known.get(place.topic)
            if topic is not None and place.partition in topic.leaders:
                by_leader.setdefault(topic.leaders[place.partition], []).append(place)
        found: dict[TopicPartition, int] = {}
        for node_id, places in by_leader.items():
            if node_id not in self._addresses:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {places[0]}")
            connection = self.at(self._addresses[node_id])
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=each.partition, timestamp=wanted[each]) for each in each_of
                    ],
                )
                for name, each_of in by_topic(places).items()
            ]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
            answer = connection.ask(request, connection.newest(ListOffsetsRequest, 7))
            for topic_answer in answer.topics:
                for each in topic_answer.partitions:
                    place = TopicPartition(topic_answer.name, each.partition_index)
                    if each.error_code:
                        raise ApiError(ErrorCode(each.error_code), f"offsets of {place}")
                    found[place] = each.offset
        return found

    # ---- coordinators

    def coordinator(self, kind: int, key: str) -> Connection:
        address = self._coordinators.get((kind, key))
        if address is None:
            connection = self.any()
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = connection.ask(request, 4).coordinators[0]
            if found.error_code:
                raise ApiError(ErrorCode(found.error_code), f"no coordinator of {key!r}: {found.error_message or ''}")
            address = self._coordinators[kind, key] = (found.host, found.port)
        return self.at(address)

    def ask_coordinator(self, kind: int, key: str, request: Message, version: int, what: str) -> Any:
        """The answer, whatever its error code is. Failures to reach the coordinator are tried again."""

        def attempt() -> Any:
            answer = self.coordinator(kind, key).ask(request, version)
            code = ErrorCode(getattr(answer, "error_code", 0))
            if code in PASSING:
                raise ApiError(code)
            return answer

        return self.until_answered(attempt, what)


def _exists(topic: MetadataResponseTopic) -> bool:
    code = ErrorCode(topic.error_code)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return False
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"metadata of topic {topic.name!r}")
    return topic.name is not None


def _topic(topic: MetadataResponseTopic) -> Topic:
    assert topic.name is not None
    leaders = {each.partition_index: each.leader_id for each in topic.partitions}
    return Topic(topic.name, topic.topic_id, topic.is_internal, leaders)


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """As requests list them."""
    found: dict[str, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place)
    return found
