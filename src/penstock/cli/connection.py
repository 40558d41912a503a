"""A conversation with a broker, through confluent-kafka, in which every failure becomes a Problem with advice."""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.cli.bootstrap import Bootstrap, find
from penstock.cli.kafka_admin import EARLIEST, LATEST, AdminClient
from penstock.cli.problem import Problem, did_you_mean

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.cli.kafka_admin import TopicMetadata

REACH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0

Key = tuple[str, int]  # topic and partition

UNREACHABLE = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})
HINTS = {
    KafkaError.TOPIC_ALREADY_EXISTS: "Use --if-not-exists to accept a topic that is there already.",
    KafkaError.INVALID_REPLICATION_FACTOR: "There can't be more replicas than brokers: try fewer, or leave out -r.",
    KafkaError.INVALID_PARTITIONS: "A topic has at least one partition, and partitions can be added but not removed.",
    KafkaError.NON_EMPTY_GROUP: "Stop the group's consumers first; 'penstock group describe' names them.",
    KafkaError.TOPIC_EXCEPTION: "A topic's name has letters, digits, '.', '_' and '-', and at most 249 of them.",
    KafkaError.REQUEST_TIMED_OUT: "'penstock cluster status{options}' tells whether brokers and ZooKeeper answer.",
    KafkaError.LEADER_NOT_AVAILABLE: "No broker leads the partition: 'penstock cluster status{options}' tells more.",
    KafkaError.OFFSET_OUT_OF_RANGE: "'penstock topic describe' shows where each partition starts and ends.",
}


NOT_NOW = (KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)


def client_settings(bootstrap: Bootstrap, **more: Any) -> dict[str, Any]:
    """Settings common to every client: librdkafka's own log stays quiet, since we report what fails."""
    return {"bootstrap.servers": bootstrap.addresses, "client.id": "penstock-cli", "log_level": 0, **more}


def explain(error: KafkaError, doing: str, bootstrap: Bootstrap) -> Problem:
    if error.code() in UNREACHABLE:
        return not_reachable(bootstrap, error.str())
    message = f"{doing}: {error.str().rstrip('.')} ({error.name()})."
    hint = HINTS.get(error.code(), "").format(options=bootstrap.options)
    return Problem(message, hint or None, kafka_error=error.code())


def not_reachable(bootstrap: Bootstrap, reason: str) -> Problem:
    return Problem(f"no broker answers at {bootstrap.addresses} ({reason}).", bootstrap.advice)


def expect_topic(name: str, known: Collection[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or "'penstock topic list' shows which there are."
        raise Problem(f"there is no topic {name!r}.", f"{hint}\nCreate it with 'penstock topic create {name}'.")


def connect(args: argparse.Namespace) -> Connection:
    return Connection(find(args.bootstrap))


class Connection:
    def __init__(self, bootstrap: Bootstrap) -> None:
        self.bootstrap = bootstrap
        deadline = time.monotonic() + REACH_TIMEOUT_S
        _knock(bootstrap, deadline)
        self.admin = AdminClient(client_settings(bootstrap))
        try:
            self.cluster = self.admin.list_topics(timeout=max(0.5, deadline - time.monotonic()))
        except KafkaException as failure:
            reason = f"{failure.args[0].str().rstrip('.')}, tried for {REACH_TIMEOUT_S:.0f} s"
            raise not_reachable(bootstrap, reason) from failure

    @property
    def topics(self) -> dict[str, TopicMetadata]:
        return self.cluster.topics

    def topic(self, name: str) -> TopicMetadata:
        expect_topic(name, self.topics)
        return self.topics[name]

    def partitions(self, topic: str, only: Iterable[int] | None = None) -> list[Key]:
        """A topic's partitions, or those asked for, which must exist."""
        known = sorted(self.topic(topic).partitions)
        wanted = known if only is None else sorted(set(only))
        for partition in wanted:
            if partition not in known:
                raise Problem(f"topic {topic!r} has no partition {partition}.", f"It has partitions 0 to {known[-1]}.")
        return [(topic, partition) for partition in wanted]

    def offsets(self, specs: Mapping[Key, Any]) -> dict[Key, int]:
        """What ListOffsets answers for each partition; -1 where no record is that late."""
        if not specs:
            return {}
        led = self.led(specs)
        for topic, partition in specs:
            if (topic, partition) not in led:
                hint = HINTS[KafkaError.LEADER_NOT_AVAILABLE].format(options=self.bootstrap.options)
                raise Problem(f"{topic}[{partition}] can't be read now.", hint)
        request = {TopicPartition(*key): spec for key, spec in specs.items()}
        futures = self.admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
        return {
            (place.topic, place.partition): self.wait(future, f"offsets of {place.topic}[{place.partition}]").offset
            for place, future in futures.items()
        }

    def known_offsets(self, specs: Mapping[Key, Any]) -> dict[Key, int]:
        """The same, without partitions that nobody leads, or whose leader is new and can't say yet, or just moving."""
        led = self.led(specs)
        if not led:
            return {}
        request = {TopicPartition(*key): specs[key] for key in led}
        found = {}
        for place, future in self.admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S).items():
            error = future.exception(timeout=REQUEST_TIMEOUT_S + REACH_TIMEOUT_S)
            if isinstance(error, KafkaException) and error.args[0].code() in NOT_NOW:
                continue
            answer = self.wait(future, f"offsets of {place.topic}[{place.partition}]")
            found[place.topic, place.partition] = answer.offset
        return found

    def led(self, keys: Iterable[Key]) -> set[Key]:
        """Without partitions that had no leader when this conversation began."""
        partitions = ((name, topic.partitions) for name, topic in self.topics.items())
        return set(keys) - {(name, index) for name, each in partitions for index in each if each[index].leader < 0}

    def starts(self, keys: Iterable[Key]) -> dict[Key, int]:
        return self.offsets(dict.fromkeys(keys, EARLIEST))

    def ends(self, keys: Iterable[Key]) -> dict[Key, int]:
        return self.offsets(dict.fromkeys(keys, LATEST))

    def wait(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(timeout=REQUEST_TIMEOUT_S + REACH_TIMEOUT_S)
        except KafkaException as failure:
            raise explain(failure.args[0], doing, self.bootstrap) from failure
        except TimeoutError as failure:
            raise not_reachable(self.bootstrap, "the request got no answer") from failure


def _knock(bootstrap: Bootstrap, deadline: float) -> None:
    """Finds out at once, and with the real reason, that nothing listens: librdkafka would go on trying."""
    reason = "no address"
    places = bootstrap.places()
    for position, place in enumerate(places):
        share_s = (deadline - time.monotonic()) / (len(places) - position)
        try:
            socket.create_connection(place, timeout=max(0.5, share_s)).close()
            return
        except TimeoutError:
            reason = f"no answer within {REACH_TIMEOUT_S:.0f} s"
        except OSError as failure:
            reason = (failure.strerror or str(failure)).lower()
    raise not_reachable(bootstrap, reason)
