"""Topics of dead letters, by their names or by what is in them: `dead_letter="graveyard"` gives one any name.

A topic that a handler makes keeps everything, so of topics with other names only such are looked into; and no further
than to the first record of each partition. Whoever has very many topics names the one that is meant.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.cli.connection import REQUEST_TIMEOUT_S, Connection, client_settings
from penstock.cli.dlq.letters import is_dead_letters, is_letter, mark_of
from penstock.cli.kafka_admin import EARLIEST, LATEST, ConfigResource, ResourceType
from penstock.cli.problem import Problem

if TYPE_CHECKING:
    from confluent_kafka import Message

ASKED_MAX = 2_000  # topics, for their settings
LOOK_S_MAX = 5.0
KEEPS_ALL = "-1"


def all_dead_letters(connection: Connection) -> list[str]:
    named = {name for name in connection.topics if is_dead_letters(name)}
    others = [name for name in connection.topics if name not in named and not name.startswith("__")]
    kept = _that_keep_everything(connection, others) if len(others) <= ASKED_MAX else []
    return sorted(named | _with_letters(connection, kept))


def refuse_ordinary(connection: Connection, topic: str) -> None:
    if not is_dead_letters(topic) and not _with_letters(connection, [topic]):
        raise Problem(
            f"{topic!r} is no topic of dead letters.",
            "Their names end in .dlq or -dead-letters, or letters are what they begin with; 'penstock dlq list' shows "
            "them. Use --any-topic if it is one.",
        )


def _that_keep_everything(connection: Connection, topics: Collection[str]) -> list[str]:
    from confluent_kafka import KafkaException

    if not topics:
        return []
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = []
    for resource, future in connection.admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            settings = future.result(REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError):  # deleted this moment, or not ours to look at
            continue
        if settings["retention.ms"].value == KEEPS_ALL:
            found.append(resource.name)
    return found


def _with_letters(connection: Connection, topics: Collection[str]) -> set[str]:
    """Those of these in which the first record of a partition is a letter, or the mark of one."""
    from confluent_kafka import Consumer, TopicPartition

    keys = [key for topic in topics for key in connection.partitions(topic)]
    ends = connection.known_offsets(dict.fromkeys(keys, LATEST))
    starts = connection.known_offsets(dict.fromkeys(ends, EARLIEST))
    unseen = {key for key, start in starts.items() if start < ends[key]}
    if not unseen:
        return set()
    settings = {
        "group.id": "penstock-cli", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_committed", "fetch.wait.max.ms": 10, "max.partition.fetch.bytes": 64 * 1024,
        "queued.min.messages": 1,
    }  # fmt: skip
    consumer = Consumer(client_settings(connection.bootstrap, **settings))
    found: set[str] = set()
    deadline_s = time.monotonic() + LOOK_S_MAX
    try:
        consumer.assign([TopicPartition(*key, starts[key]) for key in sorted(unseen)])
        while unseen and time.monotonic() < deadline_s:
            for message in consumer.consume(len(unseen), 0.05):
                key = message.topic() or "", message.partition() or 0
                if key in unseen and message.error() is None and _says_so(message):
                    found.add(key[0])
                unseen.discard(key)
            unseen = {key for key in unseen if key[0] not in found}
    finally:
        consumer.close()
    return found


def _says_so(message: Message) -> bool:
    from penstock.client.filtering import headers_of

    if headers_of(message) is None:  # the name of one is not UTF-8, as ours are
        return False
    return mark_of(message) is not None or is_letter(message)
