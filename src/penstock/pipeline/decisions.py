"""What a sink has decided: one durable record for each batch of a query, in a compacted topic.

    key                value
    {sink}             {"batch": 7, "transactions": [["name", producer id, epoch], ...]}
    {sink}#done        {"batch": 7}

A decision is written in a transaction under the sink's own name, so that of two drivers that decide at the same time
one is fenced by the coordinator, and its decision is not there. Once it is there, its transactions are to be committed,
by whoever comes next. That they were is written without a transaction, and under a key of its own: a driver that was
away for long must not write over a later decision.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from penstock.pipeline.brokers import EARLIEST, LATEST, Brokers, TopicPartition
from penstock.pipeline.columns import Encoded
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.producing import Producer
from penstock.pipeline.transactions import Identity, Prepared, end, init_idempotent, init_transactional
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.record_batch import HEADER_SIZE, Record, build_batch, read_records

TOPIC = "__penstock_decisions"
PLACE = TopicPartition(TOPIC, 0)
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}
TIMEOUT_MS = 10_000  # of the transaction that holds nothing but one decision
STABLE_S_MAX = 60.0  # for somebody else's decision, which may hang as long as its transaction lasts
DECISION_BYTES_MAX = 64 << 20
DONE = "#done"


@dataclass(frozen=True, slots=True)
class Decision:
    sink: str
    batch: int
    transactions: tuple[Prepared, ...]
    timestamp_ms: int
    done: bool


class Decisions:
    """Those of one sink, by the driver that claimed them last."""

    def __init__(self, brokers: Brokers, sink: str) -> None:
        self._brokers = brokers
        self._sink = sink
        self._identity: Identity | None = None

    def claim(self) -> dict[str, Decision]:
        """Fences every driver that claimed before; the newest decision of each sink, our own by its name."""
        ensure_topic(self._brokers)
        self._identity = init_transactional(self._brokers, self._sink, TIMEOUT_MS)
        return read_all(self._brokers)

    def decide(self, batch: int, transactions: tuple[Prepared, ...]) -> Decision:
        """Raises Fenced if another driver has claimed meanwhile; then nothing is decided."""
        assert self._identity is not None, "claimed before"
        listed = [[each.transactional_id, *each.identity] for each in transactions]
        value = json.dumps({"batch": batch, "transactions": listed}, separators=(",", ":"))
        producer = Producer(self._brokers, self._identity, transactional_id=self._sink)
        producer.send(_encoded(self._sink, value.encode()))
        producer.flush()
        end(self._brokers, self._sink, self._identity, commit=True)
        return Decision(self._sink, batch, transactions, _now_ms(), done=False)

    def done(self, batch: int) -> None:
        """Its transactions are committed."""
        _append(self._brokers, self._sink + DONE, json.dumps({"batch": batch}).encode())

    def forget(self) -> None:
        """For a job that never comes again."""
        for key in (self._sink, self._sink + DONE):
            _append(self._brokers, key, None)


def ensure_topic(brokers: Brokers) -> None:
    def attempt() -> None:
        if TOPIC in brokers.topics([TOPIC]):
            return
        connection = brokers.any()
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        answer = connection.ask(request, connection.newest(CreateTopicsRequest, 7)).topics[0]
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(ErrorCode(answer.error_code), f"topic {TOPIC}: {answer.error_message or ''}")

    brokers.until_answered(attempt, f"topic {TOPIC}")


def read_all(brokers: Brokers) -> dict[str, Decision]:
    """Waits until nothing is open that was written before: a decision that can't be seen yet would be taken twice."""
    stop = brokers.offsets({PLACE: LATEST}, committed=False)[PLACE]
    deadline = time.monotonic() + STABLE_S_MAX
    while brokers.offsets({PLACE: LATEST})[PLACE] < stop:
        if time.monotonic() > deadline:
            raise PipelineError(f"a transaction in {TOPIC} stays open; 'penstock txn list' shows whose it is")
        time.sleep(0.05)
    start = brokers.offsets({PLACE: EARLIEST})[PLACE]
    newest: dict[str, Record] = {}
    for batch in RangeFetcher(brokers, OffsetRange(PLACE, start, stop), fail_on_data_loss=False).batches():
        for record in read_records(batch, DECISION_BYTES_MAX, check_crc=True, compacted=True):
            newest[(record.key or b"").decode()] = record
    found = {}
    for key, record in newest.items():
        if not key.endswith(DONE) and record.value is not None:
            done = newest.get(key + DONE)
            found[key] = _read(key, record, done)
    return found


def _read(sink: str, record: Record, done: Record | None) -> Decision:
    try:
        value = json.loads(record.value or b"")
        listed = tuple(Prepared(name, Identity(*identity)) for name, *identity in value["transactions"])
        ended = done is not None and done.value is not None and json.loads(done.value)["batch"] >= value["batch"]
        return Decision(sink, value["batch"], listed, record.timestamp_ms, ended)
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"the record at offset {record.offset} of {TOPIC} is no decision: {error}") from error


def _append(brokers: Brokers, key: str, value: bytes | None) -> None:
    producer = Producer(brokers, init_idempotent(brokers))
    producer.send(_encoded(key, value))
    producer.flush()


def _encoded(key: str, value: bytes | None) -> Encoded:
    now_ms = _now_ms()
    records = build_batch([Record(0, now_ms, key.encode(), value)])[HEADER_SIZE:]
    return Encoded(*PLACE, records, 1, now_ms, now_ms)


def _now_ms() -> int:
    return int(time.time() * 1000)
