"""What has gone wrong with transactions elsewhere, one by one, on the wire of a real broker.

Producers are made of raw requests, so that they can be late, repeated, replaced and wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.brokers import BrokerProcess
from tests.clients.wire import Wire
from tests.transactions.engine import BUMPING, CLASSIC
from tests.transactions.raw import Asked, RawProducer, committed_values, error_of

READ_COMMITTED = 1
WAIT_S = 10.0

both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])
both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])

Begin = Callable[..., RawProducer]


class Bench:
    """A broker, one connection to it, and a topic of the test's own."""

    def __init__(self, broker: BrokerProcess, unique: Callable[[str], str]) -> None:
        self.broker = broker
        self.wire = Wire(broker.bootstrap)
        self.unique = unique
        self.topic = self.create_topic()

    def create_topic(self, partitions: int = 2) -> str:
        topic = CreatableTopic(name=self.unique("topic"), num_partitions=partitions, replication_factor=1)
        (result,) = self.ask((CreateTopicsRequest(topics=[topic]), 7)).topics
        assert result.error_code == 0
        return topic.name

    def reconnect(self) -> None:
        self.wire.sock.close()
        self.wire = Wire(self.broker.bootstrap)

    def ask(self, asked: Asked) -> Any:
        return self.wire.ask(*asked)

    def error(self, asked: Asked) -> ErrorCode:
        return error_of(self.ask(asked))

    def good(self, asked: Asked) -> Any:
        response = self.ask(asked)
        assert error_of(response) is ErrorCode.NONE
        return response

    # ---- producers

    def begin(self, version: int = BUMPING, name: str | None = None, **options: Any) -> RawProducer:
        producer = RawProducer(name or self.unique("id"), version)
        return producer.heard(self.patiently(producer.initialize(**options)))

    def patiently(self, asked: Asked) -> Any:
        """As a client does: what is concurrent is tried again."""
        deadline = time.monotonic() + WAIT_S
        while error_of(response := self.ask(asked)) is ErrorCode.CONCURRENT_TRANSACTIONS:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return response

    def write(self, producer: RawProducer, *values: bytes, partition: int = 0) -> None:
        """In its transaction, which this begins if there is none."""
        if producer.version == CLASSIC:
            assert error_of(self.patiently(producer.add(self.topic, partition))) is ErrorCode.NONE
        self.good(producer.produce(self.topic, *values, partition=partition))

    def end(self, producer: RawProducer, commit: bool = True) -> None:
        producer.heard(self.patiently(producer.end(commit)))

    def transact(self, producer: RawProducer, *values: bytes, commit: bool = True) -> None:
        self.write(producer, *values)
        self.end(producer, commit)

    # ---- what can be seen

    def committed(self, partition: int = 0) -> list[bytes | None]:
        """When all markers are there: nothing is undecided any more."""
        self.settle(partition)
        found = self.fetch(partition=partition)
        assert found.last_stable_offset == found.high_watermark
        return committed_values(found)

    def fetch(self, offset: int = 0, *, partition: int = 0, isolation: int = READ_COMMITTED) -> Any:
        return self.wire.fetch(self.topic, offset, partition=partition, isolation_level=isolation, wait_ms=0)

    def settle(self, partition: int = 0) -> None:
        deadline = time.monotonic() + WAIT_S
        while (seen := self.fetch(partition=partition)).last_stable_offset < seen.high_watermark:
            assert time.monotonic() < deadline, f"the last stable offset is stuck at {seen.last_stable_offset}"
            time.sleep(0.02)

    def describe(self, producer: RawProducer) -> Any:
        (found,) = self.ask((DescribeTransactionsRequest(transactional_ids=[producer.name]), 0)).transaction_states
        return found

    def await_state(self, producer: RawProducer, state: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.describe(producer).transaction_state != state:
            assert time.monotonic() < deadline, self.describe(producer)
            time.sleep(0.02)

    def offset(self, group: str, *, stable: bool = True) -> tuple[ErrorCode, int]:
        self.ask((FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4))
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )
        (found,) = self.ask((asked, 8)).groups[0].topics[0].partitions
        return ErrorCode(found.error_code), found.committed_offset


@pytest.fixture
def bench(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> Iterator[Bench]:
    bench = Bench(shared_broker, unique)
    yield bench
    bench.wire.sock.close()


# ---- requests that come late or again


@both_ways
def test_an_end_that_was_delayed_into_the_next_transaction_is_refused(bench: Bench, commit: bool) -> None:
    producer = bench.begin()
    bench.write(producer, b"first")
    late = producer.end(commit)
    bench.end(producer, commit)
    bench.write(producer, b"second")
    assert bench.error(late) is ErrorCode.PRODUCER_FENCED
    assert bench.describe(producer).transaction_state == "Ongoing"
    bench.end(producer, False)
    assert bench.committed() == ([b"first"] if commit else [])


def test_a_classic_end_that_was_delayed_ends_the_next_transaction(bench: Bench) -> None:
    """What KIP-890 is for: under one epoch nothing tells the two apart, here as in Kafka."""
    producer = bench.begin(CLASSIC)
    bench.write(producer, b"first")
    late = producer.end(True)
    bench.end(producer)
    bench.await_state(producer, "CompleteCommit")
    bench.write(producer, b"second, half of it")
    assert bench.error(late) is ErrorCode.NONE
    assert bench.committed() == [b"first", b"second, half of it"]


@both_versions
@both_ways
def test_an_end_whose_answer_was_lost_is_told_again(bench: Bench, version: int, commit: bool) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"value")
    bench.wire.send(*producer.end(commit))
    bench.reconnect()
    bench.end(producer, commit)
    bench.await_state(producer, "CompleteCommit" if commit else "CompleteAbort")
    assert bench.committed() == ([b"value"] if commit else [])
    bench.transact(producer, b"next")
    assert bench.committed()[-1] == b"next"


@both_versions
@both_ways
def test_who_repeats_an_end_with_another_wish_is_told_that_it_is_too_late(
    bench: Bench, version: int, commit: bool
) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"value")
    again = producer.end(not commit)
    bench.end(producer, commit)
    assert bench.error(again) is ErrorCode.INVALID_TXN_STATE
    assert bench.committed() == ([b"value"] if commit else [])


@both_versions
def test_a_batch_that_was_delayed_past_its_transaction_is_refused(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"value")
    late = producer.produce(bench.topic, b"late")
    bench.end(producer)
    bench.await_state(producer, "CompleteCommit")
    assert bench.error(late) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTABLE)
    assert bench.committed() == [b"value"]


def test_a_batch_that_comes_when_time_has_run_out_is_refused(bench: Bench) -> None:
    for version in (CLASSIC, BUMPING):
        producer = bench.begin(version, timeout_ms=500)
        bench.write(producer, b"value")
        bench.await_state(producer, "CompleteAbort")
        assert bench.error(producer.produce(bench.topic, b"late")) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert bench.error(producer.produce(bench.topic, b"late", partition=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert bench.error(producer.end()) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
        assert bench.committed() == bench.committed(1) == []


def test_with_version_2_who_ran_out_of_time_aborts_and_goes_on(bench: Bench) -> None:
    producer = bench.begin(timeout_ms=500)
    bench.write(producer, b"too slow")
    bench.await_state(producer, "CompleteAbort")
    bench.end(producer, False)
    bench.transact(producer, b"in time")
    assert bench.committed() == [b"in time"]


@both_versions
def test_sequences_begin_again_behind_an_abort(bench: Bench, version: int) -> None:
    """A classic producer goes on counting, or asks for another epoch (KIP-360); with version 2 it has another epoch."""
    producer = bench.begin(version)
    bench.write(producer, b"lost")
    bench.end(producer, False)
    if version == CLASSIC:
        bench.await_state(producer, "CompleteAbort")
        bench.transact(producer, b"counted on")
        producer.heard(bench.good(producer.initialize(recovers=True)))
    assert producer.sequences == {}
    bench.transact(producer, b"counted anew")
    expected = [b"counted on", b"counted anew"] if version == CLASSIC else [b"counted anew"]
    assert bench.committed() == expected


@both_versions
def test_a_batch_that_is_sent_again_within_its_transaction_is_stored_once(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"one")
    again = producer.produce(bench.topic, b"two")
    offsets = [bench.good(again).responses[0].partition_responses[0].base_offset for _ in range(3)]
    assert offsets == [1, 1, 1]
    bench.end(producer)
    assert bench.committed() == [b"one", b"two"]


# ---- zombies


def zombie_requests(zombie: RawProducer, topic: str) -> dict[str, Asked]:
    return {
        "Produce": zombie.produce(topic, b"zombie"),
        "Produce elsewhere": zombie.produce(topic, b"zombie", partition=1),
        "AddPartitionsToTxn": zombie.add(topic, 1),
        "AddOffsetsToTxn": zombie.add_offsets("group"),
        "TxnOffsetCommit": zombie.commit_offsets("group", topic, 5),
        "EndTxn commit": zombie.end(True),
        "EndTxn abort": zombie.end(False),
        "InitProducerId": zombie.initialize(recovers=True),
    }


FENCED = {
    "Produce": ErrorCode.INVALID_PRODUCER_EPOCH,
    "Produce elsewhere": ErrorCode.INVALID_PRODUCER_EPOCH,
    "AddPartitionsToTxn": ErrorCode.PRODUCER_FENCED,
    "AddOffsetsToTxn": ErrorCode.PRODUCER_FENCED,
    "TxnOffsetCommit": ErrorCode.INVALID_PRODUCER_EPOCH,
    "EndTxn commit": ErrorCode.PRODUCER_FENCED,
    "EndTxn abort": ErrorCode.PRODUCER_FENCED,
    "InitProducerId": ErrorCode.PRODUCER_FENCED,
}


@both_versions
@pytest.mark.parametrize("kind", list(FENCED))
@pytest.mark.parametrize("is_open", [True, False], ids=["in a transaction", "between two"])
def test_a_zombie_is_fenced_whatever_it_asks(bench: Bench, version: int, kind: str, is_open: bool) -> None:
    zombie = bench.begin(version)
    bench.write(zombie, b"of the zombie")
    producer = bench.begin(version, zombie.name)
    if is_open:
        bench.write(producer, b"value")
    assert bench.error(zombie_requests(zombie, bench.topic)[kind]) is FENCED[kind]
    if not is_open:
        bench.write(producer, b"value")
    bench.end(producer)
    assert bench.committed() == [b"value"]
    assert bench.committed(1) == []
    assert bench.offset("group")[1] == -1


@both_versions
def test_of_two_producers_with_one_id_the_later_one_wins(bench: Bench, version: int) -> None:
    name = bench.unique("shared")
    first = bench.begin(version, name)
    bench.transact(first, b"first 1")
    bench.write(first, b"first 2")
    second = bench.begin(version, name)
    assert bench.error(first.end()) is ErrorCode.PRODUCER_FENCED
    bench.transact(second, b"second 1")
    again = bench.begin(version, name)
    assert bench.error(second.initialize(recovers=True)) is ErrorCode.PRODUCER_FENCED
    bench.transact(again, b"first 3")
    assert bench.committed() == [b"first 1", b"second 1", b"first 3"]


# ---- offsets


@both_versions
@both_ways
def test_offsets_count_if_their_transaction_does(bench: Bench, version: int, commit: bool) -> None:
    group = bench.unique("group")
    producer = bench.begin(version)
    for offset, commits in ((3, True), (7, commit)):
        if version == CLASSIC:
            assert error_of(bench.patiently(producer.add_offsets(group))) is ErrorCode.NONE
        bench.good(producer.commit_offsets(group, bench.topic, offset))
        assert bench.offset(group) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        bench.end(producer, commits)
        bench.await_state(producer, "CompleteCommit" if commits else "CompleteAbort")
    assert bench.offset(group) == (ErrorCode.NONE, 7 if commit else 3)


def test_offsets_of_a_producer_that_died_are_given_up_in_time(bench: Bench) -> None:
    group = bench.unique("group")
    producer = bench.begin(timeout_ms=500)
    bench.good(producer.commit_offsets(group, bench.topic, 7))
    bench.await_state(producer, "CompleteAbort")
    assert bench.offset(group) == (ErrorCode.NONE, -1)
    assert bench.error(producer.commit_offsets(group, bench.topic, 8)) is ErrorCode.INVALID_PRODUCER_EPOCH


# ---- readers


def test_a_reader_of_committed_data_finds_exactly_that_from_every_offset(bench: Bench) -> None:
    """Three producers in turn, interleaved: what is committed, aborted, of no transaction, and still open."""
    one, two, three = (bench.begin(version) for version in (BUMPING, CLASSIC, BUMPING))
    expected: dict[int, bytes] = {}

    def write(producer: RawProducer, value: bytes, *, counts: bool) -> None:
        if producer is two:
            assert error_of(bench.patiently(two.add(bench.topic))) is ErrorCode.NONE
        response = bench.good(producer.produce(bench.topic, value, value + b"'"))
        offset = response.responses[0].partition_responses[0].base_offset
        if counts:
            expected.update({offset: value, offset + 1: value + b"'"})

    for turn in range(3):
        kept = turn != 1
        write(one, b"one %d" % turn, counts=kept)
        write(two, b"two %d" % turn, counts=not kept)
        write(one, b"one more %d" % turn, counts=kept)
        bench.end(one, kept)
        bench.end(two, not kept)
        bench.await_state(one, "CompleteCommit" if kept else "CompleteAbort")
        bench.await_state(two, "CompleteAbort" if kept else "CompleteCommit")
    write(three, b"open", counts=False)
    write(one, b"behind it", counts=False)
    bench.end(one)
    bench.await_state(one, "CompleteCommit")

    seen = bench.fetch()
    stable = max(expected) + 2 + 1  # behind the last of these, one marker of each
    assert seen.last_stable_offset == stable
    assert seen.high_watermark > stable
    for offset in range(seen.high_watermark + 1):
        found = bench.fetch(offset)
        assert found.last_stable_offset == stable
        assert committed_values(found, offset) == [value for at, value in sorted(expected.items()) if at >= offset]
    for offset in range(seen.high_watermark):
        assert bench.fetch(offset, isolation=0).aborted_transactions is None
    assert latest(bench, READ_COMMITTED) == stable
    assert latest(bench, 0) == seen.high_watermark

    bench.end(three, False)
    assert bench.committed() == [*(value for _, value in sorted(expected.items())), b"behind it", b"behind it'"]
    assert latest(bench, READ_COMMITTED) == latest(bench, 0) == seen.high_watermark + 1


def latest(bench: Bench, isolation: int) -> int:
    topics = [ListOffsetsTopic(name=bench.topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    response = bench.ask((ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 7))
    found: int = response.topics[0].partitions[0].offset
    return found


def test_a_time_is_looked_for_in_what_is_decided(bench: Bench) -> None:
    producer = bench.begin()
    bench.write(producer, b"value")

    def at_time(isolation: int) -> int:
        asked = ListOffsetsPartition(partition_index=0, timestamp=1)
        topics = [ListOffsetsTopic(name=bench.topic, partitions=[asked])]
        response = bench.ask((ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 7))
        found: int = response.topics[0].partitions[0].offset
        return found

    assert (at_time(READ_COMMITTED), at_time(0)) == (-1, 0)
    bench.end(producer)
    bench.settle()
    assert (at_time(READ_COMMITTED), at_time(0)) == (0, 0)


# ---- a coordinator that is killed


@both_versions
@both_ways
def test_a_decision_outlives_the_broker(
    new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str], version: int, commit: bool
) -> None:
    broker = new_broker()
    bench = Bench(broker, unique)
    producer = bench.begin(version)
    group = unique("group")
    bench.write(producer, b"zero")
    bench.write(producer, b"one", partition=1)
    if version == CLASSIC:
        bench.good(producer.add_offsets(group))
    bench.good(producer.commit_offsets(group, bench.topic, 4))
    old = producer.as_it_was()
    bench.end(producer, commit)
    broker.kill()
    broker.start()
    bench.reconnect()
    assert bench.committed() == ([b"zero"] if commit else [])
    assert bench.committed(1) == ([b"one"] if commit else [])
    bench.await_state(producer, "CompleteCommit" if commit else "CompleteAbort")
    assert bench.offset(group) == (ErrorCode.NONE, 4 if commit else -1)
    bench.good(old.end(commit))
    assert bench.error(old.end(not commit)) is ErrorCode.INVALID_TXN_STATE
    bench.transact(producer, b"next")
    assert bench.committed()[-1] == b"next"


@both_versions
def test_a_transaction_that_was_open_when_the_broker_died_goes_on(
    new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str], version: int
) -> None:
    broker = new_broker()
    bench = Bench(broker, unique)
    producer, slow = bench.begin(version), bench.begin(version, timeout_ms=3_000)
    bench.write(producer, b"before")
    bench.write(slow, b"never ended", partition=1)
    broker.kill()
    broker.start()
    bench.reconnect()
    bench.write(producer, b"behind")
    bench.end(producer)
    assert bench.committed() == [b"before", b"behind"]
    bench.await_state(slow, "CompleteAbort")
    assert bench.committed(1) == []
