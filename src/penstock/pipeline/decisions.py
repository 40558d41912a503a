"""What sinks have decided, as it is read: one durable record for each batch of a query, in a compacted topic.

    key                value
    {sink}             {"batch": 7, "run": ..., "job": ..., "topic": "out", "prefix": "sink/run/", "topics": ["out"],
                        "transactions": [["0.3.0", producer id, epoch, index of its topic, partition, offset], ...]}
    {sink}#done        {"batch": 7, "run": ..., "job": ...}
    {sink}#stuck       {"batch": 7, "tried_ms": ..., "why": ...} of whoever could not commit what another has decided
    #claim             of whoever has claimed last, and only a place in the log

Once a decision is there, its transactions are to be committed, by whoever comes next. What was not written by a sink,
and can't be read, is nobody's decision and is passed over. A decision that is done is read without its transactions.
"""

from __future__ import annotations

import json
import logging
import os.path
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, TopicPartition
from penstock.pipeline.decisions_read import Known, ReadDecisions, opened
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transactions import Identity, Prepared
from penstock.protocol.record_batch import Record, read_records

TOPIC = "__penstock_decisions"
PLACE = TopicPartition(TOPIC, 0)
STABLE_S_MAX = 60.0  # for somebody else's decision, which may hang as long as its transaction lasts
DECISION_BYTES_MAX = 64 << 20

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
    tried_ms: int | None = None  # when somebody else last tried to commit them, in vain


def read_all(brokers: Brokers) -> dict[str, Decision]:
    """The newest decision of each sink, as far as all is committed now."""
    stop = brokers.offsets({PLACE: LATEST}).get(PLACE, 0)
    with opened(b"") as known:
        known.add(0, _newest(brokers, 0, stop), stop)
        return _decisions(known.all())


def read_for(brokers: Brokers, sink: str, stop: int) -> dict[str, Decision]:
    """The newest decision of a sink, and of all others that are not done, up to an offset that must be reached.

    Raises if the decision of that one sink can't be read.
    """
    end = _wait_until_stable(brokers, stop)
    topic = brokers.topics([TOPIC]).get(TOPIC)
    try:
        with opened(topic.topic_id if topic is not None else b"") as known:
            return _decisions(_read_on(brokers, known, stop, end).of(sink), sink)
    except (sqlite3.Error, OSError, RuntimeError) as error:  # nor is there always a home
        log.info("what was read of decisions could not be kept: %s", error)
        with opened(b"") as known:
            return _decisions(_read_on(brokers, known, stop, end).of(sink), sink)


def _read_on(brokers: Brokers, known: ReadDecisions, stop: int, end: int) -> ReadDecisions:
    while (start := known.stop(end)) < stop:  # somebody else may have read on meanwhile
        known.add(start, _newest(brokers, start, stop), stop)
    return known


def _newest(brokers: Brokers, start: int, stop: int) -> dict[bytes, Record]:
    first = max(start, brokers.offsets({PLACE: EARLIEST}).get(PLACE, 0))
    return {
        record.key or b"": record
        for batch in RangeFetcher(brokers, OffsetRange(PLACE, first, stop)).batches()
        for record in read_records(batch, DECISION_BYTES_MAX, check_crc=True, compacted=True)
        if record.offset >= start
    }


def _decisions(known: Iterable[Known], sink: str | None = None) -> dict[str, Decision]:
    found = {}
    for each in known:
        if each.decision is None:
            continue
        try:
            found[each.sink] = _decision(each)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            problem = f"the record at offset {each.offset} of {TOPIC} is no decision: {error!r}"
            if each.sink == sink:
                raise PipelineError(problem) from error
            log.warning("%s; it is passed over", problem)
    return found


def _wait_until_stable(brokers: Brokers, stop: int) -> int:
    """Until nothing is open that was written before: a decision that can't be seen yet would be taken twice. A leader
    that was replaced, and does not know it, never comes so far. Returns up to where all is committed."""
    deadline = time.monotonic() + STABLE_S_MAX
    while (end := brokers.offsets({PLACE: LATEST}).get(PLACE, 0)) < stop:
        if time.monotonic() > deadline:
            raise PipelineError(
                f"{TOPIC} can't be read up to offset {stop}: a transaction in it stays open ('penstock txn list' shows "
                "whose it is), or its leader was replaced"
            )
        time.sleep(0.02)
    return end


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


def stuck_value(batch: int, now_ms: int, why: str) -> bytes:
    return json.dumps({"batch": batch, "tried_ms": now_ms, "why": why}, separators=(",", ":")).encode()


def _decision(known: Known) -> Decision:
    value = json.loads(known.decision or b"")
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
    done, stuck = (json.loads(each) if each is not None else None for each in (known.done, known.stuck))
    return Decision(
        known.sink,
        batch,
        _write(value),
        value["topic"],
        transactions,
        known.timestamp_ms,
        done_by=_write(done) if done is not None and int(done["batch"]) >= batch else None,
        tried_ms=int(stuck["tried_ms"]) if stuck is not None and int(stuck["batch"]) == batch else None,
    )


def _write(value: Any) -> Write:
    return Write(str(value["run"]), str(value["job"]))
