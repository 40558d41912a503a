"""What sinks have decided, as it is read: one durable record for each batch of a query, in a compacted topic.

    key                value
    {sink}             {"batch": 7, "run": ..., "job": ..., "topic": "out", "prefix": "sink/run/", "topics": ["out"],
                        "transactions": [["0.3.0", producer id, epoch, index of its topic, partition, offset], ...]}
    {sink}#done        {"batch": 7, "run": ..., "job": ...}
    #claim             of whoever has claimed last, and only a place in the log

Once a decision is there, its transactions are to be committed, by whoever comes next. What was not written by a sink,
and can't be read, is nobody's decision and is passed over.
"""

from __future__ import annotations

import json
import logging
import os.path
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, TopicPartition
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transactions import Identity, Prepared
from penstock.protocol.record_batch import Record, read_records

TOPIC = "__penstock_decisions"
PLACE = TopicPartition(TOPIC, 0)
STABLE_S_MAX = 60.0  # for somebody else's decision, which may hang as long as its transaction lasts
DECISION_BYTES_MAX = 64 << 20
DONE = "#done"
CLAIM = "#claim"

log = logging.getLogger(__name__)


class Write(NamedTuple):
    """Which of the writes of a batch it was: the run of the query, and the job of that run."""

    run: str
    job: str


@dataclass(frozen=True, slots=True)
class Decision:
    sink: str
    batch: int
    write: Write
    topic: str | None  # of the sink's option: a query that was copied may write to another
    transactions: tuple[Prepared, ...]
    timestamp_ms: int = 0
    done_by: Write | None = None  # whoever has seen its transactions committed


def read_all(brokers: Brokers, stop: int | None = None, sink: str | None = None) -> dict[str, Decision]:
    """The newest decision of each sink, up to an offset that must be reached, or as far as all is committed now.

    Raises if the decision of that one sink can't be read.
    """
    if stop is None:
        stop = brokers.offsets({PLACE: LATEST}).get(PLACE, 0)
    _wait_until_stable(brokers, stop)
    start = brokers.offsets({PLACE: EARLIEST}).get(PLACE, 0)
    newest: dict[bytes, Record] = {}
    for batch in RangeFetcher(brokers, OffsetRange(PLACE, start, stop)).batches():
        for record in read_records(batch, DECISION_BYTES_MAX, check_crc=True, compacted=True):
            newest[record.key or b""] = record
    found = {}
    for key, record in newest.items():
        if record.value is None or key == CLAIM.encode() or key.endswith(DONE.encode()):
            continue
        try:
            decision = _decision(key.decode(), record, newest.get(key + DONE.encode()))
            found[decision.sink] = decision
        except (ValueError, KeyError, TypeError, IndexError) as error:
            problem = f"the record at offset {record.offset} of {TOPIC} is no decision: {error!r}"
            if sink is not None and key == sink.encode():
                raise PipelineError(problem) from error
            log.warning("%s; it is passed over", problem)
    return found


def _wait_until_stable(brokers: Brokers, stop: int) -> None:
    """Until nothing is open that was written before: a decision that can't be seen yet would be taken twice. A leader
    that was replaced, and does not know it, never comes so far."""
    deadline = time.monotonic() + STABLE_S_MAX
    while brokers.offsets({PLACE: LATEST}).get(PLACE, 0) < stop:
        if time.monotonic() > deadline:
            raise PipelineError(
                f"{TOPIC} can't be read up to offset {stop}: a transaction in it stays open ('penstock txn list' shows "
                "whose it is), or its leader was replaced"
            )
        time.sleep(0.02)


# ---- values


def decision_value(batch: int, write: Write, topic: str | None, transactions: Iterable[Prepared]) -> bytes:
    """What names have in common is there once: there may be tens of thousands of them."""
    listed = list(transactions)
    prefix = os.path.commonprefix([each.transactional_id for each in listed])  # noqa: RUF071  character by character
    topics = sorted({each.place.topic for each in listed})
    value = {
        "batch": batch,
        **write._asdict(),
        "topic": topic,
        "prefix": prefix,
        "topics": topics,
        "transactions": [
            [
                each.transactional_id[len(prefix) :],
                *each.identity,
                topics.index(each.place.topic),
                each.place.partition,
                each.offset,
            ]
            for each in listed
        ],
    }
    return json.dumps(value, separators=(",", ":")).encode()


def done_value(batch: int, write: Write) -> bytes:
    return json.dumps({"batch": batch, **write._asdict()}, separators=(",", ":")).encode()


def _decision(sink: str, record: Record, done: Record | None) -> Decision:
    value = json.loads(record.value or b"")
    prefix, topics = str(value["prefix"]), [str(each) for each in value["topics"]]
    transactions = tuple(
        Prepared(
            prefix + name,
            Identity(int(producer_id), int(epoch)),
            TopicPartition(topics[topic], int(partition)),
            int(offset),
        )
        for name, producer_id, epoch, topic, partition, offset in value["transactions"]
    )
    batch = int(value["batch"])
    done_by = None
    if done is not None and done.value is not None:
        ended = json.loads(done.value)
        done_by = _write(ended) if int(ended["batch"]) >= batch else None
    return Decision(sink, batch, _write(value), value["topic"], transactions, record.timestamp_ms, done_by)


def _write(value: Any) -> Write:
    return Write(str(value["run"]), str(value["job"]))
