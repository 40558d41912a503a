"""Dead letters as a topic holds them: the letters, and the marks of those that are done.

A mark is a record with the header `penstock.redriven` or `penstock.purged`, whose value is the partition and offset of
a letter before it in the same partition. Only what is committed is read, so a mark says that its deed was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.dlq.shelf import Letter, Place, Shelf, Slot

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.cli.connection import Connection

SUFFIXES = (".dlq", "-dead-letters")  # of handlers, and of pipelines
REDRIVEN = "penstock.redriven"
PURGED = "penstock.purged"
ERROR = "penstock.error"  # our headers begin with it, behind the user's
QUIET_S_MAX = 30.0
BATCH = 1_000


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


def is_letter(message: Message) -> bool:
    """And no message that only waits in a retry topic."""
    return letter_of(message).is_ours


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

    letters: list[Slot]  # the oldest first
    shelf: Shelf
    done: dict[Place, str]
    total: int  # letters, wanted or not, done or not
    strangers: int  # of these, what does not say that it is one
    open: dict[Place, int]  # letters that are not done, wanted or not, and when each failed
    starts: dict[int, int]
    ends: dict[int, int]
    reached: dict[int, int]  # to where each partition was read: not beyond the first transaction that is still open

    def first_open(self, partition: int, but: Collection[Place] = ()) -> int:
        """The offset of the first letter that is not done, or from where on nobody has seen what there is."""
        offsets = (place[1] for place in self.open if place[0] == partition and place not in but)
        return min(offsets, default=self.reached[partition])


def read(
    connection: Connection,
    topic: str,
    wanted: Callable[[Letter], bool],
    progress: Callable[[int, int], None] = lambda done, total: None,
    keep_done: bool = False,
    open_s_max: float = 0.0,
) -> Held:
    """Everything from the start to the end of the topic, as it is now, but what is behind an open transaction.

    One that is open is waited for as long as `open_s_max`; then `reached` is before the end.
    """
    keys = connection.partitions(topic)
    starts = {key[1]: offset for key, offset in connection.starts(keys).items()}
    ends = {key[1]: offset for key, offset in connection.ends(keys).items()}
    shelf = Shelf()
    letters: dict[Place, Slot] = {}
    still_open: dict[Place, int] = {}
    done: dict[Place, str] = {}
    total = strangers = seen = 0
    records = sum(ends.values()) - sum(starts.values())
    reached = dict(starts)
    for message in _messages(connection, topic, starts, ends, reached, open_s_max):
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
        strangers += not letter.is_ours
        still_open[letter.place] = letter.failed_at_ms
        if wanted(letter):
            letters[letter.place] = shelf.put(letter)
    progress(records, records)
    return Held(sorted(letters.values()), shelf, done, total, strangers, still_open, starts, ends, reached)


def _messages(
    connection: Connection,
    topic: str,
    starts: dict[int, int],
    ends: dict[int, int],
    reached: dict[int, int],
    open_s_max: float,
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
        "queued.max.messages.kbytes": 16 * 1024, "fetch.queue.backoff.ms": 10,  # what is read ahead, of large letters
    }  # fmt: skip
    consumer = Consumer(client_settings(connection.bootstrap, **settings))
    open_partitions = {partition for partition in starts if starts[partition] < ends[partition]}
    try:
        consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in sorted(open_partitions)])
        quiet_since = time.monotonic()
        held_up: set[int] = set()  # by transactions
        while open_partitions:
            batch = consumer.consume(BATCH, 0.05)
            quiet_s = time.monotonic() - quiet_since
            if batch:
                quiet_since = time.monotonic()
            elif held_up == open_partitions and quiet_s > open_s_max:
                return
            elif quiet_s > max(QUIET_S_MAX, open_s_max):
                raise not_reachable(connection.bootstrap, f"{topic} can't be read to its end")
            for message in batch:
                error = message.error()
                partition = message.partition() or 0
                if error is None:
                    held_up.discard(partition)
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached[partition] = message.offset() or 0
                    if open_s_max and reached[partition] < ends[partition]:
                        held_up.add(partition)
                    else:
                        open_partitions.discard(partition)
                        held_up.discard(partition)
                elif not error.retriable():
                    raise explain(error, f"can't read {topic!r}", connection.bootstrap)
    finally:
        consumer.close()
