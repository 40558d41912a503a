"""Dead letters as a topic holds them: the letters, and the marks of those that are done.

A mark is a record with the header `penstock.redriven` or `penstock.purged`, whose value is the partition and offset of
a letter before it in the same partition. Only what is committed is read, so a mark says that its deed was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.problem import Problem

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.cli.connection import Connection

SUFFIXES = (".dlq", "-dead-letters")  # of handlers, and of pipelines
REDRIVEN = "penstock.redriven"
PURGED = "penstock.purged"
ERROR = "penstock.error"  # our headers begin with it, behind the user's
QUIET_S_MAX = 30.0
BATCH = 1_000

Header = tuple[str, bytes | None]
Place = tuple[int, int]  # partition and offset


@dataclass(frozen=True, slots=True)
class Letter:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]  # the user's
    facts: dict[str, str]  # ours, without `penstock.`

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    @property
    def origin(self) -> str:
        facts = self.facts
        return f"{facts.get('topic', '?')}[{facts.get('partition', '?')}]@{facts.get('offset', '?')}"

    @property
    def failed_at_ms(self) -> int:
        from datetime import datetime

        try:
            return int(datetime.fromisoformat(self.facts["failed.at"]).timestamp() * 1000)
        except (KeyError, ValueError):
            return self.timestamp_ms


def is_dead_letters(topic: str) -> bool:
    return topic.endswith(SUFFIXES)


def mark_of(message: Message) -> tuple[Place, str] | None:
    """The letter that this record marks, and how; None if it is a letter itself."""
    from penstock.cli.records import headers_of

    if message.value() is not None or message.key() is not None:
        return None
    headers = headers_of(message)
    if len(headers) != 1 or headers[0][0] not in (REDRIVEN, PURGED):
        return None
    partition, _, offset = (headers[0][1] or b"").decode(errors="replace").partition("/")
    if not partition.isdecimal() or not offset.isdecimal():
        return None
    return (int(partition), int(offset)), headers[0][0]


def letter_of(message: Message) -> Letter:
    from penstock.cli.records import headers_of

    headers = headers_of(message)
    begin = next((n for n in reversed(range(len(headers))) if headers[n][0] == ERROR), len(headers))
    facts = {name.removeprefix("penstock."): (value or b"").decode(errors="replace") for name, value in headers[begin:]}
    key: Any = message.key()
    value: Any = message.value()
    return Letter(
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        key,
        value,
        tuple(headers[:begin]),
        facts,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """What a topic holds: letters that are wanted and not done, and what is done."""

    letters: list[Letter]
    done: dict[Place, str]
    total: int  # letters, wanted or not, done or not
    open: dict[Place, int]  # letters that are not done, wanted or not, and when each failed
    starts: dict[int, int]
    reached: dict[int, int]  # to where each partition was read: not beyond the first transaction that is still open

    def first_open(self, partition: int) -> int:
        """The offset of the first letter that is not done, or from where on nobody has seen what there is."""
        return min((offset for number, offset in self.open if number == partition), default=self.reached[partition])


def read(
    connection: Connection,
    topic: str,
    wanted: Callable[[Letter], bool],
    progress: Callable[[int, int], None] = lambda done, total: None,
    keep_done: bool = False,
) -> Held:
    """Everything from the start to the end of the topic, as it is now, but what is behind an open transaction."""
    keys = connection.partitions(topic)
    starts = {key[1]: offset for key, offset in connection.starts(keys).items()}
    ends = {key[1]: offset for key, offset in connection.ends(keys).items()}
    letters: dict[Place, Letter] = {}
    still_open: dict[Place, int] = {}
    done: dict[Place, str] = {}
    total = seen = 0
    records = sum(ends.values()) - sum(starts.values())
    reached = dict(starts)
    for message in _messages(connection, topic, starts, ends, reached):
        seen += 1
        if seen % BATCH == 0:
            progress(seen, records)
        if (mark := mark_of(message)) is not None:
            place, how = mark
            done[place] = how
            still_open.pop(place, None)
            if not keep_done:
                letters.pop(place, None)
            continue
        total += 1
        letter = letter_of(message)
        still_open[letter.place] = letter.failed_at_ms
        if wanted(letter):
            letters[letter.place] = letter
    progress(records, records)
    return Held(list(letters.values()), done, total, still_open, starts, reached)


def _messages(
    connection: Connection, topic: str, starts: dict[int, int], ends: dict[int, int], reached: dict[int, int]
) -> Iterator[Message]:
    """What is committed. A partition is at its end when its position is: records that end transactions are not seen.

    `reached` is told where that was.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    from penstock.cli.connection import client_settings, explain, not_reachable

    settings = {
        "group.id": "penstock-cli", "enable.auto.commit": False, "enable.partition.eof": True,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,  # nothing is waited for but the end, which the broker tells when that time is over
    }  # fmt: skip
    consumer = Consumer(client_settings(connection.bootstrap, **settings))
    open_partitions = {partition for partition in starts if starts[partition] < ends[partition]}
    try:
        consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in sorted(open_partitions)])
        quiet_since = time.monotonic()
        while open_partitions:
            batch = consumer.consume(BATCH, 0.05)
            if batch:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > QUIET_S_MAX:
                raise not_reachable(connection.bootstrap, f"{topic} can't be read to its end")
            for message in batch:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition() or 0)
                    reached[message.partition() or 0] = message.offset() or 0
                elif not error.retriable():
                    raise explain(error, f"can't read {topic!r}", connection.bootstrap)
    finally:
        consumer.close()


def refuse_ordinary(topic: str) -> None:
    if not is_dead_letters(topic):
        raise Problem(
            f"{topic!r} is no topic of dead letters.",
            "Their names end in .dlq or -dead-letters; 'penstock dlq list' shows them. Use --any-topic if it is one.",
        )
