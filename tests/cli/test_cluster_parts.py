"""What the commands of a cluster are made of."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.bootstrap import Bootstrap
from penstock.cli.cluster import moves, processes, reaching, start
from penstock.cli.cluster.balancing import NoRoom, Placement, rebalance
from penstock.cli.cluster.board import Board
from penstock.cli.cluster.elect import _show
from penstock.cli.cluster.fleet import LocalBroker, _tell_what_keeps, can_listen, host_and_port
from penstock.cli.cluster.folder import ClusterFolder, Member, Record
from penstock.cli.cluster.health import Health, Server, ZooKeeper, _few_replicas, _lagging, _missing, _problems
from penstock.cli.cluster.leaderless import Leaderless, advice, bring_back
from penstock.cli.cluster.moves import human, placements
from penstock.cli.cluster.reaching import Broker, Cluster, Moving, Partition, Snapshot, TooSlow
from penstock.cli.cluster.status import as_document, show
from penstock.cli.connection import REQUEST_TIMEOUT_S
from penstock.cli.holds import Hold
from penstock.cli.output import print_table
from penstock.cli.problem import Problem
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

# ---- processes


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
@pytest.mark.parametrize("everywhere", [False, True])
def test_who_listens_is_found(family: socket.AddressFamily, host: str, everywhere: bool) -> None:
    try:
        server = socket.create_server(("" if everywhere else host, 0), family=family)
    except OSError:
        pytest.skip("no such addresses here")
    with server:
        address = (host, server.getsockname()[1])
        assert processes.listeners([address]) == {address: os.getpid()}


def test_nobody_is_found_where_nobody_listens_or_elsewhere() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert processes.listeners([("127.0.0.1", port), ("192.0.2.1", port), ("no.such.host.invalid", port)]) == {}


def test_a_number_of_a_process_that_is_another_s_now_is_not_believed() -> None:
    assert processes.runs(os.getpid(), "python")
    assert not processes.runs(os.getpid(), "no-such-program")
    assert not processes.runs(2**22 + 1, "")


def test_why_an_address_can_not_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert can_listen(f"127.0.0.1:{server.getsockname()[1]}") == "address already in use"
    assert can_listen("192.0.2.1:9092") == "cannot assign requested address"
    for text in ("9092", ":9092", "host:", "host:0", "host:65536", "host:x"):
        with pytest.raises(Problem, match="not HOST:PORT"):
            host_and_port(text)


def test_the_last_warning_of_this_life_is_what_a_broker_complains_of(tmp_path: Path) -> None:
    broker = LocalBroker(1, "127.0.0.1:9092", tmp_path / "broker-1", tmp_path / "broker-1.log")
    assert broker.complaint() is None
    broker.log.write_text(
        "2026-05-01 10:30:00.123 WARNING broker       waiting for this\n"
        "2026-05-01 10:30:01.123 WARNING broker       waiting for that\n"
        "2026-05-01 10:30:02.123 INFO    storage      something else\n"
    )
    assert broker.complaint() == "waiting for that"


def test_a_broker_that_starts_for_long_is_told_of_once_even_if_it_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = LocalBroker(1, "127.0.0.1:9092", tmp_path / "broker-1", tmp_path / "broker-1.log")
    told: set[str] = set()
    for waited_s in (3.0, 6.0, 7.0):
        _tell_what_keeps(broker, told, waited_s)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("penstock: broker 1 is not up yet: ")
    assert line.endswith(f"Its log: {broker.log}")


# ---- asking


def test_a_broker_that_is_silent_is_asked_last_from_then_on(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        cluster = Cluster(Bootstrap(f"127.0.0.1:{mute.getsockname()[1]},{bootstrap}", ""))
        snapshot = cluster.snapshot()
        began = time.monotonic()
        cluster.moving()
        assert time.monotonic() - began < REQUEST_TIMEOUT_S / 3, "it would have waited for the silent one"
    assert len(snapshot.brokers) == 1


def test_where_all_are_silent_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        cluster = Cluster(Bootstrap(f"127.0.0.1:{mute.getsockname()[1]}", "do this"))
        with pytest.raises(TooSlow, match="no answer within 1 s"):
            cluster.ask(MetadataRequest(topics=None), 12, MetadataResponse, 0.6)


# ---- no leader


def test_whoever_elects_sees_how_much_each_replica_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        Cluster, "sizes", lambda self, brokers: {each.node_id: {("t", 4): 700} for each in brokers if each.node_id == 2}
    )
    brokers = {number: Broker(number, "127.0.0.1", 9092 + number, None) for number in (1, 2)}
    partition = Partition("t", 4, -1, (1, 2, 3), ())
    snapshot = Snapshot("c", 1, brokers, [partition])
    _show(Cluster(Bootstrap("127.0.0.1:9092", "")), snapshot, [Leaderless(partition, (3,), (1, 2))])
    title, row = capsys.readouterr().out.splitlines()[:2]
    assert " ".join(title.split()) == "TOPIC PARTITION REPLICAS HAVE ALL MESSAGES COULD LEAD BYTES THERE"
    assert row.split() == ["t", "4", "1,2,3", "3", "1,2", "?,700"]


def test_what_to_do_about_partitions_without_a_leader() -> None:
    record = Record("z:1", 7, (Member(2, "127.0.0.1:9093", 2**22 + 1), Member(3, "127.0.0.1:9094", 2**22 + 1)))
    cluster = Cluster(Bootstrap("127.0.0.1:9092", "", " --data there", record))
    partition = Partition("t", 4, -1, (1, 2, 3), ())
    assert advice(cluster, [Leaderless(partition, (2, 3), (1,))]) == [
        "Bring back brokers 2 and 3: all committed messages are there.",
        "  penstock cluster add --node-id 2 --data there",
        "  penstock cluster add --node-id 3 --data there",
        "If that can't be, another replica may lead. What that one lacks is lost for good, acknowledged messages too:",
        "  penstock cluster elect --unclean t:4 --data there",
    ]
    elsewhere = Cluster(Bootstrap("10.0.0.1:9092", "", " --bootstrap 10.0.0.1:9092"))
    assert advice(elsewhere, [Leaderless(partition, (), ())]) == ["Bring back brokers 1, 2 and 3."]
    (line,) = advice(elsewhere, [Leaderless(partition, (1,), (1, 2, 3))])
    assert "should lead in a moment" in line


def test_a_process_that_lives_and_does_not_serve_is_not_started_twice() -> None:
    idle = [sys.executable, "-c", "input(1)", "penstock"]
    with subprocess.Popen(idle, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"1"
        record = Record("z:1", 7, (Member(2, "127.0.0.1:9093", process.pid),))
        lines = bring_back(Cluster(Bootstrap("127.0.0.1:9092", "", "", record)), [2])
        process.kill()
    assert lines == [f"  process {process.pid} is broker 2, and does not serve: look at its log, or kill it"]


# ---- the folder


def test_what_was_started_is_written_down_and_added_to(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    assert folder.read() is None
    folder.write(Record("127.0.0.1:2181/x", 7, (Member(1, "127.0.0.1:9092", 8), Member(3, "127.0.0.1:9094", 9))))
    folder.add(Member(2, "127.0.0.1:9093", 10))
    folder.add(Member(3, "127.0.0.1:9999", 11))
    record = folder.read()
    assert record is not None
    assert record.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9999"
    assert (record.connect, record.zookeeper_pid, record.members[2].pid) == ("127.0.0.1:2181/x", 7, 11)


def test_who_was_drained_is_missed_no_more_until_it_is_added_again(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.write(Record("z:1", 7, (Member(1, "127.0.0.1:9092", 8), Member(2, "127.0.0.1:9093", 9))))
    folder.drained([2, 5])
    record = folder.read()
    assert record is not None
    assert record.expected == [1]
    cluster = Cluster(Bootstrap("127.0.0.1:9092", "", "", record, folder))
    snapshot = Snapshot("c", 1, {1: BROKERS[1]}, [])
    assert _missing(cluster, snapshot) == []
    assert _missing(cluster, Snapshot("c", 1, {}, [])) == [1]
    assert _missing(cluster, Snapshot("c", 1, {1: BROKERS[1]}, [Partition("t", 0, 1, (1, 2), (1,))])) == [2]
    args = argparse.Namespace(brokers=None, listen=None, config=None, changes=[])
    assert [each.node_id for each in start._brokers(args, folder, record)[0]] == [1], "its folder is gone"
    folder.add(Member(2, "127.0.0.1:9093", 10))
    record = folder.read()
    assert record is not None
    assert record.expected == [1, 2]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "brokers": [{}]}', "\0"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(Problem, match=r"cluster\.json can't be read"):
        ClusterFolder(tmp_path).read()


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "new")
    with folder.held(), pytest.raises(Problem, match="runs already"), ClusterFolder(tmp_path / "new").held():
        pass
    with folder.held():
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="can't use the folder"), ClusterFolder(tmp_path / "file" / "below").held():
        pass


def test_brokers_are_known_by_their_folders(tmp_path: Path) -> None:
    for name in ("broker-2", "broker-10", "broker-x", "broker-3.old", "zookeeper"):
        (tmp_path / name).mkdir()
    (tmp_path / "broker-4").write_text("")
    assert ClusterFolder(tmp_path).node_ids() == [2, 10]
    assert not ClusterFolder(tmp_path).runs(2)


# ---- health

BROKERS = {number: Broker(number, "127.0.0.1", 9091 + number, None) for number in (1, 2)}


def test_replicas_that_hold_less_than_their_leader_lag() -> None:
    partition = Partition("t", 0, 1, (1, 2, 3), (1, 3))
    snapshot = Snapshot("c", 1, BROKERS, [partition])
    health = Health(snapshot, {}, {1: {("t", 0): 100}, 2: {("t", 0): 60}}, {}, None, [3])
    health.under_replicated = [partition]
    health.lagging = _lagging(health)
    assert [(each.node_id, each.in_sync, each.behind_bytes) for each in health.lagging] == [(2, False, 40)]
    assert (health.behind_bytes(2), health.behind_bytes(3), health.size_bytes(1)) == (40, None, 100)
    assert _problems(health) == ["broker 3 is down.", "1 partition under-replicated."]


def test_a_partition_that_deletes_what_its_group_has_not_committed_is_a_problem_and_one_that_waits_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    health = Health(Snapshot("c", 1, BROKERS, []), {}, {1: {}, 2: {}}, {}, None, [])
    health.retention_holds = {("t", 0): Hold("archive", 7, 1000, over_limit=False)}
    health.problems = _problems(health)
    assert health.problems == []
    health.retention_holds["t", 1] = Hold("archive", None, 5000, over_limit=True)
    health.problems = _problems(health)
    assert health.problems == [
        "1 partition over retention.hold.max.bytes: what the group has not committed is deleted."
    ]
    assert as_document(health)["holds"] == [
        {"topic": "t", "partition": 0, "group": "archive", "committed": 7, "held_bytes": 1000, "over_limit": False},
        {"topic": "t", "partition": 1, "group": "archive", "committed": None, "held_bytes": 5000, "over_limit": True},
    ]
    show(health)
    shown = capsys.readouterr().out
    assert (
        "! t[1] holds 5,000 bytes for archive, which has committed nothing. Over the limit: what was not committed is "
        "deleted.\n" in shown
    )
    assert "t[0]" not in shown


def test_a_broker_that_does_not_reach_zookeeper_is_a_problem_though_zookeeper_answers() -> None:
    zookeeper = ZooKeeper("z:1", [Server("z", 1, answers=True, pid=None)])
    health = Health(Snapshot("c", 1, BROKERS, []), {}, {1: {}, 2: {}}, {}, zookeeper, [], cut_off=[2])
    assert _problems(health) == ["broker 2 does not reach ZooKeeper."]
    assert [each["reaches_zookeeper"] for each in as_document(health)["brokers"]] == [True, False]


def test_topics_with_few_replicas_are_a_note_with_what_gives_them_more(capsys: pytest.CaptureFixture[str]) -> None:
    partitions = [
        Partition("few", 0, 1, (1,), (1,)),
        Partition("growing", 0, 1, (1,), (1,)),
        Partition("whole", 0, 1, (1, 2), (1, 2)),
        Partition("__internal", 0, 1, (1,), (1,)),
    ]
    moving = {("growing", 0): Moving((2, 1), (2,), ())}
    health = Health(Snapshot("c", 1, BROKERS, partitions), moving, {1: {}, 2: {}}, {}, None, [])
    (note,) = health.notes = _few_replicas(health, 2, " --data there")
    assert note == (
        "2 topics with fewer replicas than default.replication.factor=2: __internal, few. "
        "'penstock cluster rebalance --replicas 2 --data there' gives more."
    )
    assert _problems(health) == []
    show(health)
    assert f"All is well.\nNote: {note}\n" in capsys.readouterr().out
    assert "Once 3 brokers are there" in _few_replicas(health, 3, "")[0]
    assert _few_replicas(health, 1, "") == []


def test_where_partitions_move_they_are_planned_for() -> None:
    snapshot = Snapshot("c", 1, BROKERS, [Partition("t", 0, 1, (2, 1), (1,)), Partition("t", 1, 1, (1,), (1,))])
    moving = {("t", 0): Moving((2, 1), (2,), (1,))}
    assert placements(snapshot, moving, {1: {("t", 0): 5}}) == [Placement("t", 0, (2,), 5), Placement("t", 1, (1,), 0)]


# ---- plans


def test_partitions_with_too_few_replicas_get_more() -> None:
    held = [Placement("t", index, (1,), 10) for index in range(6)]
    moves = rebalance(held, {1: "a", 2: "b", 3: "b"}, replicas_min=2)
    assert len(moves) == 6
    assert all(len(set(move.replicas)) == 2 and 1 in move.replicas for move in moves), "each rack has one"
    assert rebalance([Placement("t", 0, (1, 2, 3))], {1: None, 2: None, 3: None}, replicas_min=2) == []
    with pytest.raises(NoRoom):
        rebalance(held, {1: None, 2: None}, replicas_min=3)


def test_whoever_stops_watching_a_move_is_told_how_to_go_on(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moves, "watch", interrupted)
    args = argparse.Namespace(dry_run=False, json=False, throttle=None)
    cluster = Cluster(Bootstrap(bootstrap, "", " --data there"))
    assert moves.carry_out(cluster, [], args, "penstock cluster drain 3") == 130
    err = capsys.readouterr().err
    assert "penstock cluster drain 3 --data there\n" in err
    assert "penstock cluster rebalance --cancel --data there\n" in err


# ---- words


def test_a_cell_is_never_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["isr", "replicas"], [((), (1, 2)), ([3], None)])
    assert capsys.readouterr().out.splitlines() == ["ISR  REPLICAS", "-    1,2", "3    -"]


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_499, "99.5 kB"), (999_500, "1.0 MB"),
     (123_456_789, "123 MB"), (5 * 10**18, "5000 PB")],
)  # fmt: skip
def test_sizes_are_said_in_few_figures(size: int | None, said: str) -> None:
    assert human(size) == said


def test_a_board_for_a_log_says_who_is_up_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Board() as board:
        board.show("broker 1", "127.0.0.1:9092", 12, "starting")
        time.sleep(0.01)
        board.show("broker 1", "127.0.0.1:9092", 12, "up")
        board.show("broker 1", "127.0.0.1:9092", 12, "up")
    assert capsys.readouterr().out == "broker 1    127.0.0.1:9092         process 12       up after 0.0 s\n"
