"""History back into a topic: as it was, in order, once, however often it has to be started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli import main
from penstock.pipeline.archived_rows import Window
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.history import History
from penstock.pipeline.history_source import HistoryStreamReader, _Limits
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.replaying import (
    PLAN,
    ReplayPlan,
    ensure_target,
    expect_same_topics,
    read_plan,
    topic_ids,
    write_plan,
)
from penstock.pipeline.source import from_json
from penstock.pipeline.topics import message_bytes_max
from tests.brokers import BrokerProcess
from tests.pipeline.conftest import create_topic
from tests.pipeline.gate import ARGUMENTS
from tests.pipeline.histories import NOON_MS, Record, TopicHistory, consumed, make, settings_of

pytestmark = pytest.mark.timeout(600)

COUNT = 600
PARTITIONS = 2
STEP_MS = 1000
FIRST_MS, STOP_MS = NOON_MS + 100 * STEP_MS, NOON_MS + 550 * STEP_MS


@pytest.fixture
def orders(broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path) -> TopicHistory:
    """Of which the first third is in the archive alone, the second in both, the last in the log alone."""
    found = make(broker.bootstrap, new_topic(PARTITIONS, "orders"), tmp_path)
    found.produce(COUNT, PARTITIONS, step_ms=STEP_MS)
    return found


def archive(orders: TopicHistory) -> None:
    for partition in range(PARTITIONS):
        for start in range(0, 200, 50):
            orders.archive_range(start, start + 50, partition)
        orders.delete_before(100, partition)


def without_offsets(records: list[Record]) -> list[tuple[object, ...]]:
    return [(partition, *rest) for partition, _, *rest in records]


def command(orders: TopicHistory, into: str, folder: Path, *more: str) -> list[str]:
    times = ["--from", f"@{FIRST_MS}", "--to", f"@{STOP_MS}", "--checkpoint", str(folder)]
    where = ["--archive", orders.archive.location.given, "--bootstrap", orders.bootstrap]
    return ["replay", "--topic", orders.topic, "--into", into, *times, *where, *more]


def test_a_replay_that_was_killed_goes_on_and_everything_is_there_once(
    spark: SparkSession, orders: TopicHistory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = [each for each in orders.records(PARTITIONS) if FIRST_MS <= each[2] < STOP_MS]
    archive(orders)
    into, folder = f"{orders.topic}-again", tmp_path / "replay"
    line = [sys.executable, "-m", "penstock", *command(orders, into, folder, "--rate", "40", "--master", "local[1]")]
    first = subprocess.Popen(line, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    try:
        while not (begun := _consumed_so_far(orders.bootstrap, into)):
            assert first.poll() is None
            assert time.monotonic() < deadline, "the replay does not begin"
            time.sleep(0.3)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(20)
    assert 0 < len(begun) < len(everything)

    assert main(command(orders, into, folder)) == 0
    assert f"of {orders.topic} into {into}" in capsys.readouterr().out
    assert without_offsets(consumed(orders.bootstrap, into, PARTITIONS)) == without_offsets(everything)

    assert main(command(orders, into, folder)) == 0
    assert "Finished before" in capsys.readouterr().out
    other = command(orders, into, folder)
    other[other.index("--to") + 1] = f"@{STOP_MS + 1}"
    assert main(other) == 2
    assert "another replay was begun there" in capsys.readouterr().err


def _consumed_so_far(bootstrap: str, topic: str) -> list[Record]:
    with Brokers(settings_of(bootstrap)) as brokers:
        if topic not in brokers.topics([topic]):
            return []
    return consumed(bootstrap, topic, PARTITIONS)


def test_keys_choose_where_the_target_has_fewer_partitions(
    spark: SparkSession, orders: TopicHistory, door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And everything is read and written behind a password."""
    everything = [each for each in orders.records(PARTITIONS) if FIRST_MS <= each[2] < STOP_MS]
    into = f"{orders.topic}-narrow"
    create_topic(orders.bootstrap, into, 1)
    assert main(command(replace(orders, bootstrap=door), into, tmp_path / "replay", *ARGUMENTS)) == 0
    assert "fewer partitions" in capsys.readouterr().err
    found = consumed(orders.bootstrap, into, 1)
    assert sorted(str(each[2:]) for each in found) == sorted(str(each[2:]) for each in everything)


def test_commands_that_make_no_sense_are_refused(
    orders: TopicHistory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap", orders.bootstrap, "--checkpoint", str(tmp_path)]
    assert main(["replay", "--topic", "a", "--into", "a", *where]) == 2
    assert main(["replay", "--topic", "a", "--into", "b", "--from", "1h", "--to", "2h", *where]) == 2
    assert main(["replay", "--topic", "nowhere", "--into", "b", *where]) == 1
    assert "no topic 'nowhere'" in capsys.readouterr().err


# ---- without Spark


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = ReplayPlan("a", "b", 1, None, ("a", "b", "1h", ""), "/archive", {0: 5, 11: 0}, {0: 9, 11: 3}, True)
    assert read_plan(tmp_path) is None
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan
    assert plan.offsets == 7
    assert plan.position('{"a": {"0": 6, "11": 3}}') == 4
    (tmp_path / PLAN).write_text('{"topic": 1}')
    with pytest.raises(PipelineError, match="not the plan"):
        read_plan(tmp_path)


def test_a_plan_is_of_its_topics_and_its_archive_alone(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other topics of these names may be on other brokers, or were made since."""
    topic, into = new_topic(), new_topic()
    with Brokers(settings_of(broker.bootstrap)) as brokers:
        topic_id, into_id = topic_ids(brokers, topic, into)
        asked = (topic, into, "", "")
        plan = ReplayPlan(topic, into, None, None, asked, "/archive", {0: 0}, {0: 9}, True, topic_id=topic_id)
        expect_same_topics(brokers, replace(plan, into_id=into_id))
        expect_same_topics(brokers, replace(plan, topic_id=None))
        for other, name in (
            (replace(plan, into_id=topic_id), into),
            (replace(plan, topic_id=into_id), topic),
            (replace(plan, into="no-such-topic", into_id=into_id), "no-such-topic"),
        ):
            with pytest.raises(PipelineError, match=f"topic '{name}' is not the one that this replay was begun with"):
                expect_same_topics(brokers, other)
    write_plan(tmp_path, replace(plan, into_id=topic_id))
    line = ["replay", "--topic", topic, "--into", into, "--checkpoint", str(tmp_path), "--bootstrap", broker.bootstrap]
    assert main([*line, "--archive", "/elsewhere"]) == 2
    assert "another replay was begun there: --archive /archive." in capsys.readouterr().err
    assert main([*line, "--archive", "/archive"]) == 1
    assert "is not the one that this replay was begun with" in capsys.readouterr().err


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ReplayPlan, Path]]:
    """The plans and folders of replays that would start, without Spark: each of them fails."""
    found: list[tuple[ReplayPlan, Path]] = []

    def start(_: object, plan: ReplayPlan, __: object, folder: Path, *___: object) -> None:
        found.append((plan, folder))
        raise PipelineError("it was not to run")

    monkeypatch.setattr("penstock.pipeline.replaying.start_replay", start)
    monkeypatch.setattr("penstock.cli.sparking.session", lambda *_: nullcontext())
    return found


def test_a_replay_goes_on_with_loss_only_while_that_is_allowed(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path, started: list[tuple[ReplayPlan, Path]]
) -> None:
    topic, into = new_topic(), new_topic()
    make(broker.bootstrap, topic, tmp_path).produce(1, 1, step_ms=STEP_MS)
    where = ["--checkpoint", str(tmp_path / "replay"), "--bootstrap", broker.bootstrap]
    line = ["replay", "--topic", topic, "--into", into, *where]
    for more in ([], ["--allow-loss"], []):
        assert main([*line, *more]) == 1
    assert [plan.fail_on_data_loss for plan, _ in started] == [True, False, True]


def test_a_replay_is_found_again_in_whatever_folder_its_command_is_run(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[tuple[ReplayPlan, Path]],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    topic, into = new_topic(), new_topic()
    orders = make(broker.bootstrap, topic, tmp_path)
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        orders.produce(1, 1, step_ms=STEP_MS)
        assert main(["replay", "--topic", topic, "--into", into, "--bootstrap", broker.bootstrap]) == 1
    assert started[0] == started[1], "the plan is the first one: it knows of one record"
    (place,) = (tmp_path / "state" / "penstock" / "replay").glob(f"?*/{topic}/into-{into}")
    assert started[0][1] == place
    assert "of-no-cluster" not in place.parts


def test_a_target_that_holds_what_this_replay_has_not_written_is_refused(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    started: list[tuple[ReplayPlan, Path]],
) -> None:
    """On another machine nothing is known of a replay, and it would write everything a second time."""
    topic, into = new_topic(), new_topic()
    for each in (topic, into):
        make(broker.bootstrap, each, tmp_path).produce(1, 1, step_ms=STEP_MS)
    line = ["replay", "--topic", topic, "--into", into, "--bootstrap", broker.bootstrap]
    assert main([*line, "--checkpoint", str(tmp_path / "one")]) == 2
    said = capsys.readouterr().err
    assert f"'{into}' holds messages already" in said
    assert "--append" in said
    assert not started
    assert main([*line, "--checkpoint", str(tmp_path / "one"), "--append"]) == 1
    assert main([*line, "--checkpoint", str(tmp_path / "one")]) == 1, "it was begun, and goes on"
    assert len(started) == 2


def test_a_new_target_keeps_what_it_gets_and_one_that_is_there_stays_as_it_is(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    from penstock.pipeline.problem import OptionError

    topic, large = new_topic(3), new_topic(max_message_bytes=8_000_000)
    with Brokers(settings_of(broker.bootstrap)) as brokers:
        assert ensure_target(brokers, topic, 7) == (3, False)
        assert ensure_target(brokers, f"{topic}-new", 7, large) == (7, True)
        assert message_bytes_max(brokers, f"{topic}-new") == 8_000_000
        assert ensure_target(brokers, f"{topic}-new", 9) == (7, False)
        with pytest.raises(OptionError, match="can't be created"):
            ensure_target(brokers, "no/such name", 1)


def test_a_rate_is_kept_over_all_partitions_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    places = from_json({"a": {"0": 0, "1": 0}})
    limits = _Limits(places, dict.fromkeys(places, 5000), 1_000, 100)
    reader = HistoryStreamReader(History(settings_of("127.0.0.1:1"), "a", None, window=Window()), limits)
    at, began, given = reader.initialOffset(), clock[0], []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        given.append((clock[0], sum(from_json(end).values()) - sum(from_json(at).values())))
        at = end
        clock[0] += 7.5 if len(given) == 50 else 0.25  # what a batch takes
    assert sum(from_json(at).values()) == 10_000
    assert 105 <= clock[0] - began <= 107, "what was not sent while a batch stood still is not sent on top later"
    for moment, _ in given:
        assert sum(count for then, count in given if moment <= then < moment + 0.999) <= 100
