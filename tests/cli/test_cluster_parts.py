"""What the commands of a cluster are made of."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from penstock.cli.cluster import processes
from penstock.cli.cluster.balancing import NoRoom, Placement, rebalance
from penstock.cli.cluster.board import Board
from penstock.cli.cluster.fleet import can_listen, host_and_port
from penstock.cli.cluster.folder import ClusterFolder, Member, Record
from penstock.cli.cluster.health import Health, _lagging, _problems
from penstock.cli.cluster.moves import human, placements
from penstock.cli.cluster.reaching import Broker, Moving, Partition, Snapshot
from penstock.cli.problem import Problem

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
    assert processes.runs(os.getpid(), "pytest")
    assert not processes.runs(os.getpid(), "no-such-program")
    assert not processes.runs(2**22 + 1, "")


def test_why_an_address_can_not_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert can_listen(f"127.0.0.1:{server.getsockname()[1]}") == "address already in use"
    assert can_listen("192.0.2.1:9092") == "cannot assign requested address"
    for text in ("9092", ":9092", "host:", "host:0", "host:65536", "host:x"):
        with pytest.raises(Problem, match="not HOST:PORT"):
            host_and_port(text)


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


# ---- words


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
