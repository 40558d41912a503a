"""Two drivers, an operator, attempts that come too late: a batch is seen whole and once, or somebody is told.

Without Spark: a test does what tasks do, and calls the driver's part of the sink.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow
import pytest

from penstock.pipeline import deciding, decisions, transactions
from penstock.pipeline.brokers import LATEST, Brokers, TopicPartition
from penstock.pipeline.deciding import Claim
from penstock.pipeline.decisions import Decision, Write
from penstock.pipeline.options import WriteOptions, write_options
from penstock.pipeline.problem import Expired, Fenced, HeldBack, PipelineError
from penstock.pipeline.producing import Producer
from penstock.pipeline.sink import PREFIX, STALE_MS, TRY_AGAIN_MS, BatchWriter, Rows, StreamWriter, Written, new_job
from penstock.pipeline.transactions import EMPTY, ONGOING, Identity, Kept, Prepared
from tests.brokers import BrokerProcess
from tests.cli.conftest import run_penstock
from tests.pipeline.conftest import Topics
from tests.pipeline.sinking import Cluster, encoded, prepared_of


@pytest.fixture
def cluster(broker: BrokerProcess, new_topic: Topics) -> Iterator[Cluster]:
    cluster = Cluster(broker.bootstrap, new_topic())
    yield cluster
    cluster.brokers.close()


@pytest.fixture
def first_cluster(new_broker: Callable[..., BrokerProcess]) -> Iterator[Cluster]:
    """On which no sink has ever decided anything."""
    broker = new_broker()
    assert run_penstock("topic", "create", "out", "--bootstrap", broker.bootstrap).code == 0
    cluster = Cluster(broker.bootstrap, "out")
    yield cluster
    cluster.brokers.close()


@pytest.fixture
def sink() -> str:
    return f"{PREFIX}{uuid.uuid4()}"


def stream(cluster: Cluster, **more: object) -> StreamWriter:
    return StreamWriter(cluster.options_of(**more), new_job())


# ---- two drivers


def test_a_batch_is_committed_once_however_often_its_driver_comes(cluster: Cluster, sink: str) -> None:
    for run in ("first", "second"):
        stream(cluster).commit([cluster.prepare(sink, run, b"one"), cluster.prepare(sink, run, b"two", 1)], 0)
        assert sorted(map(bytes, filter(None, cluster.seen()))) == [b"one", b"two"]
    assert cluster.open_names(sink) == {}
    assert cluster.decision(sink).done_by is not None


def test_an_older_driver_that_wakes_up_leaves_the_batch_of_a_newer_one_alone(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still when its own batch is committed, before it clears up."""
    newer = stream(cluster)
    of_newer: list[Written] = []
    names_under = transactions.names_under

    def slow(brokers: Brokers, prefix: str) -> dict[str, str]:
        monkeypatch.setattr(transactions, "names_under", names_under)
        newer.commit([cluster.prepare(sink, "newer", b"fifth")], 5)
        of_newer.append(cluster.prepare(sink, "newer", b"sixth"))
        return names_under(brokers, prefix)

    monkeypatch.setattr(transactions, "names_under", slow)
    stream(cluster).commit([cluster.prepare(sink, "older", b"fifth")], 5)
    newer.commit(list(of_newer), 6)
    assert cluster.seen() == [b"fifth", b"sixth"]


def test_what_a_newer_driver_gave_up_can_not_be_decided(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = cluster.prepare(sink, "older", b"row")
    take_over = deciding.take_over_prepared

    def slow(brokers: Brokers, prepared: tuple[Prepared, ...]) -> dict[str, Identity]:
        owners = take_over(brokers, prepared)
        stream(cluster).commit([Written(sink, "newer", None)], 0)  # claims, and gives up what is open
        return owners

    monkeypatch.setattr(deciding, "take_over_prepared", slow)
    with pytest.raises(Fenced, match="another run of the query"):
        stream(cluster).commit([message], 0)
    assert sink not in decisions.read_all(cluster.brokers)
    assert cluster.seen() == []


@pytest.mark.parametrize("step", ["take_over", "claim"])
def test_who_gives_up_sees_a_decision_that_came_meanwhile(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Another driver decides before one of its steps, and dies."""
    message = cluster.prepare(sink, "run", b"row")
    take_over, known = transactions.take_over, Claim.known

    def decide() -> None:
        monkeypatch.setattr(transactions, "take_over", take_over)
        monkeypatch.setattr(Claim, "known", known)
        other = Claim(cluster.brokers, sink)
        other.known()
        deciding.take_over_prepared(cluster.brokers, prepared_of(message))
        other.decide(0, Write("run", "job"), cluster.topic, prepared_of(message))

    def slow_take_over(brokers: Brokers, name: str) -> Kept:
        decide()
        return take_over(brokers, name)

    def slow_known(claim: Claim) -> dict[str, Decision]:
        decide()
        return known(claim)

    if step == "take_over":
        monkeypatch.setattr(transactions, "take_over", slow_take_over)
    else:
        monkeypatch.setattr(Claim, "known", slow_known)
    stream(cluster).abort([message], 0)
    stream(cluster).commit([Written(sink, "next", None)], 0)
    assert cluster.seen() == [b"row"]


def test_who_gives_up_leaves_what_another_has_taken_over_since(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = cluster.prepare(sink, "run", b"row")
    (prepared,) = prepared_of(message)
    known = Claim.known

    def slow(claim: Claim) -> dict[str, Decision]:
        found = known(claim)
        transactions.take_over(cluster.brokers, prepared.transactional_id)
        return found

    monkeypatch.setattr(Claim, "known", slow)
    stream(cluster).abort([message], 0)
    assert cluster.open_names(sink) == {prepared.transactional_id: ONGOING}
    monkeypatch.undo()
    stream(cluster).abort([message], 0)
    assert cluster.open_names(sink) == {}


def test_a_decision_is_carried_out_although_another_has_taken_the_transaction_over(cluster: Cluster, sink: str) -> None:
    message = cluster.prepare(sink, "run", b"row")
    (prepared,) = prepared_of(message)
    claim = Claim(cluster.brokers, sink)
    claim.known()
    owners = deciding.take_over_prepared(cluster.brokers, [prepared])
    decision = claim.decide(0, Write("run", "job"), cluster.topic, (prepared,))
    transactions.take_over(cluster.brokers, prepared.transactional_id)
    deciding.roll_forward(cluster.brokers, decision, owners)
    assert cluster.seen() == [b"row"]


def test_what_somebody_ended_before_the_decision_fails_the_batch(cluster: Cluster, sink: str) -> None:
    messages = [cluster.prepare(sink, "run", b"row %d" % task, task) for task in range(2)]
    (_, victim) = prepared_of(*messages)
    transactions.end(cluster.brokers, victim.transactional_id, victim.identity, commit=False)
    with pytest.raises(PipelineError, match=victim.transactional_id):
        stream(cluster).commit([*messages], 0)
    assert sink not in decisions.read_all(cluster.brokers)
    stream(cluster).abort([*messages], 0)
    assert cluster.seen() == []


# ---- what was decided


def decided(cluster: Cluster, sink: str, count: int) -> Decision:
    """A driver that dies when it has decided."""
    messages = [cluster.prepare(sink, "died", b"row %d" % task, task) for task in range(count)]
    claim = Claim(cluster.brokers, sink)
    claim.known()
    return claim.decide(0, Write("died", "job"), cluster.topic, prepared_of(*messages))


def test_a_decided_transaction_that_was_aborted_is_never_called_done(cluster: Cluster, sink: str) -> None:
    decision = decided(cluster, sink, 3)
    victim = decision.transactions[1].transactional_id
    done = run_penstock("txn", "abort", victim, "--yes", "--force", "--bootstrap", cluster.bootstrap)
    assert done.code == 0, done.err
    for _ in range(2):  # nor the next time
        with pytest.raises(PipelineError, match=f"aborted 1 of its 3 transactions: {victim}"):
            stream(cluster).commit([Written(sink, "next", None)], 0)
    assert cluster.decision(sink).done_by is None
    assert cluster.seen() == [b"row 0", b"row 2"], "what is decided is committed as far as it can be"


@pytest.mark.parametrize("commit", [True, False])
def test_how_a_transaction_ended_is_seen_in_its_log_if_its_coordinator_has_forgotten(
    cluster: Cluster, sink: str, commit: bool
) -> None:
    (prepared,) = prepared_of(cluster.prepare(sink, "run", b"row"))
    transactions.end(cluster.brokers, prepared.transactional_id, prepared.identity, commit=commit)
    transactions.take_over(cluster.brokers, prepared.transactional_id)
    assert cluster.open_names(sink) == {prepared.transactional_id: EMPTY}
    assert transactions.roll_forward(cluster.brokers, prepared) is commit
    unknown = prepared._replace(transactional_id=f"{prepared.transactional_id}.unknown")
    assert transactions.roll_forward(cluster.brokers, unknown) is commit


def ended_and_forgotten(cluster: Cluster, prepared: Prepared) -> None:
    """Committed, and then the name is used again: how it ended is seen in its log alone."""
    transactions.end(cluster.brokers, prepared.transactional_id, prepared.identity, commit=True)
    transactions.take_over(cluster.brokers, prepared.transactional_id)


def test_what_another_query_holds_back_is_not_taken_for_aborted(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MARKERS_S", 0.1)
    (before,) = prepared_of(cluster.prepare(f"{PREFIX}{uuid.uuid4()}", "run", b"of another, whose driver is away"))
    (prepared,) = prepared_of(cluster.prepare(sink, "run", b"row"))
    ended_and_forgotten(cluster, prepared)
    decision = Decision(sink, 0, Write("run", "job"), cluster.topic, (prepared,))
    with pytest.raises(HeldBack, match=f"{cluster.topic}-0 another one is open from offset 0 on"):
        deciding.roll_forward(cluster.brokers, decision, {})
    transactions.end(cluster.brokers, before.transactional_id, before.identity, commit=False)
    deciding.roll_forward(cluster.brokers, decision, {})
    assert cluster.seen() == [b"row"]


def test_what_others_of_the_same_batch_hold_back_is_seen_when_they_are_committed(cluster: Cluster, sink: str) -> None:
    waiting, ended = prepared_of(*(cluster.prepare(sink, "run", b"row %d" % task, task) for task in range(2)))
    ended_and_forgotten(cluster, ended)
    decision = Decision(sink, 0, Write("run", "job"), cluster.topic, (ended, waiting))
    deciding.roll_forward(cluster.brokers, decision, {})
    assert cluster.seen() == [b"row 0", b"row 1"]


def test_the_next_transaction_under_a_name_is_not_taken_for_the_decided_one(cluster: Cluster, sink: str) -> None:
    (prepared,) = prepared_of(cluster.prepare(sink, "run", b"row"))
    assert transactions.roll_forward(cluster.brokers, prepared, prepared.identity)
    name = prepared.transactional_id
    identity = cluster.begin(name)
    cluster.put(b"next", name, identity)
    assert transactions.roll_forward(cluster.brokers, prepared)
    assert cluster.open_names(sink) == {name: ONGOING}
    transactions.end(cluster.brokers, name, identity, commit=False)  # it is its task's still
    assert cluster.seen() == [b"row"]


def test_a_decision_is_read_up_to_the_claim_and_not_as_far_as_a_leader_knows(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was replaced shows an older end of the log, until the next one is known."""
    decided(cluster, sink, 1)
    stale = cluster.brokers.offsets({decisions.PLACE: LATEST})[decisions.PLACE] - 3
    offsets, asked = Brokers.offsets, []

    def at_first_stale(brokers: Brokers, wanted: dict[TopicPartition, int], **more: bool) -> dict[TopicPartition, int]:
        found = offsets(brokers, wanted, **more)
        if wanted.get(decisions.PLACE) == LATEST:
            asked.append(found)
        return {decisions.PLACE: stale} if wanted.get(decisions.PLACE) == LATEST and len(asked) < 3 else found

    monkeypatch.setattr(Brokers, "offsets", at_first_stale)
    assert Claim(cluster.brokers, sink).known()[sink].batch == 0
    assert len(asked) >= 3


def test_what_is_no_decision_is_passed_over(cluster: Cluster, sink: str, caplog: pytest.LogCaptureFixture) -> None:
    deciding.ensure_topic(cluster.brokers)
    for key, value in [(b"k", b"hello"), (b"\xff", b"{}"), (b"other", b'{"batch": 1, "transactions": 7}')]:
        producer = Producer(cluster.brokers, transactions.init_idempotent(cluster.brokers))
        producer.send(encoded(decisions.TOPIC, key, value))
        producer.flush()
    with caplog.at_level(logging.WARNING):
        stream(cluster).commit([cluster.prepare(sink, "run", b"row")], 0)
    assert cluster.seen() == [b"row"]
    assert "is no decision" in caplog.text


def test_a_decision_of_ones_own_that_can_not_be_read_is_not_passed_over(cluster: Cluster, sink: str) -> None:
    deciding.ensure_topic(cluster.brokers)
    producer = Producer(cluster.brokers, transactions.init_idempotent(cluster.brokers))
    producer.send(encoded(decisions.TOPIC, sink.encode(), b"hello"))
    producer.flush()
    message = cluster.prepare(sink, "run", b"row")
    with pytest.raises(PipelineError, match="is no decision"):
        stream(cluster).commit([message], 0)
    deciding._append(cluster.brokers, sink, None)
    stream(cluster).abort([message], 0)
    assert cluster.seen() == []


def test_others_who_can_not_be_finished_do_not_fail_our_commit(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = decided(cluster, f"{PREFIX}{uuid.uuid4()}", 2)
    victim = other.transactions[0]
    kept = transactions.take_over(cluster.brokers, victim.transactional_id)
    transactions.end(cluster.brokers, victim.transactional_id, kept.owner, commit=False)
    monkeypatch.setattr("penstock.pipeline.sink.STALE_MS", -STALE_MS)
    with caplog.at_level(logging.WARNING):
        stream(cluster).commit([cluster.prepare(sink, "run", b"ours")], 0)
    assert cluster.seen() == [b"row 1", b"ours"]
    assert f"batch 0 of {other.sink} stays half-way" in caplog.text
    deciding._append(cluster.brokers, other.sink, None)


def test_a_decision_for_twenty_thousand_tasks_fits(cluster: Cluster, sink: str) -> None:
    run, place = uuid.uuid4(), TopicPartition(cluster.topic, 0)
    many = tuple(
        Prepared(f"{sink}/{run}/{task}.0", Identity(10**9 + 7919 * task, task % 7), place, 10**10 + task * task)
        for task in range(20_000)
    )
    claim = Claim(cluster.brokers, sink)
    claim.known()
    claim.decide(3, Write(str(run), "job"), cluster.topic, many)
    assert cluster.decision(sink).transactions == many
    assert len(decisions.decision_value(3, Write("", ""), None, many)) < 20_000 * 50
    claim.forget()


def test_nothing_is_kept_of_a_job_that_is_over(cluster: Cluster, sink: str) -> None:
    def kept() -> set[str]:
        stop = cluster.brokers.offsets({decisions.PLACE: LATEST})[decisions.PLACE]
        return {key.decode() for key in decisions._newest(cluster.brokers, stop) if key.startswith(sink.encode())}

    claim = Claim(cluster.brokers, sink)
    claim.known()
    decision = claim.decide(0, Write("run", "job"), cluster.topic, ())
    claim.stuck(decision, 1, "by another that tried")
    claim.done(decision, decision.write)
    assert kept() == {sink, f"{sink}#done", f"{sink}#stuck"}
    claim.forget()
    assert kept() == set()


@pytest.mark.parametrize("late", ["to end", "to send"])
def test_what_is_not_claimed_in_time_is_claimed_again_and_what_is_not_decided_in_time_is_told(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    flush, stands_still = Producer.flush, [True]

    def slow(producer: Producer) -> None:
        flush(producer)
        if stands_still and stands_still.pop():
            aborted(cluster, sink)
            if late == "to send":
                producer.send(encoded(decisions.TOPIC, b"#claim", b"late"))
                flush(producer)

    monkeypatch.setattr(Producer, "flush", slow)
    monkeypatch.setattr(deciding, "TIMEOUT_MS", 50)
    claim = Claim(cluster.brokers, sink)
    claim.known()
    assert claim._identity is not None
    stands_still.append(True)
    with pytest.raises(Expired, match=f"{sink} could not write .* Start the query again"):
        claim.decide(0, Write("run", "job"), cluster.topic, ())
    assert sink not in decisions.read_all(cluster.brokers)


def aborted(cluster: Cluster, name: str) -> None:
    """Waits until its time is up."""
    deadline = time.monotonic() + 30
    while (
        state := transactions.described(cluster.brokers, name)
    ) is None or state.transaction_state != "CompleteAbort":
        assert time.monotonic() < deadline, state
        time.sleep(0.02)


def test_what_others_can_not_finish_is_left_alone_for_a_while(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = decided(cluster, f"{PREFIX}{uuid.uuid4()}", 2)
    victim = other.transactions[0]
    kept = transactions.take_over(cluster.brokers, victim.transactional_id)
    transactions.end(cluster.brokers, victim.transactional_id, kept.owner, commit=False)
    monkeypatch.setattr("penstock.pipeline.sink.STALE_MS", -STALE_MS)
    tried: list[str] = []
    roll_forward = deciding.roll_forward

    def counted(brokers: Brokers, decision: Decision, owners: dict[str, Identity]) -> None:
        tried.append(decision.sink)
        roll_forward(brokers, decision, owners)

    monkeypatch.setattr(deciding, "roll_forward", counted)
    for batch in range(3):
        stream(cluster).commit([cluster.prepare(sink, "run", b"%d" % batch)], batch)
    third = f"{PREFIX}{uuid.uuid4()}"
    stream(cluster).commit([cluster.prepare(third, "run", b"of another query")], 0)
    assert tried.count(other.sink) == 1
    assert caplog.text.count("stays half-way") == 1
    monkeypatch.setattr("penstock.pipeline.sink.TRY_AGAIN_MS", 0)
    stream(cluster).commit([cluster.prepare(sink, "run", b"3")], 3)
    assert tried.count(other.sink) == 2, "and then it is tried again"
    deciding._append(cluster.brokers, other.sink, None)


@pytest.mark.parametrize(("ahead_ms", "is_tried"), [(-TRY_AGAIN_MS, True), (-1000, False), (365 * 86_400_000, True)])
def test_a_note_of_a_clock_that_is_ahead_keeps_nobody_from_trying(
    cluster: Cluster, sink: str, monkeypatch: pytest.MonkeyPatch, ahead_ms: int, is_tried: bool
) -> None:
    tried: list[Decision] = []
    monkeypatch.setattr(Rows, "_roll_forward", lambda rows, brokers, claim, decision, owners: tried.append(decision))
    tried_ms = int(time.time() * 1000) + ahead_ms
    left = Decision("other", 0, Write("died", "job"), cluster.topic, (), tried_ms=tried_ms)
    stream(cluster)._finish_others(cluster.brokers, {"other": left}, sink)
    assert tried == [left] * is_tried


# ---- what nobody decided


def test_a_task_that_fails_ends_what_it_has_written(cluster: Cluster) -> None:
    job = new_job()
    writer = BatchWriter(cluster.options, job)

    def rows() -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.record_batch({"value": [b"x" * 1000] * 2000})
        raise ValueError("a bad row")

    name = f"{PREFIX}{job}/{job}/0.0"
    with pytest.raises(ValueError, match="a bad row"):
        writer._prepare(name, "1", rows())
    assert cluster.open_names(PREFIX + job) == {}
    assert cluster.seen() == []
    assert transactions.described(cluster.brokers, name).transaction_state == "CompleteAbort"  # type: ignore[union-attr]


def test_a_task_without_rows_leaves_nothing(cluster: Cluster) -> None:
    job = new_job()
    assert BatchWriter(cluster.options, job)._prepare(f"{PREFIX}{job}/{job}/0.0", "1", iter([])) is None
    assert cluster.open_names(PREFIX + job) == {}


def test_an_attempt_whose_name_is_taken_takes_another(cluster: Cluster) -> None:
    """Spark counts attempts anew when it runs a stage again."""
    job = new_job()
    writer, name = BatchWriter(cluster.options, job), f"{PREFIX}{job}/{job}/0.0"
    rows = pyarrow.record_batch({"value": [b"row"]})
    first, second = (writer._prepare(name, attempt, iter([rows])) for attempt in ("17", "18"))
    assert (first and first.transactional_id, second and second.transactional_id) == (name, f"{name}.18")
    writer.commit([Written(PREFIX + job, job, second)])
    assert cluster.seen() == [b"row"]


def test_a_job_that_fails_leaves_nothing_behind_although_no_task_has_reported(first_cluster: Cluster) -> None:
    job = new_job()
    first_cluster.prepare(PREFIX + job, job, b"half of it")
    BatchWriter(first_cluster.options, job).abort([None])
    assert first_cluster.open_names("") == {}
    first_cluster.put(b"somebody else's")
    assert first_cluster.seen() == [b"somebody else's"]


def test_the_first_job_of_a_cluster_can_fail(first_cluster: Cluster) -> None:
    job = new_job()
    message = first_cluster.prepare(PREFIX + job, job, b"half of it")
    BatchWriter(first_cluster.options, job).abort([message, None])
    assert first_cluster.seen() == []


def test_an_attempt_that_has_only_begun_can_not_write_when_the_job_is_over(cluster: Cluster) -> None:
    job = new_job()
    sink, name = PREFIX + job, f"{PREFIX}{job}/{job}/0.1"
    identity = cluster.begin(name)
    BatchWriter(cluster.options, job).commit([cluster.prepare(sink, job, b"row")])
    with pytest.raises((Fenced, PipelineError)):
        cluster.put(b"row", name, identity)
    assert cluster.seen() == [b"row"]
    assert cluster.open_names(sink + "/") == {}, "and it is not looked at again"


@pytest.mark.parametrize("commit", [True, False], ids=["without rows", "failed"])
def test_an_attempt_that_begins_when_the_job_is_over_leaves_nothing(cluster: Cluster, commit: bool) -> None:
    job = new_job()
    writer, rows = BatchWriter(cluster.options, job), pyarrow.record_batch({"value": [b"row"]})
    if commit:
        writer.commit([Written(PREFIX + job, job, None)])
    else:
        writer.abort([None])
    with pytest.raises(PipelineError, match="comes too late"):
        writer._prepare(f"{PREFIX}{job}/{job}/0.1", "2", iter([rows]))
    assert cluster.seen() == []


# ---- writes of one batch


def write_batch(cluster: Cluster, options: WriteOptions, query: str, run: str, value: bytes) -> None:
    """A write in foreachBatch."""
    writer = BatchWriter(options, new_job())
    message = cluster.prepare(writer._sink(query), run, value)
    try:
        writer.commit([message])
    except PipelineError:
        writer.abort([message])
        raise


@pytest.mark.parametrize("is_column", [True, False], ids=["rows name their topic", "one topic"])
def test_two_writes_of_a_batch_under_one_name_are_refused(cluster: Cluster, is_column: bool) -> None:
    options = cluster.options_of(None if is_column else "", batchId=7)
    query = str(uuid.uuid4())
    write_batch(cluster, options, query, "one", b"first")
    with pytest.raises(PipelineError, match="writeId"):
        write_batch(cluster, options, query, "one", b"second")
    write_batch(cluster, options, query, "two", b"first")  # the query was started again
    with pytest.raises(PipelineError, match="writeId"):
        write_batch(cluster, options, query, "two", b"second")
    assert cluster.seen() == [b"first"]


def test_a_write_without_rows_counts_as_one(cluster: Cluster) -> None:
    options, query = cluster.options_of(batchId=7), str(uuid.uuid4())
    writer = BatchWriter(options, new_job())
    writer.commit([Written(writer._sink(query), "one", None)])
    with pytest.raises(PipelineError, match="writeId"):
        write_batch(cluster, options, query, "one", b"second")


def test_writes_of_a_batch_with_names_of_their_own(cluster: Cluster) -> None:
    query = str(uuid.uuid4())
    for run in ("one", "two"):
        for which in ("left", "right"):
            options = cluster.options_of(batchId=7, writeId=which)
            write_batch(cluster, options, query, run, which.encode())
    assert cluster.seen() == [b"left", b"right"]


def test_sinks_of_a_query_are_told_apart_by_the_whole_of_their_topics(cluster: Cluster) -> None:
    def name(topic: str, **more: object) -> str:
        return BatchWriter(cluster.options_of(topic, batchId=1, **more), "job")._sink("query")

    names = [name("orders"), name("orders.eu"), name("orders", writeId="eu"), name("plumless"), name("buckeroo")]
    assert len(set(names)) == len(names)
    assert not any(a != b and f"{a}/x".startswith(f"{b}/") for a in names for b in names)


def test_a_query_that_was_copied_and_writes_elsewhere_is_told(cluster: Cluster, sink: str) -> None:
    stream(cluster).commit([cluster.prepare(sink, "run", b"row")], 3)
    copied = stream(cluster, topic="elsewhere")
    message = cluster.prepare(sink, "copy", b"row")
    with pytest.raises(PipelineError, match="checkpoint that was copied"):
        copied.commit([message], 3)
    copied.abort([message], 3)
    assert cluster.seen() == [b"row"]


def test_a_group_of_jobs_that_is_not_sparks_is_refused(cluster: Cluster) -> None:
    writer = BatchWriter(cluster.options_of(batchId=1), "job")
    with pytest.raises(PipelineError, match="'mine'"):
        writer._run("mine")
    assert Rows._run(BatchWriter(cluster.options, "job"), "mine") == "job", "a job alone is a run"


# ---- before the job starts


def test_brokers_without_two_phases_are_found_out_at_once(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker(transaction_two_phase_commit_enable="false")
    options = write_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": "out"})
    with Brokers(options.client) as brokers, pytest.raises(PipelineError, match="at-least-once"):
        transactions.require_two_phase(brokers)


def test_to_ask_for_two_phases_leaves_nothing_behind(cluster: Cluster) -> None:
    with Brokers(replace(cluster.options.client, patience_s=5)) as brokers:
        transactions.require_two_phase(brokers)
    assert transactions.PROBE not in cluster.open_names(transactions.PROBE)
