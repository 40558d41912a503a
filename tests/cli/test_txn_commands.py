"""`penstock txn`: what an operator sees of transactions, and how one is ended that its producer does not end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.cli.raw import ask, coordinator_of
from penstock.protocol.messages import write_txn_markers
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


def test_one_that_hangs_is_ended_where_it_hangs(
    shared_broker: BrokerProcess, unique: Callable[[str], str], open_transaction: OpenTransaction
) -> None:
    name, topic = unique("txn"), unique("topic")
    open_transaction(name, topic)
    place = ("--topic", topic, "--partition", "0")
    refused = penstock(shared_broker, "abort", *place, "--offset", "7", "--yes", expect=1)
    assert "begin at 0" in refused.err
    assert penstock(shared_broker, "abort", *place, "--offset", "0", "--yes", "--json").json["aborted"] is True
    assert "None is open" in penstock(shared_broker, "abort", *place, "--offset", "0", "--yes", expect=1).err


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
