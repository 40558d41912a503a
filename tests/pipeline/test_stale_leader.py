"""Two drivers, and a leader of the decisions that does not know that it was replaced: one decision wins."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from penstock.pipeline import deciding, decisions
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.connection import Connection
from penstock.pipeline.deciding import Claim
from penstock.pipeline.decisions import Decision
from penstock.pipeline.problem import Fenced
from penstock.pipeline.sink import PREFIX, StreamWriter, new_job
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.schema import Message
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import create_topic
from tests.pipeline.sinking import Cluster

KNOWN_S_MAX = 30.0
ASK_MS = 1_000  # a broker that is paused takes connections, and answers nothing


@pytest.fixture
def brokers(tmp_path: Path, zookeeper_path: str) -> Iterator[dict[int, BrokerProcess]]:
    made = {
        node_id: BrokerProcess(
            tmp_path / f"broker-{node_id}",
            node_id=node_id,
            zookeeper_connect=zookeeper_path,
            zookeeper_session_timeout_ms=1_000,
            min_insync_replicas=2,
            transaction_state_log_num_partitions=3,
        )
        for node_id in (1, 2, 3)
    }
    with ThreadPoolExecutor() as pool:
        list(pool.map(BrokerProcess.start, made.values()))
    admin = AdminClient({"bootstrap.servers": made[1].bootstrap, "log_level": 0})
    deadline = time.monotonic() + KNOWN_S_MAX
    while len(admin.list_topics(timeout=10).brokers) < len(made):  # a topic has replicas on those that are known
        assert time.monotonic() < deadline, "the brokers do not find each other"
        time.sleep(0.05)
    yield made
    for broker in made.values():
        broker.close()  # SIGKILL ends one that is paused too


def leader_of_decisions(brokers: Brokers) -> int:
    return brokers.topics([decisions.TOPIC])[decisions.TOPIC].leaders[0]


def test_a_decision_that_a_replaced_leader_was_to_write_is_none(
    brokers: dict[int, BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused with the request in its socket, replaced, and wakes up when another driver has decided."""
    bootstrap = ",".join(each.bootstrap for each in brokers.values())
    create_topic(bootstrap, "out")
    sink = f"{PREFIX}{uuid.uuid4()}"
    older, newer = Cluster(bootstrap, "out"), Cluster(bootstrap, "out", **{"kafka.request.timeout.ms": ASK_MS})
    decide, send = Claim.decide, Connection.send
    paused: list[int] = []
    is_under_way = threading.Event()

    def decide_at_a_leader_that_is_paused(claim: Claim, *decision: object) -> Decision:
        monkeypatch.setattr(Claim, "decide", decide)
        paused.append(leader_of_decisions(older.brokers))
        os.kill(brokers[paused[0]].pid, signal.SIGSTOP)
        return decide(claim, *decision)  # type: ignore[arg-type]

    def send_and_tell(connection: Connection, request: Message, version: int) -> int:
        number = send(connection, request, version)
        if paused and isinstance(request, ProduceRequest):
            monkeypatch.setattr(Connection, "send", send)
            is_under_way.set()
        return number

    monkeypatch.setattr(Claim, "decide", decide_at_a_leader_that_is_paused)
    monkeypatch.setattr(Connection, "send", send_and_tell)
    with ThreadPoolExecutor(1) as pool:
        message = older.prepare(sink, "older", b"row")
        of_older = pool.submit(StreamWriter(older.options, new_job()).commit, [message], 0)
        try:
            assert is_under_way.wait(30)
            StreamWriter(newer.options, new_job()).commit([newer.prepare(sink, "newer", b"row")], 0)
            assert leader_of_decisions(newer.brokers) != paused[0]
        finally:
            for node_id in paused:
                os.kill(brokers[node_id].pid, signal.SIGCONT)
        with pytest.raises(Fenced, match="another run of the query"):
            of_older.result(60)
    assert deciding.Claim(newer.brokers, sink).known()[sink].write.run == "newer"
    StreamWriter(older.options, new_job()).abort([message], 0)
    assert newer.seen() == [b"row"]
    assert newer.open_names(f"{sink}/") == {}
    for each in (older, newer):
        each.brokers.close()
