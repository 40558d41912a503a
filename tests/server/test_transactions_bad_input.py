"""Transactional requests that nobody should send: a typed error, nothing lost, and nobody's readers held up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.brokers import BrokerProcess
from tests.clients.wire import batch_of
from tests.server.test_transactions_known_failures import Bench, both_versions, both_ways
from tests.transactions.engine import BUMPING, CLASSIC, NOBODY
from tests.transactions.raw import RawProducer, error_of

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def bench(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> Iterator[Bench]:
    bench = Bench(shared_broker, unique)
    yield bench
    bench.wire.sock.close()


def unharmed(bench: Bench) -> None:
    """Someone else can write, and readers of committed data see it."""
    bench.settle()
    before = bench.committed()
    bench.transact(bench.begin(), b"unharmed")
    assert bench.committed() == [*before, b"unharmed"]


# ---- out of order


@both_versions
@both_ways
def test_an_end_before_anything_was_begun(bench: Bench, version: int, commit: bool) -> None:
    producer = bench.begin(version)
    answer = bench.error(producer.end(commit))
    is_allowed = version == BUMPING and not commit  # it bumps the epoch, lest a batch be on its way
    assert answer is (ErrorCode.NONE if is_allowed else ErrorCode.INVALID_TXN_STATE)
    unharmed(bench)


@both_versions
def test_anything_before_the_producer_has_an_id(bench: Bench, version: int) -> None:
    producer = RawProducer(bench.unique("id"), version, (1_000_000, 0))
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.error(producer.end()) is mapping
    assert bench.error(producer.add(bench.topic)) is mapping
    assert bench.error(producer.add_offsets("group")) is mapping
    assert bench.error(producer.produce(bench.topic, b"value")) is mapping
    assert bench.error(producer.commit_offsets("group", bench.topic, 1)) is mapping
    assert bench.error(producer.initialize(recovers=True)) is ErrorCode.NONE, "it is given another (KIP-360)"
    unharmed(bench)


def test_a_classic_batch_to_a_partition_that_was_not_added(bench: Bench) -> None:
    producer = bench.begin(CLASSIC)
    bench.write(producer, b"value")
    assert bench.error(producer.produce(bench.topic, b"x", partition=1)) is ErrorCode.TRANSACTION_ABORTABLE
    request, _ = producer.produce(bench.topic, b"x", partition=1, sequence=0)
    assert bench.error((request, 10)) is ErrorCode.INVALID_TXN_STATE, "older clients do not know the other code"
    assert bench.error(producer.commit_offsets("group", bench.topic, 1)) is ErrorCode.TRANSACTION_ABORTABLE
    bench.end(producer)
    assert (bench.committed(), bench.committed(1)) == ([b"value"], [])


# ---- as someone else


@both_versions
def test_under_the_producer_id_of_another(bench: Bench, version: int) -> None:
    victim, thief = bench.begin(version), bench.begin(version)
    bench.write(victim, b"value")
    thief.stamp = victim.stamp
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.error(thief.end()) is mapping
    assert bench.error(thief.add(bench.topic, 1)) is mapping
    assert bench.error(thief.add_offsets("group")) is mapping
    assert bench.error(thief.produce(bench.topic, b"x", partition=1)) is mapping
    assert bench.error(thief.commit_offsets("group", bench.topic, 1)) is mapping
    assert bench.error(thief.initialize(recovers=True)) is ErrorCode.PRODUCER_FENCED
    bench.end(victim)
    assert (bench.committed(), bench.committed(1)) == ([b"value"], [])


@both_versions
def test_with_an_epoch_that_is_still_to_come(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"value")
    early = producer.as_it_was((producer.stamp[0], producer.stamp[1] + 1))
    assert bench.error(early.produce(bench.topic, b"x", sequence=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.error(early.produce(bench.topic, b"x", partition=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.error(early.end()) is ErrorCode.PRODUCER_FENCED
    assert bench.error(early.initialize(recovers=True)) is ErrorCode.PRODUCER_FENCED
    bench.end(producer)
    assert (bench.committed(), bench.committed(1)) == ([b"value"], [])


@both_versions
def test_offsets_as_a_member_that_there_is_not(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    group = bench.unique("group")
    if version == CLASSIC:
        bench.good(producer.add_offsets(group))
    as_member = producer.commit_offsets(group, bench.topic, 5, member="nobody", generation=3)
    assert bench.error(as_member) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    bench.end(producer)
    bench.await_state(producer, "CompleteCommit")
    assert bench.offset(group) == (ErrorCode.NONE, -1)


# ---- names


def test_an_empty_id_is_refused_by_every_request(bench: Bench) -> None:
    for version in (CLASSIC, BUMPING):
        producer = RawProducer("", version, (5, 0))
        for asked in (
            producer.initialize(), producer.end(), producer.add(bench.topic), producer.add_offsets("group"),
            producer.commit_offsets("group", bench.topic, 1),
        ):  # fmt: skip
            assert bench.error(asked) is ErrorCode.INVALID_REQUEST
        batch = producer.batch(b"value")
        answer = bench.error(producer.produce_batch(bench.topic, batch, name=""))
        assert answer is not ErrorCode.NONE
    (found,) = bench.ask((DescribeTransactionsRequest(transactional_ids=[""]), 0)).transaction_states
    assert found.error_code == ErrorCode.INVALID_REQUEST
    unharmed(bench)


@pytest.mark.parametrize("size", [1_000, 32_767])
def test_an_id_as_long_as_can_be_is_as_good_as_any(bench: Bench, size: int) -> None:
    producer = bench.begin(name=bench.unique("id").ljust(size, "x"))
    bench.transact(producer, b"value")
    bench.await_state(producer, "CompleteCommit")
    assert bench.committed() == [b"value"]


def test_an_id_in_any_script_is_as_good_as_any(bench: Bench) -> None:
    producer = bench.begin(name=bench.unique("id") + "/Überweisung 振込 🧾\n\0")
    bench.transact(producer, b"value")
    assert bench.committed() == [b"value"]


def test_a_group_without_a_name(bench: Bench) -> None:
    producer = bench.begin()
    assert bench.error(producer.commit_offsets("", bench.topic, 1)) is ErrorCode.INVALID_GROUP_ID
    unharmed(bench)


def test_halves_of_a_producer(bench: Bench) -> None:
    for stamp in ((7, -1), (-1, 3)):
        asked = InitProducerIdRequest(
            transactional_id=bench.unique("id"), transaction_timeout_ms=1_000, producer_id=stamp[0],
            producer_epoch=stamp[1],
        )  # fmt: skip
        assert bench.error((asked, 4)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_time_out_of_bounds(bench: Bench, timeout_ms: int) -> None:
    producer = RawProducer(bench.unique("id"))
    assert bench.error(producer.initialize(timeout_ms=timeout_ms)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert bench.describe(producer).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# ---- partitions


@both_versions
def test_partitions_that_there_are_not(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"value")
    for partition in (2, -1, 2**31 - 1):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bench.error(producer.produce(bench.topic, b"x", partition=partition)) is unknown
        assert bench.error(producer.commit_offsets("group", bench.topic, 1, partition=partition)) is unknown
        assert bench.error(producer.add(bench.topic, partition)) is unknown
    response = bench.ask(producer.add(bench.topic, 1, 7))
    assert [each.partition_error_code for each in response.results_by_topic_v3_and_below[0].results_by_partition] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    bench.end(producer)
    assert (bench.committed(), bench.committed(1)) == ([b"value"], [])


def test_a_topic_that_is_deleted_does_not_hold_up_the_others(bench: Bench) -> None:
    gone = bench.create_topic()
    producer = bench.begin()
    bench.write(producer, b"value")
    bench.good(producer.produce(gone, b"gone"))
    bench.good(producer.commit_offsets("group", gone, 1))
    bench.ask((DeleteTopicsRequest(topics=[DeleteTopicState(name=gone)]), 6))
    bench.end(producer)
    bench.await_state(producer, "CompleteCommit")
    assert bench.committed() == [b"value"]


@pytest.mark.parametrize("internal", [OFFSETS, TRANSACTIONS])
@pytest.mark.parametrize("way", ["AddPartitionsToTxn", "Produce", "WriteTxnMarkers"])
def test_what_belongs_to_the_coordinators_is_not_a_producers_to_end(
    new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str], internal: str, way: str
) -> None:
    """A marker among a coordinator's records must not keep it from being loaded."""
    broker = new_broker(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
    bench = Bench(broker, unique)
    group = unique("group")
    producer, other = bench.begin(CLASSIC if way == "AddPartitionsToTxn" else BUMPING), bench.begin()
    bench.good(other.commit_offsets(group, bench.topic, 3))
    bench.end(other)
    if way == "AddPartitionsToTxn":
        bench.error(producer.add(internal, 0))
    elif way == "Produce":
        assert bench.error(producer.produce(internal, b"value")) is not ErrorCode.NONE
    else:
        topics = [WritableTxnMarkerTopic(name=internal, partition_indexes=[0])]
        marker = WritableTxnMarker(
            producer_id=producer.stamp[0], producer_epoch=producer.stamp[1], transaction_result=True, topics=topics,
            coordinator_epoch=0,
        )  # fmt: skip
        bench.ask((WriteTxnMarkersRequest(markers=[marker]), 1))
    bench.ask(producer.end(False))
    unharmed(bench)
    broker.kill()
    broker.start()
    bench.reconnect()
    assert bench.offset(group) == (ErrorCode.NONE, 3)
    unharmed(bench)


# ---- batches


@both_versions
def test_a_batch_of_no_transaction_within_one(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"value")
    plain = producer.batch(b"x", sequence=1, transactional=False)
    for name in (producer.name, None):
        asked = producer.produce_batch(bench.topic, plain, name=name)
        assert bench.error(asked) is ErrorCode.INVALID_TXN_STATE
    bench.end(producer)
    assert bench.committed() == [b"value"]


@both_versions
def test_a_transactional_batch_without_a_transactional_id(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    asked = producer.produce_batch(bench.topic, producer.batch(b"x"), name=None)
    assert bench.error(asked) is not ErrorCode.NONE
    assert bench.fetch().high_watermark == 0
    unharmed(bench)


@both_versions
def test_a_transactional_batch_of_nobody(bench: Bench, version: int) -> None:
    producer = bench.begin(version).as_it_was(NOBODY)
    asked = producer.produce_batch(bench.topic, producer.batch(b"x", sequence=-1))
    assert bench.error(asked) is ErrorCode.INVALID_RECORD
    unharmed(bench)


@both_versions
def test_a_batch_that_is_damaged_leaves_the_transaction_as_it_was(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    if version == CLASSIC:
        bench.good(producer.add(bench.topic))
    damaged = bytearray(producer.batch(b"value"))
    damaged[-1] ^= 1
    assert bench.error(producer.produce_batch(bench.topic, damaged)) is ErrorCode.CORRUPT_MESSAGE
    bench.good(producer.produce(bench.topic, b"value"))
    bench.end(producer)
    assert bench.committed() == [b"value"]


@both_versions
def test_a_sequence_out_of_order_leaves_the_transaction_as_it_was(bench: Bench, version: int) -> None:
    producer = bench.begin(version)
    bench.write(producer, b"one")
    assert bench.error(producer.produce(bench.topic, b"x", sequence=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    bench.good(producer.produce(bench.topic, b"two"))
    bench.end(producer)
    assert bench.committed() == [b"one", b"two"]


def test_others_who_write_in_between_are_not_part_of_it(bench: Bench) -> None:
    producer = bench.begin()
    bench.write(producer, b"aborted")
    assert bench.wire.produce(bench.topic, batch_of(b"plain")).error_code == 0
    bench.end(producer, False)
    assert bench.committed() == [b"plain"]


def test_first_batches_that_are_sent_at_once_are_all_taken(bench: Bench) -> None:
    """A client may have five in flight before the coordinator has heard of the partition."""
    producer = bench.begin()
    frames = [bench.wire.frame(*producer.produce(bench.topic, b"%d" % number))[1] for number in range(5)]
    bench.wire.sock.sendall(b"".join(frames))
    assert [error_of(bench.wire.receive()) for _ in range(5)] == [ErrorCode.NONE] * 5
    bench.end(producer)
    assert bench.committed() == [b"%d" % number for number in range(5)]


def test_what_is_sent_right_behind_an_end_is_of_the_next_transaction(bench: Bench) -> None:
    producer = bench.begin()
    for number in range(20):
        bench.write(producer, b"%d" % number)
        bench.end(producer, number % 2 == 0)
    assert bench.committed() == [b"%d" % number for number in range(0, 20, 2)]


# ---- other requests


def test_brokers_ask_for_many_transactions_at_once_and_verify(bench: Bench) -> None:
    one, two = bench.begin(CLASSIC), bench.begin()
    bench.good(one.add(bench.topic, 0))
    topics = [AddPartitionsToTxnTopic(name=bench.topic, partitions=[0, 1])]
    asked = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.name, producer_id=each.stamp[0], producer_epoch=each.stamp[1],
                verify_only=each is one, topics=topics,
            )
            for each in (one, two)
        ]
    )  # fmt: skip
    for version, refused in ((5, ErrorCode.TRANSACTION_ABORTABLE), (4, ErrorCode.INVALID_TXN_STATE)):
        response = bench.ask((asked, version))
        codes = {
            each.transactional_id: [p.partition_error_code for p in each.topic_results[0].results_by_partition]
            for each in response.results_by_transaction
        }
        assert codes == {one.name: [ErrorCode.NONE, refused], two.name: [ErrorCode.NONE, ErrorCode.NONE]}
    assert [topic.partitions for topic in bench.describe(one).topics] == [[0]]
    assert [topic.partitions for topic in bench.describe(two).topics] == [[0, 1]]


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_are_fenced_in_words_that_they_know(bench: Bench, version: int, code: ErrorCode) -> None:
    zombie = bench.begin(CLASSIC)
    bench.begin(CLASSIC, zombie.name)
    request, _ = zombie.end()
    assert isinstance(request, EndTxnRequest)
    assert bench.error((request, version)) is code
    assert bench.error((zombie.add(bench.topic)[0], version)) is code
    assert bench.error((zombie.add_offsets("group")[0], version)) is code


def test_an_operator_can_end_what_hangs(bench: Bench) -> None:
    """WriteTxnMarkers, as the tool for hanging transactions sends it."""
    producer = bench.begin()
    bench.write(producer, b"value")
    marker = WritableTxnMarker(
        producer_id=producer.stamp[0], producer_epoch=producer.stamp[1], transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=bench.topic, partition_indexes=[0, 9])], coordinator_epoch=-1,
    )  # fmt: skip
    response = bench.ask((WriteTxnMarkersRequest(markers=[marker]), 1))
    assert [p.error_code for p in response.markers[0].topics[0].partitions] == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert bench.committed() == []
    unharmed(bench)


def test_an_id_has_a_coordinator_as_a_group_has(bench: Bench) -> None:
    response = bench.ask((FindCoordinatorRequest(key=bench.unique("id"), key_type=1), 3))
    assert (response.error_code, response.port) == (ErrorCode.NONE, bench.broker.port)
    names = [bench.unique("id") for _ in range(3)]
    response = bench.ask((FindCoordinatorRequest(coordinator_keys=names, key_type=1), 4))
    assert [(each.key, each.error_code, each.port) for each in response.coordinators] == [
        (name, ErrorCode.NONE, bench.broker.port) for name in names
    ]


def test_a_list_with_filters_that_mean_nothing(bench: Bench) -> None:
    producer = bench.begin()
    bench.write(producer, b"value")
    response = bench.ask((ListTransactionsRequest(state_filters=["Sleeping"]), 1))
    assert (response.error_code, response.unknown_state_filters, response.transaction_states) == (0, ["Sleeping"], [])
    response = bench.ask((ListTransactionsRequest(state_filters=["Ongoing", "Sleeping"]), 1))
    assert response.unknown_state_filters == ["Sleeping"]
    assert producer.name in [each.transactional_id for each in response.transaction_states]
    response = bench.ask((ListTransactionsRequest(transactional_id_pattern=producer.name), 2))
    assert [each.transactional_id for each in response.transaction_states] == [producer.name]
    response = bench.ask((ListTransactionsRequest(transactional_id_pattern="(unclosed"), 2))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
