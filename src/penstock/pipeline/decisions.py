"""What sinks have decided, as it is read: one durable record for each batch of a query, in a compacted topic.

    key                value
    {sink}             {"batch": 7, "run": ..., "job": ..., "topic": "out", "prefix": "sink/run/", "topics": ["out"],
                        "transactions": [["0.3.0", producer id, epoch, index of its topic, partition, offset], ...]}
    {sink}#done        {"batch": 7, "run": ..., "job": ...}
    {sink}#stuck       {"batch": 7, "tried_ms": ..., "why": ...} of whoever could not commit what another has decided
    #claim             of whoever has claimed last, and only a place in the log

Once a decision is there, its transactions are to be committed, by whoever comes next. What was not written by a sink,
and can't be read, is nobody's decision and is passed over.

The topic is read from its beginning each time: whatever was kept of it elsewhere could be older than what it holds. Of
what others have done already, which is nearly all of it, no more is looked at than the number at the beginning of a
value. A decision that is done is read without its transactions.
"""

from __future__ import annotations

import json
import logging
import os.path
import re
import time
from collections.abc import Iterable, Mapping
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
STUCK = "#stuck"
CLAIM = "#claim"
BATCH = re.compile(rb'\{"batch":(0|[1-9][0-9]{0,17})[,}]')  # as sinks begin their values
NAME_BYTES_MAX = 0x7FFF  # of what can be asked about
UNREADABLE = (ValueError, LookupError, TypeError, OverflowError, RecursionError)  # what JSON of anybody's can lead to

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
    newest = _newest(brokers, brokers.offsets({PLACE: LATEST}).get(PLACE, 0))
    return _decisions(_by_sink(newest))


def read_for(brokers: Brokers, sink: str, stop: int) -> dict[str, Decision]:
    """The newest decision of a sink, and of all others that are not done, up to an offset that must be reached.

    Raises if the decision of that one sink can't be read.
    """
    _wait_until_stable(brokers, stop)
    known = _by_sink(_newest(brokers, stop))
    own = sink.encode()
    return _decisions({key: each for key, each in known.items() if key == own or not _is_done(each)}, own)


class Known(NamedTuple):
    """The newest records of one sink."""

    decision: Record
    done: Record | None
    stuck: Record | None


def _newest(brokers: Brokers, stop: int) -> dict[bytes, Record]:
    """By key, without those that were deleted."""
    start = brokers.offsets({PLACE: EARLIEST}).get(PLACE, 0)
    newest = {
        record.key or b"": record
        for batch in RangeFetcher(brokers, OffsetRange(PLACE, start, stop)).batches()
        for record in read_records(batch, DECISION_BYTES_MAX, check_crc=True, compacted=True)
    }
    return {key: record for key, record in newest.items() if record.value is not None}


def _by_sink(newest: Mapping[bytes, Record]) -> dict[bytes, Known]:
    done, stuck, claim = DONE.encode(), STUCK.encode(), CLAIM.encode()
    return {
        key: Known(record, newest.get(key + done), newest.get(key + stuck))
        for key, record in newest.items()
        if key != claim and not key.endswith((done, stuck))
    }


def _is_done(known: Known) -> bool:
    """What can't be read is not, for whoever looks at it to tell."""
    try:
        return known.done is not None and _batch(known.done) >= _batch(known.decision)
    except UNREADABLE:
        return False


def _batch(record: Record) -> int:
    value = record.value or b""
    found = BATCH.match(value)
    return int(found[1] if found is not None else json.loads(value)["batch"])


def _decisions(known: Mapping[bytes, Known], own: bytes | None = None) -> dict[str, Decision]:
    found = {}
    for key, each in known.items():
        try:
            sink = key.decode()
            found[sink] = _decision(sink, each)
        except UNREADABLE as error:
            noted = f", or the one at offset {each.done.offset} does not say what is done" if each.done else ""
            problem = f"the record at offset {each.decision.offset} of {TOPIC} is no decision{noted}: {error!r:.200}"
            if key == own:
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


def stuck_value(batch: int, now_ms: int, why: str) -> bytes:
    return json.dumps({"batch": batch, "tried_ms": now_ms, "why": why}, separators=(",", ":")).encode()


def _decision(sink: str, known: Known) -> Decision:
    value = json.loads(known.decision.value or b"")
    batch = _number(value["batch"], 64)
    done = json.loads(known.done.value or b"") if known.done is not None else None
    is_done = done is not None and int(done["batch"]) >= batch
    return Decision(
        sink,
        batch,
        _write(value),
        value["topic"],
        () if is_done else _transactions(value),
        known.decision.timestamp_ms,
        done_by=_write(done) if is_done else None,
        tried_ms=_tried_ms(known.stuck, batch),
    )


def _tried_ms(stuck: Record | None, batch: int) -> int | None:
    """None for a note that can't be read: then it is tried, and noted anew."""
    if stuck is None:
        return None
    try:
        value = json.loads(stuck.value or b"")
        return _number(value["tried_ms"], 64) if int(value["batch"]) == batch else None
    except UNREADABLE:
        return None


def _transactions(value: Any) -> tuple[Prepared, ...]:
    """Nothing that could not be sent in a request is taken: whoever rolls it forward would fail, and its own batch is
    another one."""
    prefix, topics = str(value["prefix"]), [_name(str(each)) for each in value["topics"]]
    return tuple(
        Prepared(
            _name(prefix + name),
            Identity(_number(producer_id, 64), _number(epoch, 16)),
            TopicPartition(topics[topic], _number(partition, 32)),
            _number(offset, 64),
        )
        for name, producer_id, epoch, topic, partition, offset in value["transactions"]
    )


def _number(value: Any, bits: int) -> int:
    number = int(value)
    if number.bit_length() >= bits:
        raise ValueError(f"a number is longer than {bits} bits")
    return number


def _name(text: str) -> str:
    if len(text.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"a name is longer than {NAME_BYTES_MAX} bytes")
    return text


def _write(value: Any) -> Write:
    return Write(str(value["run"]), str(value["job"]))
