"""How a driver decides, and how it gives up what nobody has decided: at most one of the two for a transaction.

    to decide     claim the sink, take over each transaction, decide, commit
    to give up    take over each transaction, claim the sink, abort what no decision names

A claim fences every driver that claimed before: it can't decide any more. Who takes over a transaction fences everyone
who had it before: they can't end it any more. Of two drivers at the same transaction, whichever comes second is fenced
by the first, or sees what the first has decided.

A claim, and a decision, is a record in a transaction under the sink's own name. The claim's is read back, so that
every decision before it has been read too, from whoever leads the log by now.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from penstock.pipeline import transactions
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.decisions import (
    CLAIM,
    DONE,
    PLACE,
    STUCK,
    TOPIC,
    Decision,
    Write,
    decision_value,
    done_value,
    read_for,
    stuck_value,
)
from penstock.pipeline.problem import Expired, Fenced, HeldBack, PipelineError
from penstock.pipeline.producing import Producer
from penstock.pipeline.sealing import Encoded
from penstock.pipeline.transactions import EMPTY, NOBODY, Identity, Kept, Prepared
from penstock.protocol.compression import Compression
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.record_batch import HEADER_SIZE, Record, build_batch

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(16 << 20),
}
# Of the transaction that holds nothing but a claim or a decision: longer than a follower may hang before the others go
# on without it (replica.lag.time.max.ms, 10 s), and shorter than those wait who must read what it holds back.
TIMEOUT_MS = 20_000


class Claim:
    """The decisions of one sink, by the driver that claimed them last."""

    def __init__(self, brokers: Brokers, sink: str) -> None:
        self._brokers = brokers
        self.sink = sink
        self._identity: Identity | None = None

    def known(self) -> dict[str, Decision]:
        """The newest decision of this sink and of all that are not done, by name. Claims the sink the first time, which
        fences every driver that claimed before. Raises Fenced if another has claimed it since."""
        try:
            claimed = self._claim()
        except Expired:  # nobody has claimed since
            self._identity = None
            claimed = self._claim()
        return read_for(self._brokers, self.sink, claimed + 1)

    def _claim(self) -> int:
        if self._identity is None:
            ensure_topic(self._brokers)
            self._identity = transactions.init_transactional(self._brokers, self.sink, TIMEOUT_MS)
        return self._write(CLAIM, self.sink.encode())

    def decide(self, batch: int, write: Write, topic: str | None, prepared: tuple[Prepared, ...]) -> Decision:
        """Raises Fenced if another driver has claimed meanwhile, Expired if it took too long; then nothing is
        decided."""
        self._write(self.sink, decision_value(batch, write, topic, prepared))
        return Decision(self.sink, batch, write, topic, prepared)

    def _write(self, key: str, value: bytes) -> int:
        """In a transaction of the sink's; at which offset."""
        assert self._identity is not None, "claimed before"
        try:
            # Kept small: names and offsets shrink to a fifth.
            producer = Producer(
                self._brokers, self._identity, transactional_id=self.sink, compression=Compression.GZIP
            )  # fmt: skip
            producer.send(_encoded(key, value))
            producer.flush()
            self._identity = transactions.end(self._brokers, self.sink, self._identity, commit=True)
        except Fenced as error:
            if transactions.has_expired(self._brokers, self.sink, self._identity):
                raise self._expired() from error
            raise Fenced(f"another run of the query has claimed {self.sink} meanwhile") from error
        except Expired as error:
            raise self._expired() from error
        assert producer.first is not None, "all is acknowledged"
        return producer.first[1]

    def _expired(self) -> Expired:
        return Expired(
            f"{self.sink} could not write to {TOPIC} within {TIMEOUT_MS / 1000:g} s, and its transaction was aborted: "
            "a broker that keeps the topic stood still, or this driver did. Nothing is decided by it, and nothing "
            "lost. Start the query again"
        )

    def done(self, decision: Decision, write: Write) -> None:
        """Its transactions were seen committed. Written without a transaction and under a key of its own: a driver that
        was away for long must not write over a later decision."""
        _append(self._brokers, self.sink + DONE, done_value(decision.batch, write))

    def stuck(self, decision: Decision, now_ms: int, why: str) -> None:
        """Its transactions could not all be committed: others need not find that out again and again."""
        _append(self._brokers, self.sink + STUCK, stuck_value(decision.batch, now_ms, why))

    def forget(self) -> None:
        """For a job that never comes again: nothing of it is left when the topic has been compacted."""
        _append(self._brokers, self.sink, None, *(self.sink + each for each in (DONE, STUCK)))


def take_over_prepared(brokers: Brokers, prepared: Iterable[Prepared]) -> dict[str, Identity]:
    """Whose they are now, by name. Raises if one of them is not open any more: its rows are not to be had."""
    owners = {}
    for each in prepared:
        kept = transactions.take_over(brokers, each.transactional_id)
        if kept.ongoing != each.identity:
            raise PipelineError(
                f"transaction {each.transactional_id} was ended by somebody before its batch was decided; nothing of "
                "the batch is committed, and the query writes it again when it is started again"
            )
        owners[each.transactional_id] = kept.owner
    return owners


def roll_forward(brokers: Brokers, decision: Decision, owners: Mapping[str, Identity]) -> None:
    """Commits whatever of it can be committed. Raises if something can't: half of the batch is lost then."""
    aborted: list[str] = []
    held_back: list[Prepared] = []  # perhaps by others of the same batch, which come later
    for each in decision.transactions:
        try:
            if not transactions.roll_forward(brokers, each, owners.get(each.transactional_id), wait_s=0):
                aborted.append(each.transactional_id)
        except HeldBack:
            held_back.append(each)
    aborted += [each.transactional_id for each in held_back if not transactions.roll_forward(brokers, each)]
    if aborted:
        raise PipelineError(
            f"batch {decision.batch} was decided by {decision.sink}, but somebody has aborted {len(aborted)} of its "
            f"{len(decision.transactions)} transactions: {', '.join(aborted[:3])}{', ...' if aborted[3:] else ''}. "
            "Their rows are lost, and the others' are there. A query goes on with another checkpoint only"
        )


def give_up(brokers: Brokers, claim: Claim, names: Mapping[str, str]) -> None:
    """Ends what no decision names, of those names and their states, and fences whoever writes under them."""
    waiting: list[Kept] = []
    for name, state in names.items():
        kept = transactions.take_over(brokers, name)
        if kept.ongoing != NOBODY:
            waiting.append(kept)
        elif state == EMPTY:
            _abort(brokers, kept)  # so that it is not found here the next time
    if not waiting:
        return
    decided = {each.key for decision in claim.known().values() for each in decision.transactions}
    for kept in waiting:
        if kept.key not in decided:
            _abort(brokers, kept)


def _abort(brokers: Brokers, kept: Kept) -> None:
    with suppress(Fenced):  # somebody else has it by now, to end it or to give it up
        transactions.end(brokers, kept.transactional_id, kept.owner, commit=False)


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


def _append(brokers: Brokers, key: str, value: bytes | None, *other_keys: str) -> None:
    producer = Producer(brokers, transactions.init_idempotent(brokers))
    for each in (key, *other_keys):
        producer.send(_encoded(each, value))
    producer.flush()


def _encoded(key: str, value: bytes | None) -> Encoded:
    now_ms = int(time.time() * 1000)
    records = build_batch([Record(0, now_ms, key.encode(), value)])[HEADER_SIZE:]
    return Encoded(*PLACE, records, 1, now_ms, now_ms)
