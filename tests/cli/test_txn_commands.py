"""`penstock txn`: what an operator sees of transactions, and how one is ended that its producer does not end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.cli import main
from penstock.cli.bootstrap import find
from penstock.cli.connection import Connection
from penstock.cli.problem import Problem
from penstock.cli.raw import ask, coordinator_of
from penstock.cli.txn.decided import look_for_decided, read_decided
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.deciding import Claim
from penstock.pipeline.decisions import Write
from penstock.pipeline.problem import Fenced
from penstock.pipeline.transactions import Identity, Prepared
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import write_txn_markers
from penstock.protocol.messages.describe_transactions import TransactionState
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.record_batch import Record, build_batch
from tests.brokers import BrokerProcess
from tests.cli.conftest import Finished, clean_environment, command, run_penstock
from tests.clients.wire import Wire
from tests.pipeline.conftest import create_topic
from tests.pipeline.sinking import Cluster, prepared_of
from tests.transactions.raw import RawProducer, committed_values, error_of

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


# ---- two phases (KIP-939)


@pytest.fixture
def prepared(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> Iterator[tuple[RawProducer, str, Wire]]:
    """A transaction whose producer has gone, its topic, and a connection."""
    producer, topic = RawProducer(unique("prepared")), unique("topic")
    assert run_penstock("topic", "create", topic, "--bootstrap", shared_broker.bootstrap).code == 0
    with Wire(shared_broker.bootstrap) as wire:
        coordinator_of(("127.0.0.1", shared_broker.port), producer.name)
        producer.heard(wire.ask(*producer.initialize(two_phase=True)))
        assert error_of(wire.ask(*producer.produce(topic, b"value"))) == 0
        yield producer, topic, wire


def seen(wire: Wire, topic: str) -> list[bytes | None]:
    """What readers of committed data see, once nothing is undecided any more."""
    deadline = time.monotonic() + 10
    while (found := wire.fetch(topic, 0, isolation_level=1, wait_ms=0)).last_stable_offset < found.high_watermark:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return committed_values(found)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_is_shown_and_ended(
    shared_broker: BrokerProcess, prepared: tuple[RawProducer, str, Wire], commit: bool
) -> None:
    producer, topic, wire = prepared
    name, verb = producer.name, "commit" if commit else "abort"
    (listed,) = penstock(shared_broker, "list", "--pattern", name, "--json").json
    assert (listed["state"], listed["two_phase"]) == ("Ongoing", True)
    assert 0 <= listed["open_s"] < 60
    row = penstock(shared_broker, "list", "--pattern", name).out.splitlines()[-1].split()
    assert (row[0], row[1], row[4]) == (name, "Ongoing", "never")
    shown = penstock(shared_broker, "describe", name, "--json").json
    assert (shown["two_phase"], shown["producer_epoch"]) == (True, producer.stamp[1])
    assert "never" in penstock(shared_broker, "describe", name).out
    assert "--yes" in penstock(shared_broker, verb, name, expect=2).err, "nobody is there to ask"
    assert wire.fetch(topic, 0, isolation_level=1, wait_ms=0).last_stable_offset == 0

    done = penstock(shared_broker, verb, name, "--yes", "--json").json
    assert done == {"id": name, "committed" if commit else "aborted": True}
    assert seen(wire, topic) == ([b"value"] if commit else [])
    assert error_of(wire.ask(*producer.end(commit))) is ErrorCode.PRODUCER_FENCED
    assert "no transaction open" in penstock(shared_broker, "commit", name, "--yes", expect=1).err
    assert "no transaction open" in penstock(shared_broker, "abort", name).out


def test_it_is_ended_although_another_has_taken_it_over(
    shared_broker: BrokerProcess, prepared: tuple[RawProducer, str, Wire]
) -> None:
    producer, topic, wire = prepared
    taker = producer.as_it_was()
    taker.heard(wire.ask(*taker.initialize(two_phase=True, keeps=True)))
    assert "Committed" in penstock(shared_broker, "commit", producer.name, "--yes").out
    assert error_of(wire.ask(*taker.end(False))) is ErrorCode.PRODUCER_FENCED
    assert seen(wire, topic) == [b"value"]


def test_only_what_was_prepared_may_be_committed_by_another(
    shared_broker: BrokerProcess, unique: Callable[[str], str], open_transaction: OpenTransaction
) -> None:
    name = unique("txn")
    producer = open_transaction(name, unique("topic"))
    (listed,) = penstock(shared_broker, "list", "--pattern", name, "--json").json
    assert listed["two_phase"] is False
    refused = penstock(shared_broker, "commit", name, "--yes", expect=1).err
    assert "only its producer may commit" in refused
    assert f"penstock txn abort {name}" in refused
    producer.commit_transaction(10)
    assert "no transactional id" in penstock(shared_broker, "commit", "nobody", "--yes", expect=1).err


def test_no_other_transaction_is_ended_than_the_one_that_was_looked_at(
    shared_broker: BrokerProcess, prepared: tuple[RawProducer, str, Wire]
) -> None:
    """Its producer was not gone: it ends it, and begins another, while the operator makes up their mind."""
    producer, topic, wire = prepared
    keyboard, terminal = pty.openpty()
    asking = subprocess.Popen(
        command("txn", "commit", producer.name, "--bootstrap", shared_broker.bootstrap), env=clean_environment(),
        stdin=terminal, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert asking.stderr is not None
        question = b""
        while not question.endswith(b"[y/N] "):
            question += asking.stderr.read(1)
            assert asking.poll() is None, question
        producer.heard(wire.ask(*producer.end()))
        assert seen(wire, topic) == [b"value"]
        assert error_of(wire.ask(*producer.produce(topic, b"another"))) == 0
        os.write(keyboard, b"y\n")
        assert b"that transaction is over" in asking.communicate(timeout=20)[1]
    finally:
        asking.kill()
        os.close(keyboard)
        os.close(terminal)
    (listed,) = penstock(shared_broker, "list", "--pattern", producer.name, "--json").json
    assert listed["state"] == "Ongoing"


# ---- decided by a sink of Spark


@pytest.fixture
def decided(shared_broker: BrokerProcess, prepared: tuple[RawProducer, str, Wire]) -> Iterator[str]:
    """By whom it is to be committed."""
    producer, topic, _ = prepared
    address = ("127.0.0.1", shared_broker.port)
    with Brokers(ClientSettings((address,))) as brokers:
        claim = Claim(brokers, f"penstock-sink-{producer.name}")
        claim.known()
        waiting = Prepared(producer.name, Identity(*producer.stamp), TopicPartition(topic, 0), 0)
        claim.decide(7, Write("run", "job"), topic, (waiting,))
        yield f"{claim.sink} batch 7"
        claim.forget()


def test_a_transaction_that_a_sink_has_decided_to_commit_is_shown_so_and_not_aborted(
    shared_broker: BrokerProcess, prepared: tuple[RawProducer, str, Wire], decided: str
) -> None:
    producer, topic, wire = prepared
    name = producer.name
    (listed,) = penstock(shared_broker, "list", "--pattern", name, "--json").json
    assert listed["decided_by"] == decided
    assert decided in penstock(shared_broker, "list", "--pattern", name).out
    assert penstock(shared_broker, "describe", name, "--json").json["decided_by"] == decided
    assert decided in penstock(shared_broker, "describe", name).out
    refused = penstock(shared_broker, "abort", name, "--yes", expect=1).err
    assert decided in refused
    assert "--force" in refused
    assert "Committed" in penstock(shared_broker, "commit", name, "--yes").out
    assert seen(wire, topic) == [b"value"]
    assert penstock(shared_broker, "describe", name, "--json").json["decided_by"] is None


def test_a_decided_transaction_is_aborted_by_force(
    shared_broker: BrokerProcess, prepared: tuple[RawProducer, str, Wire], decided: str
) -> None:
    producer, topic, wire = prepared
    assert "Aborted" in penstock(shared_broker, "abort", producer.name, "--yes", "--force").out
    assert seen(wire, topic) == []


def test_transactions_are_shown_although_decisions_can_not_be_read(
    shared_broker: BrokerProcess, decided: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock.pipeline.decisions.DECISION_BYTES_MAX", 1)  # nothing fits
    connection = Connection(find(shared_broker.bootstrap))
    state = TransactionState(transactional_id="any")
    assert look_for_decided(connection).by(state) is None
    assert "can't read what sinks have decided" in capsys.readouterr().err
    with pytest.raises(Problem):
        read_decided(connection)


@pytest.fixture
def of_sink(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> Iterator[Cluster]:
    topic = unique("rows")
    create_topic(shared_broker.bootstrap, topic)
    cluster = Cluster(shared_broker.bootstrap, topic)
    yield cluster
    cluster.brokers.close()


def test_what_is_decided_while_a_person_is_asked_is_not_aborted(
    of_sink: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = unique("penstock-sink-")
    (prepared,) = prepared_of(of_sink.prepare(sink, "run", b"row"))
    claim = Claim(of_sink.brokers, sink)

    def decide(*_: object) -> None:
        claim.known()
        claim.decide(0, Write("run", "job"), of_sink.topic, (prepared,))

    monkeypatch.setattr("penstock.cli.output.confirm", decide)
    where = ["--bootstrap", of_sink.bootstrap]
    assert main(["txn", "abort", prepared.transactional_id, *where]) == 1
    monkeypatch.undo()
    assert f"{sink} batch 0 was decided so" in capsys.readouterr().err
    with pytest.raises(Fenced):
        claim.decide(1, Write("run", "job"), of_sink.topic, ())
    assert main(["txn", "commit", prepared.transactional_id, "--yes", *where]) == 0
    assert of_sink.seen() == [b"row"]
    claim.forget()


def test_what_a_sink_has_not_decided_is_not_committed_but_by_force(
    of_sink: Cluster, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    sink = unique("penstock-sink-")
    prepared = prepared_of(*(of_sink.prepare(sink, "run", b"%d" % task, task) for task in range(2)))
    given_up, forced = (each.transactional_id for each in prepared)
    where = ["--yes", "--bootstrap", of_sink.bootstrap]
    assert main(["txn", "commit", forced, *where]) == 1
    assert "they would be there twice" in capsys.readouterr().err
    assert main(["txn", "abort", given_up, *where]) == 0
    assert main(["txn", "commit", forced, "--force", *where]) == 0
    assert of_sink.seen() == [b"1"]


def test_decisions_are_read_where_spark_is_not_installed() -> None:
    hide = "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pyspark']))"
    code = f"{hide}; from penstock.pipeline.decisions import read_all; from penstock.pipeline.deciding import Claim"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---- those that hang


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
