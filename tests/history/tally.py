"""What the judge remembers of a history, whatever the order in which the files of the processes are read.

Only the events of one process need to be in their order; what depends on two processes is judged at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tests.history.events import (
    READ_COMMITTED,
    UNKNOWN,
    Acknowledged,
    Assigned,
    BadHistory,
    Began,
    Ended,
    Event,
    Failed,
    FinalRead,
    Message,
    Read,
    Sent,
    Trouble,
)


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Place(NamedTuple):
    partition: Partition
    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset} of {self.partition}"


class Sending:
    """All that is known of one message."""

    __slots__ = ("at", "place", "sent_to", "transaction", "was_read_committed", "was_taken")

    def __init__(self, at: float, sent_to: tuple[str, int | None], transaction: int | None) -> None:
        self.at = at
        self.sent_to = sent_to
        self.transaction = transaction
        self.place: Place | None = None  # where it was acknowledged
        self.was_taken = True  # by the client, so that it may have been written
        self.was_read_committed: str | None = None  # the first reader with read_committed that saw it


class Reading:
    """One reader of one partition: the offsets that it read, and where it began anew."""

    __slots__ = ("began_anew", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.began_anew: set[int] = set()  # places in the list


class Reader(NamedTuple):
    name: str
    group: str | None
    isolation: str


class Tally:
    def __init__(self) -> None:
        self.producers: dict[str, Began] = {}
        self.sendings: dict[Message, Sending] = {}
        self.outcomes: dict[tuple[str, int], str] = {}
        self.acknowledged_at: dict[Partition, list[float]] = defaultdict(list)
        self.sent_at: dict[Partition, tuple[float, float]] = {}  # the first and the last, where the partition is known
        self.failures: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.contents: dict[Place, Message] = {}
        self.witnesses: dict[Place, str] = {}  # who said first what stands there
        self.changed: list[str] = []
        self.readings: dict[tuple[Reader, Partition], Reading] = defaultdict(Reading)
        self.readers: dict[str, Reader] = {}
        self.final_reads: list[FinalRead] = []
        self.invented: list[str] = []
        self.reads = 0
        self._read_before_sent: dict[Message, list[Read]] = defaultdict(list)
        self._assigned: set[tuple[str, Partition]] = set()

    def take_all(self, events: Iterable[Event]) -> Tally:
        for event in events:
            self._take(event)
        return self

    def _take(self, event: Event) -> None:
        if isinstance(event, Read):
            self._read(event)
        elif isinstance(event, Sent):
            self._sent(event)
        elif isinstance(event, Acknowledged):
            self._acknowledged(event)
        elif isinstance(event, Began):
            if event.producer in self.producers:
                raise BadHistory(f"two producers go by the name of {event.producer}")
            self.producers[event.producer] = event
        elif isinstance(event, Ended):
            self.outcomes[event.producer, event.transaction] = event.outcome
        elif isinstance(event, Assigned):
            self._assigned.add((event.reader, Partition(event.topic, event.partition)))
        elif isinstance(event, FinalRead):
            self.final_reads.append(event)
        elif isinstance(event, Failed):
            self._failed(event)
        else:
            assert isinstance(event, Trouble)
            self.troubles[event.what] += 1

    def _sent(self, event: Sent) -> None:
        message = Message(event.producer, event.number)
        self.sendings[message] = Sending(event.at, (event.topic, event.partition), event.transaction)
        if event.partition is not None:
            partition = Partition(event.topic, event.partition)
            first, last = self.sent_at.get(partition, (event.at, event.at))
            self.sent_at[partition] = (min(first, event.at), max(last, event.at))
        for read in self._read_before_sent.pop(message, ()):
            self._match(message, read)

    def _failed(self, event: Failed) -> None:
        self.failures[event.why] += 1
        sending = self.sendings.get(Message(event.producer, event.number))
        if sending is not None and event.is_certain:
            sending.was_taken = False

    def _acknowledged(self, event: Acknowledged) -> None:
        partition = Partition(event.topic, event.partition)
        self.acknowledged_at[partition].append(event.at)
        message = Message(event.producer, event.number)
        place = Place(partition, event.offset)
        sending = self.sendings.get(message)
        if sending is None:
            self.invented.append(f"{message} was acknowledged, but never sent")
            return
        sending.place = place
        self._observe(place, message, f"the acknowledgement of {event.producer}")

    def _read(self, event: Read) -> None:
        self.reads += 1
        partition = Partition(event.topic, event.partition)
        message = Message(event.producer, event.number)
        self._observe(Place(partition, event.offset), message, event.reader)
        reader = self.readers.get(event.reader)
        if reader is None:
            reader = self.readers[event.reader] = Reader(event.reader, event.group, event.isolation)
        reading = self.readings[reader, partition]
        if (event.reader, partition) in self._assigned:
            self._assigned.discard((event.reader, partition))
            reading.began_anew.add(len(reading.offsets))
        reading.offsets.append(event.offset)
        if message in self.sendings:
            self._match(message, event)
        else:
            self._read_before_sent[message].append(event)

    def _match(self, message: Message, read: Read) -> None:
        sending = self.sendings[message]
        if read.isolation == READ_COMMITTED and sending.was_read_committed is None:
            sending.was_read_committed = f"{read.reader}, at offset {read.offset} of {read.topic}-{read.partition}"
        topic, partition = sending.sent_to
        if read.topic != topic or partition not in (None, read.partition):
            self.invented.append(
                f"{message} was sent to {topic}-{partition}, but read from {read.topic}-{read.partition}"
            )

    def _observe(self, place: Place, message: Message, witness: str) -> None:
        """One place holds one message, whoever looks and whenever."""
        known = self.contents.setdefault(place, message)
        if known is message:
            self.witnesses[place] = witness
        elif known != message:
            first = self.witnesses[place]
            self.changed.append(f"{place}: {known} according to {first}, {message} according to {witness}")

    # ---- at the end

    def never_sent(self) -> list[str]:
        return [
            f"{message} was read by {reads[0].reader} at offset {reads[0].offset} of {reads[0].topic}-"
            f"{reads[0].partition}, but nobody sent it"
            for message, reads in self._read_before_sent.items()
        ]

    def outcome(self, message: Message) -> str | None:
        """Of the transaction that the message belongs to; None if it belongs to none."""
        transaction = self.sendings[message].transaction
        return None if transaction is None else self.outcomes.get((message.producer, transaction), UNKNOWN)

    def is_idempotent(self, producer: str) -> bool:
        return producer in self.producers and self.producers[producer].idempotent

    def messages_of(self, final: FinalRead) -> dict[Partition, list[tuple[int, Message]]]:
        """What the final read found, in its order."""
        found = {}
        reader = self.readers.get(final.reader)
        for index in range(len(final.ends)):
            partition = Partition(final.topic, index)
            offsets = (
                self.readings[reader, partition].offsets if reader and (reader, partition) in self.readings else []
            )
            found[partition] = [(offset, self.contents[Place(partition, offset)]) for offset in offsets]
        return found
