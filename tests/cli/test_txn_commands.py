"""`penstock txn`: what an operator sees of transactions, and how one is ended that its producer does not end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.cli.raw import ask, coordinator_of
from penstock.protocol.messages import write_txn_markers
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.record_batch import Record, build_batch
from tests.brokers import BrokerProcess
from tests.cli.conftest import Finished, run_penstock

OpenTransaction = Callable[[str, str], Producer]


@pytest.fixture
def open_transaction(shared_broker: BrokerProcess) -> Iterator[OpenTransaction]:
    def begin(transactional_id: str, topic: str) -> Producer:
        producer = Producer({
            "bootstrap.servers": shared_broker.bootstrap, "transactional.id": transactional_id, "log_level": 0,
        })  # fmt: skip
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(10)
        return producer

    return begin


def penstock(shared_broker: BrokerProcess, *arguments: str, expect: int = 0) -> Finished:
    done = run_penstock("txn", *arguments, "--bootstrap", shared_broker.bootstrap)
    assert done.code == expect, done.err
    return done


def test_an_open_transaction_is_shown_and_aborted(
    shared_broker: BrokerProcess, unique: Callable[[str], str], open_transaction: OpenTransaction
) -> None:
    name, topic = unique("txn"), unique("topic")
    producer = open_transaction(name, topic)
    listed = {each["id"]: each for each in penstock(shared_broker, "list", "--state", "Ongoing", "--json").json}
    assert listed[name]["state"] == "Ongoing"
    assert name in penstock(shared_broker, "list", "--pattern", f"{name}").out
    assert name not in penstock(shared_broker, "list", "--older-than", "3600").out
    shown = penstock(shared_broker, "describe", name, "--json").json
    assert (shown["state"], shown["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 0}])
    assert 0 <= shown["open_s"] < 60
    assert "Ongoing" in penstock(shared_broker, "describe", name).out
    assert "Aborted" in penstock(shared_broker, "abort", name, "--yes").out
    assert penstock(shared_broker, "describe", name, "--json").json["state"] == "Empty"
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    assert "no transaction open" in penstock(shared_broker, "abort", name).out


def test_one_that_a_coordinator_knows_does_not_hang(
    shared_broker: BrokerProcess, unique: Callable[[str], str], open_transaction: OpenTransaction
) -> None:
    """Ended behind the coordinator's back, its producer would be told that it committed."""
    name, topic = unique("txn"), unique("topic")
    producer = open_transaction(name, topic)
    place = ("--topic", topic, "--partition", "0")
    assert "begin at 0" in penstock(shared_broker, "abort", *place, "--offset", "7", "--yes", expect=1).err
    refused = penstock(shared_broker, "abort", *place, "--offset", "0", "--yes", expect=1)
    assert f"penstock txn abort {name}" in refused.err
    producer.commit_transaction(10)


def test_one_that_hangs_is_ended_where_it_hangs(new_broker: Callable[..., BrokerProcess]) -> None:
    """With a client that never told the coordinator, and a broker that does not ask."""
    broker = new_broker(transaction_partition_verification_enable="false")
    address = ("127.0.0.1", broker.port)
    assert run_penstock("topic", "create", "t", "--bootstrap", broker.bootstrap).code == 0
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"x")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )
    data = [PartitionProduceData(index=0, records=memoryview(batch))]
    topic = TopicProduceData(name="t", partition_data=data)
    request = ProduceRequest(transactional_id="never-begun", acks=-1, timeout_ms=1000, topic_data=[topic])
    assert ask(address, request, 9, ProduceResponse).responses[0].partition_responses[0].error_code == 0
    place = ("--topic", "t", "--partition", "0", "--offset", "0")
    assert penstock(broker, "abort", *place, "--yes", "--json").json == {"producer_id": 5, "aborted": True}
    assert "None is open" in penstock(broker, "abort", *place, "--yes", expect=1).err


def test_what_makes_no_sense_is_refused(shared_broker: BrokerProcess) -> None:
    assert "no transactional id" in penstock(shared_broker, "describe", "nobody", expect=1).err
    assert penstock(shared_broker, "abort", expect=2).err
    assert penstock(shared_broker, "abort", "x", "--topic", "y", expect=2).err
    assert "INVALID_REGULAR_EXPRESSION" in penstock(shared_broker, "list", "--pattern", "(", expect=1).err


def test_a_marker_for_a_partition_that_is_not_there(shared_broker: BrokerProcess) -> None:
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=1, topics=[write_txn_markers.WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0])]
    )
    coordinator = coordinator_of(("127.0.0.1", shared_broker.port), "x")
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
    answer = ask(coordinator, request, 1, write_txn_markers.WriteTxnMarkersResponse)
    assert answer.markers[0].topics[0].partitions[0].error_code == 3
