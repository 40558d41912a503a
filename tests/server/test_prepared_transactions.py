"""Transactions that two phases commit (KIP-939), on the wire of a real broker: prepared by one, ended by another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.brokers import BrokerProcess
from tests.server.test_transactions_known_failures import Bench, both_versions, both_ways, zombie_requests
from tests.transactions.engine import BUMPING, CLASSIC, NOBODY
from tests.transactions.raw import RawProducer, committed_values

NEVER_MS = 2**31 - 1
GROUP = "group"

# Whatever may end by time or be forgotten does so soon; not so soon that a slow machine would meet it at work.
SOON_MS = 1_500
HASTY = {
    "transaction_max_timeout_ms": SOON_MS,
    "transactional_id_expiration_ms": SOON_MS,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 100,
    "producer_id_expiration_ms": SOON_MS,
}
LATER_S = 1.7 * SOON_MS / 1000


@pytest.fixture
def bench(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> Iterator[Bench]:
    bench = Bench(shared_broker, unique)
    yield bench
    bench.wire.sock.close()


def prepare(bench: Bench, version: int, *values: bytes) -> RawProducer:
    """In two partitions and a group's offsets; then its producer is heard of no more."""
    producer = bench.begin(version, two_phase=True)
    for partition in (0, 1):
        bench.write(producer, *values, partition=partition)
    if version == CLASSIC:
        bench.good(producer.add_offsets(group_of(producer)))
    bench.good(producer.commit_offsets(group_of(producer), bench.topic, 5))
    return producer.as_it_was()


def group_of(producer: RawProducer) -> str:
    return f"{GROUP}-{producer.name}"


def keep(bench: Bench, producer: RawProducer, *, two_phase: bool = True) -> tuple[RawProducer, tuple[int, int]]:
    """Another producer of the same name, and the identity of what it found open."""
    response = bench.good(producer.initialize(two_phase=two_phase, keeps=True, timeout_ms=100))
    taker = RawProducer(producer.name, producer.version).heard(response)
    return taker, (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)


def assert_undecided(bench: Bench, producer: RawProducer) -> None:
    for partition in (0, 1):
        found = bench.fetch(partition=partition)
        assert (found.last_stable_offset, committed_values(found)) == (0, [])
        assert found.high_watermark > 0
    assert bench.offset(group_of(producer))[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shown = bench.describe(producer)
    assert (shown.transaction_state, shown.transaction_timeout_ms) == ("Ongoing", NEVER_MS)


def assert_ended(bench: Bench, producer: RawProducer, commit: bool, *values: bytes) -> None:
    expected = list(values) if commit else []
    assert [bench.committed(0), bench.committed(1)] == [expected, expected]
    bench.await_state(producer, "CompleteCommit" if commit else "CompleteAbort")
    assert bench.offset(group_of(producer)) == (ErrorCode.NONE, 5 if commit else -1)


# ---- a broker that dies


@both_ways
@both_versions
def test_it_waits_for_its_decision_longer_than_anything_else_and_however_often_the_broker_dies(
    new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str], version: int, commit: bool
) -> None:
    broker = new_broker(**HASTY)
    bench = Bench(broker, unique)
    producer = prepare(bench, version, b"one", b"two")
    other = bench.begin(version, timeout_ms=SOON_MS)
    bench.write(other, b"other")
    broker.kill()
    broker.start()
    bench.reconnect()
    time.sleep(LATER_S)
    assert_undecided(bench, producer)
    assert bench.describe(other).transaction_state in ("", "CompleteAbort"), "aborted by time, or forgotten since"
    taker, found = keep(bench, producer)
    assert found == producer.stamp
    broker.kill()
    broker.start()
    bench.reconnect()
    time.sleep(LATER_S)
    assert_undecided(bench, producer)
    bench.end(taker, commit)
    expected = [b"one", b"two"] if commit else []
    assert [bench.committed(0), bench.committed(1)] == [expected, expected]
    assert bench.offset(group_of(producer)) == (ErrorCode.NONE, 5 if commit else -1)
    bench.wire.sock.close()


def test_without_two_phases_it_is_aborted_by_time(
    new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = new_broker()
    bench = Bench(broker, unique)
    producer = bench.begin(timeout_ms=300)
    bench.write(producer, b"value")
    broker.kill()
    broker.start()
    bench.reconnect()
    kept, found = keep(bench, producer, two_phase=False)
    assert found in (producer.stamp, NOBODY), "it may have been aborted by now"
    bench.settle()
    assert bench.committed() == []
    assert bench.error(kept.end(True)) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED)
    bench.wire.sock.close()


# ---- who takes over


@both_ways
@both_versions
def test_whoever_keeps_it_ends_it(bench: Bench, version: int, commit: bool) -> None:
    producer = prepare(bench, version, b"value")
    epochs = []
    for _ in range(3):
        taker, found = keep(bench, producer)
        assert found == producer.stamp
        epochs.append(taker.stamp[1])
    assert epochs == [producer.stamp[1] + number for number in (1, 2, 3)]
    assert_undecided(bench, producer)
    ending = taker.end(commit)
    bench.good(ending)
    assert_ended(bench, producer, commit, b"value")
    taker.heard(bench.good(ending))
    assert bench.error(taker.as_it_was((taker.stamp[0], epochs[-1])).end(not commit)) is ErrorCode.INVALID_TXN_STATE
    bench.transact(taker, b"next")
    assert bench.committed() == [*([b"value"] if commit else []), b"next"]


def test_where_nothing_is_open_nothing_is_found(bench: Bench) -> None:
    producer = RawProducer(bench.unique("id"))
    taker, found = keep(bench, producer)
    assert (found, taker.stamp[1]) == (NOBODY, 0)
    bench.transact(taker, b"value")
    bench.await_state(taker, "CompleteCommit")
    assert keep(bench, producer)[1] == NOBODY


def test_who_does_not_keep_it_aborts_it(bench: Bench) -> None:
    producer = prepare(bench, BUMPING, b"value")
    keep(bench, producer)
    following = bench.begin(BUMPING, producer.name, two_phase=True)
    assert [bench.committed(0), bench.committed(1)] == [[], []]
    assert following.stamp[1] > producer.stamp[1] + 1


FENCED = {
    "Produce elsewhere": ErrorCode.INVALID_PRODUCER_EPOCH,
    "AddPartitionsToTxn": ErrorCode.PRODUCER_FENCED,
    "AddOffsetsToTxn": ErrorCode.PRODUCER_FENCED,
    "TxnOffsetCommit": ErrorCode.INVALID_PRODUCER_EPOCH,
    "EndTxn commit": ErrorCode.PRODUCER_FENCED,
    "EndTxn abort": ErrorCode.PRODUCER_FENCED,
    "InitProducerId": ErrorCode.PRODUCER_FENCED,
}


@both_versions
@pytest.mark.parametrize("kind", FENCED)
def test_who_prepared_it_is_fenced(bench: Bench, version: int, kind: str) -> None:
    zombie = bench.begin(version, two_phase=True)
    bench.write(zombie, b"value")
    taker, _ = keep(bench, zombie)
    assert bench.error(zombie_requests(zombie, bench.topic)[kind]) is FENCED[kind]
    bench.end(taker)
    assert (bench.committed(0), bench.committed(1)) == ([b"value"], [])
    assert bench.offset(GROUP)[1] == -1
    assert bench.error(zombie_requests(zombie, bench.topic)["Produce"]) is ErrorCode.INVALID_PRODUCER_EPOCH


NOT_ADDED = {
    "Produce": ErrorCode.INVALID_TXN_STATE,
    "Produce elsewhere": ErrorCode.INVALID_TXN_STATE,
    "AddPartitionsToTxn": ErrorCode.INVALID_TXN_STATE,
    "AddOffsetsToTxn": ErrorCode.INVALID_TXN_STATE,
    "TxnOffsetCommit": ErrorCode.INVALID_TXN_STATE,
}


@both_versions
@pytest.mark.parametrize("kind", NOT_ADDED)
def test_who_keeps_it_can_not_write_to_it(bench: Bench, version: int, kind: str) -> None:
    producer = bench.begin(version, two_phase=True)
    bench.write(producer, b"value")
    taker, _ = keep(bench, producer)
    assert bench.error(zombie_requests(taker.as_it_was(), bench.topic)[kind]) is NOT_ADDED[kind]
    assert bench.describe(producer).transaction_state == "Ongoing"
    bench.end(taker)
    assert (bench.committed(0), bench.committed(1)) == ([b"value"], [])


def test_partitions_know_the_epoch_that_has_passed(bench: Bench) -> None:
    producer = prepare(bench, BUMPING, b"value")
    for _ in range(4):
        taker, _ = keep(bench, producer)
    bench.end(taker)
    bench.settle()
    asked = DescribeProducersRequest(topics=[TopicRequest(name=bench.topic, partition_indexes=[0])])
    (known,) = bench.ask((asked, 0)).topics[0].partitions[0].active_producers
    assert (known.producer_id, known.producer_epoch) == (producer.stamp[0], producer.stamp[1] + 1)


# ---- what is served, and what is said


def test_the_version_is_served_and_not_announced(bench: Bench) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    (announced,) = [each for each in bench.ask((request, 4)).api_keys if each.key == 22]
    assert (announced.min_version, announced.max_version) == (0, 5)


def test_a_producer_that_names_itself_keeps_nothing(bench: Bench) -> None:
    producer = prepare(bench, BUMPING, b"value")
    asked = producer.initialize(recovers=True, two_phase=True, keeps=True)
    assert bench.error(asked) is ErrorCode.INVALID_REQUEST
    assert_undecided(bench, producer)


def test_where_it_is_switched_off_it_is_refused_and_what_is_open_can_be_ended(
    new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = new_broker()
    bench = Bench(broker, unique)
    producer = prepare(bench, BUMPING, b"value")
    broker.stop()
    broker.settings["transaction_two_phase_commit_enable"] = "false"
    broker.start()
    bench.reconnect()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert bench.error(producer.initialize(two_phase=True, keeps=True)) is refused
    assert bench.error(RawProducer("new").initialize(two_phase=True)) is refused
    taker, found = keep(bench, producer, two_phase=False)
    assert found == producer.stamp
    bench.end(taker)
    assert_ended(bench, producer, True, b"value")
    bench.wire.sock.close()
