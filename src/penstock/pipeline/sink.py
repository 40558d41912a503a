"""Rows to topics: batch and streaming writes of `format("penstock")`.

    a task       begins a transaction under a name of its own, writes its rows, and reports it prepared
    the driver   claims the sink, decides (one record), commits every transaction that it decided for

Tasks never end a transaction and never abort one: they can't know whether it was decided. A transaction that waits has
no time-out, so a driver may be away for as long as it likes; the next one finds the decision, or none, and ends what
was left open.
"""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.pipeline import transactions
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.columns import RowEncoder
from penstock.pipeline.decisions import Decision, Decisions, read_all
from penstock.pipeline.options import WriteOptions
from penstock.pipeline.problem import Fenced, OptionError, PipelineError
from penstock.pipeline.producing import Producer
from penstock.pipeline.source import HEADERS
from penstock.pipeline.transactions import Prepared

if TYPE_CHECKING:
    import pyarrow

PREFIX = "penstock-sink-"
BUFFERED_MAX = 32 << 20  # bytes of encoded rows in one task
SEND_BYTES = 900_000  # a partition's rows are sent as soon as they fill a batch
STALE_MS = 60_000  # decisions of others that are older and not done are nobody's any more


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task reports to the driver."""

    sink: str
    prepared: Prepared | None
    rows: int
    attempt: int


class Rows:
    """The part that batch and streaming writers have in common: what tasks do, and what the driver does about it."""

    def __init__(self, options: WriteOptions, job: str) -> None:
        self._options = options
        self._job = job  # the sink's name, where Spark has none for it

    @property
    def _is_of_query(self) -> bool:
        """Whether what is written comes again under the same number if the query is started again."""
        raise NotImplementedError

    # ---- the tasks'

    def _sink(self, query: str | None) -> str:
        if not self._is_of_query:
            return self._job
        if not query:
            raise OptionError("option 'batchId' is for writes inside foreachBatch, and this is none")
        if self._options.batch is None:
            return PREFIX + query
        # Several writes of one batch may go to topics of their own, and each has a decision of its own.
        return f"{PREFIX}{query}-{zlib.crc32((self._options.topic or '').encode()):08x}"

    def write(self, rows: Iterator[pyarrow.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        sink = self._sink(context.getLocalProperty("sql.streaming.queryId"))
        with Brokers(self._options.client) as brokers:
            if not self._options.exactly_once:
                producer = self._producer(brokers, transactions.init_idempotent(brokers), None)
                self._send(brokers, producer, rows)
                return Written(sink, None, producer.rows, context.attemptNumber())
            run = context.getLocalProperty("spark.jobGroup.id") or "0"  # of a query, the id of its run
            name = f"{sink}.{run}.{context.partitionId()}.{context.attemptNumber()}"
            identity, ongoing = transactions.init_two_phase(brokers, name, keep_prepared=True)
            if ongoing != transactions.NOBODY:
                raise PipelineError(f"transaction {name} waits for its decision; another attempt takes another name")
            producer = self._producer(brokers, identity, name)
            self._send(brokers, producer, rows)
            prepared = Prepared(name, identity) if producer.rows else None
            return Written(sink, prepared, producer.rows, context.attemptNumber())

    def _producer(self, brokers: Brokers, identity: transactions.Identity, name: str | None) -> Producer:
        options = self._options
        return Producer(
            brokers, identity, transactional_id=name, acks=options.acks, compression=options.compression
        )  # fmt: skip

    def _send(self, brokers: Brokers, producer: Producer, rows: Iterator[pyarrow.RecordBatch]) -> None:
        encoder = RowEncoder(self._options.topic, _PartitionCounts(brokers), now_ms=lambda: int(time.time() * 1000))
        for batch in rows:
            encoder.add(batch)
            buffered = list(encoder.buffered())
            everything = sum(size for _, size in buffered) > BUFFERED_MAX
            for (topic, partition), size in buffered:
                if everything or size >= SEND_BYTES:
                    _drain(encoder, producer, topic, partition)
        for (topic, partition), _ in list(encoder.buffered()):
            _drain(encoder, producer, topic, partition)
        producer.flush()

    # ---- the driver's

    def commit_batch(self, messages: list[Written | None], batch: int, *, streaming: bool) -> None:
        written = [each for each in messages if each is not None]
        if not self._options.exactly_once or not written:
            return
        prepared = tuple(each.prepared for each in written if each.prepared is not None)
        if not prepared and not streaming:
            return
        with Brokers(self._options.client) as brokers:
            sink = written[0].sink
            decisions = Decisions(brokers, sink)
            known = decisions.claim()
            self._finish_others(brokers, known, sink)
            mine = known.get(sink)
            if mine is not None:
                self._roll_forward(brokers, decisions, mine)
            if mine is not None and mine.batch >= batch:
                if set(prepared) != set(mine.transactions):
                    _abandon(brokers, [each.transactional_id for each in prepared])
                if mine.batch > batch:
                    raise Fenced(f"batch {batch}: another run of the query has decided batch {mine.batch} already")
            elif prepared:
                mine = decisions.decide(batch, prepared)
                self._roll_forward(brokers, decisions, mine)
            # What no decision names was left by attempts that failed, or by a run that died.
            _abandon(brokers, transactions.open_under(brokers, sink + "."))
            if not streaming:
                decisions.forget()

    def _roll_forward(self, brokers: Brokers, decisions: Decisions, decision: Decision) -> None:
        if decision.done:
            return
        for each in decision.transactions:
            transactions.roll_forward(brokers, each)
        decisions.done(decision.batch)

    def _finish_others(self, brokers: Brokers, known: dict[str, Decision], sink: str) -> None:
        """Decisions whose drivers did not come back: what was decided is to be seen."""
        now_ms = time.time() * 1000
        for name, decision in known.items():
            if name != sink and not decision.done and now_ms - decision.timestamp_ms > STALE_MS:
                self._roll_forward(brokers, Decisions(brokers, name), decision)

    def abort_batch(self, messages: list[Written | None], batch: int) -> None:
        """Spark calls it after a failed commit too: what was decided stays decided."""
        names = [each.prepared for each in messages if each is not None and each.prepared is not None]
        if not self._options.exactly_once or not names:
            return
        with Brokers(self._options.client) as brokers:
            decided = {each for decision in read_all(brokers).values() for each in decision.transactions}
            _abandon(brokers, [each.transactional_id for each in names if each not in decided])


TEXT = (StringType, BinaryType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT,
    "value": TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, TimestampNTZType),
}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Told before the job starts."""
    types = {each.name: each.dataType for each in schema}
    if "value" not in types:
        raise OptionError("rows for a topic need a column 'value'")
    if "topic" not in types and options.topic is None:
        raise OptionError("rows need a column 'topic', or the sink an option 'topic'")
    for name, kind in types.items():
        if name not in COLUMNS:
            raise OptionError(f"column {name!r} is none of {', '.join(COLUMNS)}")
        expected = kind == HEADERS if name == "headers" else isinstance(kind, COLUMNS[name])
        if not expected:
            wanted = (
                HEADERS.simpleString()
                if name == "headers"
                else " or ".join(each().simpleString() for each in COLUMNS[name])
            )
            raise OptionError(f"column {name!r} is {kind.simpleString()}, and must be {wanted}")


class StreamWriter(Rows, DataSourceStreamArrowWriter):
    _is_of_query = True

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.commit_batch(messages, batchId, streaming=True)  # type: ignore[arg-type]

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.abort_batch(messages, batchId)  # type: ignore[arg-type]


class BatchWriter(Rows, DataSourceArrowWriter):
    """In foreachBatch a write may say which batch it is: then it is the query's, and decided once as a stream's is."""

    @property
    def _is_of_query(self) -> bool:
        return self._options.batch is not None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        batch = self._options.batch
        self.commit_batch(messages, batch or 0, streaming=batch is not None)  # type: ignore[arg-type]

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.abort_batch(messages, 0)  # type: ignore[arg-type]


def new_job() -> str:
    return f"{PREFIX}{uuid.uuid4()}"


class _PartitionCounts:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        if topic not in self._known:
            found = self._brokers.topics([topic])
            if topic not in found:
                raise PipelineError(f"there is no topic {topic!r} to write to; create it first")
            self._known[topic] = len(found[topic].leaders)
        return self._known[topic]


def _drain(encoder: RowEncoder, producer: Producer, topic: str, partition: int) -> None:
    while (encoded := encoder.take(topic, partition)) is not None:
        producer.send(encoded)


def _abandon(brokers: Brokers, names: list[str]) -> None:
    for name in names:
        transactions.abandon(brokers, name)
