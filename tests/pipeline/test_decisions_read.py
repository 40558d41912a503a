"""What is kept of decisions that were read: a copy that is never believed where it could be wrong."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline import deciding, decisions, decisions_read
from penstock.pipeline.decisions import Write, decision_value, done_value
from penstock.pipeline.decisions_read import ReadDecisions
from penstock.pipeline.fetching import RangeFetcher
from penstock.pipeline.sink import PREFIX, StreamWriter, new_job
from penstock.protocol.record_batch import Record
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import Topics
from tests.pipeline.sinking import Cluster


@pytest.fixture
def known() -> Iterator[ReadDecisions]:
    store = ReadDecisions(None)
    yield store
    store.close()


def record(key: str, value: bytes | None, offset: int) -> dict[bytes, Record]:
    return {key.encode(): Record(offset, 1000 + offset, key.encode(), value)}


WRITE = Write("run", "job")


def test_only_what_is_not_done_is_handed_to_others(known: ReadDecisions) -> None:
    def sinks(sink: str) -> list[str]:
        return [each.sink for each in known.of(sink)]

    known.add(0, record("a", decision_value(1, WRITE, "t", ()), 0) | record("b", b"not JSON", 1), 2)
    assert sinks("b") == ["a", "b"]
    known.add(2, record("a#done", done_value(0, WRITE), 2), 3)
    assert sinks("b") == ["a", "b"], "an older batch was done"
    known.add(3, record("a#done", done_value(1, WRITE), 3), 4)
    assert sinks("b") == ["b"]
    assert sinks("a") == ["a", "b"]
    known.add(4, record("a", decision_value(2, WRITE, "t", ()), 4) | record("b", None, 5), 6)
    assert sinks("x") == ["a"]
    known.add(6, record("a", None, 6) | record("a#done", None, 7), 8)
    assert known.all() == []


def test_another_commit_may_have_read_on_meanwhile(known: ReadDecisions) -> None:
    known.add(0, record("a", decision_value(1, WRITE, "t", ()), 0), 1)
    known.add(1, record("a#done", done_value(1, WRITE), 1), 2)
    known.add(1, record("a", decision_value(1, WRITE, "t", ()), 0), 5)
    assert known.stop(10) == 2, "what began elsewhere is not taken"


def test_what_can_not_be_of_this_log_or_is_old_is_read_anew(
    known: ReadDecisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.add(0, record("a", decision_value(1, WRITE, "t", ()), 0), 7)
    assert (known.stop(7), known.stop(6)) == (7, 0)
    monkeypatch.setattr(decisions_read, "AGE_S_MAX", 0)
    assert known.stop(7) == 0
    known.add(0, record("b", decision_value(1, WRITE, "t", ()), 3), 7)
    assert [each.sink for each in known.all()] == ["b"]


# ---- with a broker


@pytest.fixture
def cluster(
    broker: BrokerProcess, new_topic: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = Cluster(broker.bootstrap, new_topic())
    yield cluster
    cluster.brokers.close()


def files(folder: Path) -> list[Path]:
    return list((folder / "penstock" / "decisions").glob("*.db"))


def commit(cluster: Cluster, sink: str, batch: int) -> None:
    StreamWriter(cluster.options, new_job()).commit([cluster.prepare(sink, "run", b"%d" % batch)], batch)


def test_a_commit_reads_on_where_the_last_one_stopped(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding.ensure_topic(cluster.brokers)
    fetched: list[int] = []
    batches = RangeFetcher.batches

    def counted(fetcher: RangeFetcher) -> Iterator[memoryview]:
        for batch in batches(fetcher):
            fetched.append(1) if fetcher._place == decisions.PLACE else None
            yield batch

    monkeypatch.setattr(RangeFetcher, "batches", counted)
    sink = f"{PREFIX}{uuid.uuid4()}"
    for batch in range(30):
        commit(cluster, sink, batch)
        if batch == 10:
            before = len(fetched)
    assert len(fetched) - before <= 19 * 5, "as many as were written since, and not all that there are"
    assert cluster.seen() == [b"%d" % batch for batch in range(30)]


@pytest.mark.parametrize("damage", ["garbage", "a table is gone", "no folder"])
def test_a_copy_that_can_not_be_used_costs_nothing_but_time(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    sink = f"{PREFIX}{uuid.uuid4()}"
    commit(cluster, sink, 0)
    (path,) = files(tmp_path)
    if damage == "garbage":
        path.write_bytes(b"\xff" * path.stat().st_size)
    elif damage == "a table is gone":
        with sqlite3.connect(path) as store:
            store.execute("DROP TABLE sinks")
            store.execute("CREATE TABLE sinks (is_open, other)")
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    for batch in (0, 1):
        commit(cluster, sink, batch)
    assert cluster.seen() == [b"0", b"1"]
    assert damage == "no folder" or sqlite3.connect(path).execute("SELECT count(decision) FROM sinks"), "made anew"
