"""The final read: every partition from its beginning to its end, once with each isolation, after all has come to rest.

Transactions that are still open are waited for first: what they wrote can't be read before they have ended.
"""

from __future__ import annotations

import argparse
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.faults.load import PATIENT
from tests.history.events import READ_COMMITTED, READ_UNCOMMITTED, FinalRead
from tests.history.reader import READ_MAX, WAIT_S, place_of, read_event
from tests.history.writer import EventWriter, now

CALL_S = 10.0
REST_S = 0.2
LEVELS = {READ_COMMITTED: IsolationLevel.READ_COMMITTED, READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED}


def read_all(arguments: argparse.Namespace, events: EventWriter, deadline: float) -> int:
    """0 if everything could be read in time."""
    ends = _ends_at_rest(arguments, deadline)
    if ends is None:
        print("the ends of the partitions can't be learnt", file=sys.stderr)
        return 1
    for isolation in LEVELS:
        if not _read(arguments, events, isolation, ends[isolation], deadline):
            print(f"not all could be read with {isolation}", file=sys.stderr)
            return 1
    return 0


def _ends_at_rest(arguments: argparse.Namespace, deadline: float) -> dict[str, list[int]] | None:
    """Where each partition ends for each isolation, which is the same once no transaction is open. Transactions that
    never end are the judge's to find."""
    admin = AdminClient({"bootstrap.servers": arguments.bootstrap, **PATIENT})
    found = None
    while time.monotonic() < deadline:
        try:
            found = {isolation: _ends(admin, arguments, level) for isolation, level in LEVELS.items()}
        except KafkaException:
            pass
        if found is not None and found[READ_COMMITTED] == found[READ_UNCOMMITTED]:
            break
        if found is not None and time.monotonic() > deadline - arguments.patience_s / 2:
            break  # the rest is for reading
        time.sleep(REST_S)
    return found


def _ends(admin: AdminClient, arguments: argparse.Namespace, level: IsolationLevel) -> list[int]:
    asked = {TopicPartition(arguments.topic, number): OffsetSpec.latest() for number in range(arguments.partitions)}
    answers = admin.list_offsets(asked, isolation_level=level, request_timeout=CALL_S)
    ends = {partition.partition: future.result().offset for partition, future in answers.items()}
    return [ends[number] for number in range(arguments.partitions)]


def _read(arguments: argparse.Namespace, events: EventWriter, isolation: str, ends: list[int], deadline: float) -> bool:
    name = f"{arguments.name} ({isolation})"
    config = {"bootstrap.servers": arguments.bootstrap, "group.id": name, "enable.auto.commit": False}
    reading = {"isolation.level": isolation, "auto.offset.reset": "error", "enable.partition.eof": True}
    consumer = Consumer({**config, **reading, "fetch.wait.max.ms": 50, **PATIENT})
    consumer.assign([TopicPartition(arguments.topic, number, OFFSET_BEGINNING) for number in range(len(ends))])
    missing = {number for number, end in enumerate(ends) if end > 0}
    while missing and time.monotonic() < deadline:
        reads = []
        for message in consumer.consume(READ_MAX, WAIT_S):
            error = message.error()
            if error is None:
                reads.append(read_event(name, None, isolation, message))
            elif error.code() == KafkaError._PARTITION_EOF:
                _, partition, end = place_of(message)
                if end >= ends[partition]:
                    missing.discard(partition)
        events.write_all(reads)
    consumer.close()
    if missing:
        return False
    events.write(FinalRead(now(), name, arguments.topic, isolation, ends))
    return True
