"""Rows to topics: batch and streaming writes of `format("penstock")`.

    a task       begins a transaction under a name of its own, writes its rows, and reports it prepared
    the driver   decides for all that were reported (deciding.py), and commits them

A task ends its transaction only if it fails, and so has not reported it: then nobody can have decided it. What waits
has no time-out, so a driver may be away for as long as it likes; the next one finds the decision, or none, and ends
what was left open.

    name of      built of                        such as
    a sink       the query (topic, writeId)      penstock-sink-{query id}, penstock-sink-{query id}:orders:audit
                 or, without a query, the job    penstock-sink-{job}
    a task's     its sink, the run (or the job)  penstock-sink-{query id}/{run}/3.1
                 its partition and attempt       (and the id of the attempt behind it, if that is taken)
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
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
    TimestampType,
)

from penstock.pipeline import deciding, transactions
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.deciding import Claim
from penstock.pipeline.decisions import Decision, Write
from penstock.pipeline.options import WriteOptions
from penstock.pipeline.problem import Fenced, OptionError, PipelineError
from penstock.pipeline.producing import Producer
from penstock.pipeline.sealing import BATCH_BYTES_MAX, Encoded, seal
from penstock.pipeline.settling import settle
from penstock.pipeline.source import HEADERS
from penstock.pipeline.topics import MESSAGE_BYTES_MAX, message_bytes_max
from penstock.pipeline.transactions import NOBODY, Identity, Prepared
from penstock.protocol.errors import ApiError
from penstock.protocol.record_batch import HEADER_SIZE

if TYPE_CHECKING:
    import pyarrow

    from penstock.pipeline.columns import RowEncoder

PREFIX = "penstock-sink-"
BUFFERED_MAX = 32 << 20  # bytes of encoded rows in one task
SEND_BYTES = 900_000  # a partition's rows are sent as soon as they fill a batch
STALE_MS = 60_000  # decisions of others that are older and not done are nobody's any more
TRY_AGAIN_MS = 600_000  # after which others try once more what could not be finished
ABORT_PATIENCE_S = 5.0  # of a task that fails anyway

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task reports to the driver."""

    sink: str
    run: str
    prepared: Prepared | None


class Rows:
    """The part that batch and streaming writers have in common: what tasks do, and what the driver does about it."""

    def __init__(self, options: WriteOptions, job: str) -> None:
        self._options = options
        self._job = job  # of a batch the same for its tasks and its driver

    @property
    def _is_of_query(self) -> bool:
        """Whether what is written comes again under the same number if the query is started again."""
        raise NotImplementedError

    # ---- the tasks'

    def _sink(self, query: str | None) -> str:
        if not self._is_of_query:
            return PREFIX + self._job
        if not query:
            raise OptionError("option 'batchId' is for writes inside foreachBatch, and this is none")
        if self._options.batch is None:
            return PREFIX + query
        # Several writes of one batch have a decision each. No topic, and no writeId, has a colon in it.
        parts = [query, self._options.topic or "", *([self._options.write] if self._options.write else [])]
        return PREFIX + ":".join(parts)

    def _run(self, group: str | None) -> str:
        """Spark names the group of a query's jobs after its run, and tells a task nothing else of it."""
        if not self._is_of_query:
            return self._job
        try:
            return str(uuid.UUID(group or ""))
        except ValueError:
            raise OptionError(
                f"jobs of the query have the group {group!r}; it must stay as Spark has set it, for writes with "
                "delivery exactly-once: it tells one run of the query from another"
            ) from None

    def write(self, rows: Iterator[pyarrow.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        sink = self._sink(context.getLocalProperty("sql.streaming.queryId"))
        if not self._options.exactly_once:
            with Brokers(self._options.client) as brokers:
                self._send(brokers, self._producer(brokers, transactions.init_idempotent(brokers), None), rows)
            return Written(sink, "", None)
        run = self._run(context.getLocalProperty("spark.jobGroup.id"))
        name = f"{sink}/{run}/{context.partitionId()}.{context.attemptNumber()}"
        return Written(sink, run, self._prepare(name, str(context.taskAttemptId()), rows))

    def _prepare(self, name: str, attempt: str, rows: Iterator[pyarrow.RecordBatch]) -> Prepared | None:
        """Writes the rows in a transaction of that name, and leaves it open; None if there are no rows."""
        with Brokers(self._options.client) as brokers:
            name, identity, ongoing = transactions.take_over(brokers, name)
            if ongoing != NOBODY:
                # Spark counts attempts anew when it starts a stage again, and an older one has written under the name.
                name, identity, ongoing = transactions.take_over(brokers, f"{name}.{attempt}")
            if ongoing != NOBODY:
                raise PipelineError(f"transaction {name} waits for its decision; another attempt takes another name")
            prepared = None
            try:
                producer = self._producer(brokers, identity, name)
                self._send(brokers, producer, rows)
                self._check_awaited(brokers)
                prepared = Prepared(name, identity, *producer.first) if producer.first is not None else None
            finally:
                if prepared is None:
                    self._give_up(name, identity)
            return prepared

    def _check_awaited(self, brokers: Brokers) -> None:
        """The driver of a job claims it when it is over, and then ends what is open. Who writes after that is found by
        nobody; a query comes again, and finds it."""
        if not self._is_of_query and transactions.described(brokers, PREFIX + self._job) is not None:
            raise PipelineError(f"job {self._job} is over, and this attempt of a task comes too late")

    def _give_up(self, name: str, identity: Identity) -> None:
        """As well as it can be done: what stays open is ended by the driver, or by the next one."""
        settings = replace(self._options.client, patience_s=ABORT_PATIENCE_S)
        with suppress(PipelineError, ApiError, OSError), Brokers(settings) as brokers:
            transactions.end(brokers, name, identity, commit=False)

    def _producer(self, brokers: Brokers, identity: Identity, name: str | None) -> Producer:
        options = self._options
        return Producer(
            brokers, identity, transactional_id=name, acks=options.acks, compression=options.compression
        )  # fmt: skip

    def _send(self, brokers: Brokers, producer: Producer, rows: Iterator[pyarrow.RecordBatch]) -> None:
        from penstock.pipeline.columns import RowEncoder  # with Arrow, which a driver that commits can do without

        settle()
        topics = _Topics(brokers, self._options)
        encoder = RowEncoder(
            self._options.topic,
            topics.partition_count,
            now_ms=lambda: int(time.time() * 1000),
            batch_bytes_of=topics.batch_bytes,
        )
        for batch in rows:
            encoder.add(batch)
            buffered = list(encoder.buffered())
            everything = sum(size for _, size in buffered) > BUFFERED_MAX
            for (topic, partition), size in buffered:
                if everything or size >= SEND_BYTES:
                    _drain(encoder, producer, topics, topic, partition)
        for (topic, partition), _ in list(encoder.buffered()):
            _drain(encoder, producer, topics, topic, partition)
        producer.flush()

    # ---- the driver's

    def commit_batch(self, messages: list[Written | None], batch: int) -> None:
        written = [each for each in messages if each is not None]
        if not self._options.exactly_once or not written:
            return
        sink, write = written[0].sink, Write(written[0].run, self._job)
        prepared = tuple(each.prepared for each in written if each.prepared is not None)
        with Brokers(self._options.client) as brokers:
            claim = Claim(brokers, sink)
            if prepared or self._is_of_query:
                self._decide_once(brokers, claim, batch, write, prepared)
            else:
                claim.known()  # which tells late attempts that the job is over
            # What no decision names was left by attempts that failed or came too late, or by a run that died.
            with suppress(Fenced):  # then it is the next driver's to do
                deciding.give_up(brokers, claim, transactions.names_under(brokers, f"{sink}/"))
            if not self._is_of_query and prepared:
                claim.forget()

    def _decide_once(
        self, brokers: Brokers, claim: Claim, batch: int, write: Write, prepared: tuple[Prepared, ...]
    ) -> None:
        known = claim.known()
        mine = known.get(claim.sink)
        if mine is not None and mine.done_by is None:
            self._roll_forward(brokers, claim, mine, {})
        if mine is not None and mine.batch >= batch:
            self._check_same(mine, batch, write)
            if self._options.batch is not None:
                claim.done(mine, write)  # the next write of this run under the same name is another one
        elif prepared or self._options.batch is not None:
            owners = deciding.take_over_prepared(brokers, prepared)
            decision = claim.decide(batch, write, self._options.topic, prepared)
            self._roll_forward(brokers, claim, decision, owners)
        self._finish_others(brokers, known, claim.sink)

    def _check_same(self, decided: Decision, batch: int, write: Write) -> None:
        """Whether what is decided already is what we were to write."""
        if decided.batch > batch:
            raise Fenced(f"batch {batch}: another run of the query has decided batch {decided.batch} already")
        if decided.topic != self._options.topic:
            raise PipelineError(
                f"batch {batch} was decided by {decided.sink} already, for topic {decided.topic!r} and not "
                f"{self._options.topic!r}: a checkpoint that was copied, or an option 'topic' that was changed before "
                "the query had come to rest. Use a checkpoint of its own"
            )
        if self._options.batch is None:
            return
        for other in (decided.write, decided.done_by):
            if other is not None and other.run == write.run and other.job != write.job:
                raise PipelineError(
                    f"batch {batch} was written already in this run of the query, under the same name "
                    f"({decided.sink}). Give each write of a batch an option 'writeId' of its own. If this is the same "
                    "write, tried again after a failure: let the query fail, and start it again"
                )

    def _roll_forward(
        self, brokers: Brokers, claim: Claim, decision: Decision, owners: Mapping[str, Identity]
    ) -> None:  # fmt: skip
        deciding.roll_forward(brokers, decision, owners)
        claim.done(decision, decision.write)

    def _finish_others(self, brokers: Brokers, known: dict[str, Decision], sink: str) -> None:
        """Decisions whose drivers did not come back: what was decided is to be seen. What can't be finished is tried
        again by whoever commits when some time has passed, and costs the others nothing until then."""
        now_ms = int(time.time() * 1000)
        for name, decision in known.items():
            if name == sink or decision.done_by is not None or now_ms - decision.timestamp_ms <= STALE_MS:
                continue
            # What was tried later than now was noted by a clock that is ahead: nobody waits until it is that late.
            if decision.tried_ms is not None and abs(now_ms - decision.tried_ms) < TRY_AGAIN_MS:
                continue
            claim = Claim(brokers, name)
            try:
                self._roll_forward(brokers, claim, decision, {})
            except (PipelineError, ApiError, OSError) as error:
                log.warning("batch %d of %s stays half-way: %s", decision.batch, name, error)
                with suppress(PipelineError, ApiError, OSError):
                    claim.stuck(decision, now_ms, str(error))

    def abort_batch(self, messages: list[Written | None]) -> None:
        """Spark calls it after a failed commit too: what was decided stays decided."""
        written = next((each for each in messages if each is not None), None)
        if not self._options.exactly_once or (written is None and self._is_of_query):
            return  # the name of the query is known to its tasks alone; its next run ends what they left
        sink, run = (written.sink, written.run) if written is not None else (PREFIX + self._job, self._job)
        with Brokers(self._options.client) as brokers:
            claim = Claim(brokers, sink)
            if not self._is_of_query:
                claim.known()  # which tells late attempts that the job is over
            deciding.give_up(brokers, claim, transactions.names_under(brokers, f"{sink}/{run}/"))


TEXT = (StringType, BinaryType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT,
    "value": TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
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
            continue  # as in Spark's connector
        expected = _are_headers(kind) if name == "headers" else isinstance(kind, COLUMNS[name])
        if not expected:
            wanted = (
                HEADERS.simpleString()
                if name == "headers"
                else " or ".join(each().simpleString() for each in COLUMNS[name])
            )
            raise OptionError(f"column {name!r} is {kind.simpleString()}, and must be {wanted}")


def check_brokers(options: WriteOptions) -> None:
    """Told before the job starts."""
    if options.exactly_once:
        with Brokers(options.client) as brokers:
            transactions.require_two_phase(brokers)


def _are_headers(kind: DataType) -> bool:
    """Whether there may be nulls makes no difference."""
    items = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(items, StructType):
        return False
    return [(each.name, each.dataType) for each in items] == [("key", StringType()), ("value", BinaryType())]


class StreamWriter(Rows, DataSourceStreamArrowWriter):
    _is_of_query = True

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.commit_batch(messages, batchId)  # type: ignore[arg-type]

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.abort_batch(messages)  # type: ignore[arg-type]


class BatchWriter(Rows, DataSourceArrowWriter):
    """In foreachBatch a write may say which batch it is: then it is the query's, and decided once as a stream's is."""

    @property
    def _is_of_query(self) -> bool:
        return self._options.batch is not None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.commit_batch(messages, self._options.batch or 0)  # type: ignore[arg-type]

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.abort_batch(messages)  # type: ignore[arg-type]


def new_job() -> str:
    return str(uuid.uuid4())


def check_topic(options: WriteOptions, client: ClientSettings) -> None:
    """Told before the job starts, where one topic is for all rows."""
    if options.topic is not None:
        with Brokers(client) as brokers:
            _Topics(brokers, options).partition_count(options.topic)


class _Topics:
    """Where rows go, asked once by each task."""

    def __init__(self, brokers: Brokers, options: WriteOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._counts: dict[str, int] = {}
        self._limits: dict[str, int | None] = {}

    def partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            found = self._brokers.topics([topic])
            if topic not in found:
                raise PipelineError(f"there is no topic {topic!r} to write to; create it first")
            self._counts[topic] = len(found[topic].leaders)
        return self._counts[topic]

    def _limit(self, topic: str) -> int | None:
        if topic not in self._limits:
            self._limits[topic] = message_bytes_max(self._brokers, topic)
        return self._limits[topic]

    def batch_bytes(self, topic: str) -> int:
        """With some room, because what can't be compressed grows a little."""
        limit = self._limit(topic)
        return BATCH_BYTES_MAX if limit is None else max(1, min(BATCH_BYTES_MAX, limit - limit // 16))

    def check_size(self, encoded: Encoded) -> None:
        """A row that is too large by itself is named here: the broker would know no more than its partition."""
        limit = self._limit(encoded.topic)
        if limit is None or encoded.count > 1 or len(encoded.records) + HEADER_SIZE <= limit:
            return
        size = len(seal(encoded, self._options.compression))
        if size > limit:
            raise PipelineError(
                f"a row for {encoded.topic}-{encoded.partition} takes {size} bytes, and the topic takes {limit} "
                f"({MESSAGE_BYTES_MAX})"
            )


def _drain(encoder: RowEncoder, producer: Producer, topics: _Topics, topic: str, partition: int) -> None:
    while (encoded := encoder.take(topic, partition)) is not None:
        topics.check_size(encoded)
        producer.send(encoded)
