"""What is read of the decisions' topic: all that it holds now, of which no more is looked at than is needed."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.pipeline import decisions
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.decisions import Decision, Write, decision_value, done_value, stuck_value
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.sink import PREFIX, StreamWriter, new_job
from penstock.pipeline.transactions import Identity, Prepared
from penstock.protocol.record_batch import Record
from tests.brokers import BrokerProcess
from tests.cli.conftest import run_penstock
from tests.pipeline.sinking import Cluster

OWN = "own"
WRITE = Write("run", "job")
PREPARED = Prepared("own/run/0.0", Identity(7, 1), TopicPartition("out", 2), 99)
DECIDED = decision_value(3, WRITE, "out", [PREPARED])

Read = Callable[[dict[str, bytes]], dict[str, Decision]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """What the sink called own is told of a topic that holds those records."""

    def read(values: dict[str, bytes]) -> dict[str, Decision]:
        records = {
            key.encode(): Record(offset, 1000 + offset, key.encode(), value)
            for offset, (key, value) in enumerate(values.items())
        }
        monkeypatch.setattr(decisions, "_wait_until_stable", lambda brokers, stop: None)
        monkeypatch.setattr(decisions, "_newest", lambda brokers, stop: records)
        return decisions.read_for(Brokers.__new__(Brokers), OWN, len(records))

    return read


def test_a_sink_is_told_of_its_own_decision_and_of_what_others_have_not_done(read: Read) -> None:
    found = read(
        {
            "own": DECIDED,
            "own#done": done_value(3, Write("next", "job")),
            "begun": DECIDED,
            "begun#done": done_value(2, WRITE),
            "begun#stuck": stuck_value(3, 5000, "why"),
            "new": DECIDED,
            "new#stuck": stuck_value(2, 5000, "why"),
            "done": DECIDED,
            "done#done": done_value(3, WRITE),
            "spaced": b'{"run": "", "batch": 3}',
            "spaced#done": b'{ "batch": 3 }',
            "#claim": b"own",
        }
    )
    assert found == {
        "own": Decision("own", 3, WRITE, "out", (), 1000, Write("next", "job")),
        "begun": Decision("begun", 3, WRITE, "out", (PREPARED,), 1002, None, 5000),
        "new": Decision("new", 3, WRITE, "out", (PREPARED,), 1005),
    }


def test_what_others_have_done_is_not_parsed(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read({"other": b'{"batch":10,so', "other#done": b'{"batch":10,on'}) == {}
        assert caplog.text == ""
        assert read({"other": b'{"batch":10,so', "other#done": b'{"batch":9,on'}) == {}
    assert "offset 0 of __penstock_decisions is no decision" in caplog.text


def decided(**changes: object) -> bytes:
    """What a sink would write, but for those fields."""
    return json.dumps({**json.loads(DECIDED), **changes}).encode()


def naming(*transaction: object) -> bytes:
    return decided(transactions=[transaction])


BAD = {
    "no object": b"7",
    "deep": b"[" * 100_000,
    "infinite batch": decided(batch=float("inf")),
    "long batch": decided(batch=1 << 70),
    "too few fields": naming("name"),
    "no such topic": naming("name", 1, 1, 5, 0, 0),
    "long producer id": naming("name", 1 << 63, 1, 0, 0, 0),
    "long epoch": naming("name", 1, 1 << 15, 0, 0, 0),
    "long partition": naming("name", 1, 1, 0, 1 << 31, 0),
    "long offset": naming("name", 1, 1, 0, 0, 10**23),
    "infinite offset": naming("name", 1, 1, 0, 0, float("-inf")),
    "half a character": naming("\ud800", 1, 1, 0, 0, 0),
    "half a character in a topic": decided(topics=["\ud800"]),
    "long name": naming("x" * 33_000, 1, 1, 0, 0, 0),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_what_somebody_else_has_written_fails_no_commit_but_that_of_its_own_sink(
    read: Read, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    assert list(read({"other": bad, "own": DECIDED})) == ["own"]
    assert "offset 0 of __penstock_decisions is no decision" in caplog.text
    assert len(caplog.text) < 1000, "however much was written"
    with pytest.raises(PipelineError, match="offset 1 of __penstock_decisions is no decision"):
        read({"other": DECIDED, "own": bad})


@pytest.mark.parametrize("bad", [b"[" * 100_000, b'{"batch": Infinity}', b"7", b'{"batch": "x"}'])
def test_a_note_that_can_not_be_read_is_no_obstacle_to_others(read: Read, bad: bytes) -> None:
    noted = {"own": DECIDED, "own#stuck": bad, "other": DECIDED, "other#stuck": bad}
    assert [each.tried_ms for each in read(noted).values()] == [None, None]
    assert list(read({"own": DECIDED, "other": DECIDED, "other#done": bad})) == ["own"]
    with pytest.raises(PipelineError, match="or the one at offset 1 does not say what is done"):
        read({"own": DECIDED, "own#done": bad})


def test_brokers_that_were_put_back_are_believed_and_not_what_a_machine_has_read_before(
    new_broker: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their topics as long again as they were, by commits from elsewhere."""

    def commit(machine: str, sink: str, batch: int, value: bytes) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / machine))
        StreamWriter(cluster.options, new_job()).commit([cluster.prepare(sink, "run", value)], batch)

    broker, sink = new_broker(), f"{PREFIX}{uuid.uuid4()}"
    assert run_penstock("topic", "create", "out", "--bootstrap", broker.bootstrap).code == 0
    cluster = Cluster(broker.bootstrap, "out")
    commit("this", sink, 0, b"first")
    broker.stop()
    shutil.copytree(broker.data, tmp_path / "backup")
    broker.start()
    for batch in (1, 2):
        commit("this", sink, batch, b"lost")
    broker.stop()
    shutil.rmtree(broker.data)
    shutil.copytree(tmp_path / "backup", broker.data)
    broker.start()
    for batch in range(3):
        commit("other", f"{PREFIX}of-another", batch, b"of another")
    commit("this", sink, 1, b"second")
    assert cluster.seen() == [b"first", *[b"of another"] * 3, b"second"]
    cluster.brokers.close()
