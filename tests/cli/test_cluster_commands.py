"""`penstock cluster`, as a person uses it: real processes, a real ZooKeeper, and nothing left behind."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from tests.brokers import BrokerProcess, free_port
from tests.cli.conftest import Finished, clean_environment, command, run_penstock
from tests.zookeepers import skip_without_java

PATIENCE_S = 40.0
FAST = ("--set", "offsets.topic.num.partitions=1")


def free_ports(count: int) -> int:
    """The first of so many in a row."""
    while True:
        first = random.randrange(20_000, 32_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


def wait_for(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.05)
    pytest.fail(f"not within {PATIENCE_S:.0f} s: {what}")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Running:
    """A `penstock cluster start` or `add` in the foreground of another terminal."""

    def __init__(self, output: Path, *arguments: str) -> None:
        self.output = output
        with output.open("wb") as out:
            self.process = subprocess.Popen(
                command("cluster", *arguments),
                env=clean_environment(),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )

    def text(self) -> str:
        return self.output.read_text()

    def until_up(self) -> Running:
        wait_for(lambda: "Ctrl-C" in self.text() or self.process.poll() is not None, "the cluster is up")
        assert self.process.poll() is None, self.text()
        return self

    @property
    def pids(self) -> dict[str, int]:
        """By the names under which they were shown."""
        return {name.strip(): int(pid) for name, pid in re.findall(r"^(\w+ ?\d*) .*process (\d+)", self.text(), re.M)}

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    skip_without_java()
    begun: list[Running] = []

    def begin(*arguments: str) -> Running:
        begun.append(Running(tmp_path / f"output-{len(begun)}", *arguments))
        return begun[-1].until_up()

    yield begin
    for each in begun:
        each.end()


def status(data: Path, *more: str) -> Finished:
    return run_penstock("cluster", "status", "--json", "--data", str(data), *more)


def healthy(data: Path) -> dict[str, Any]:
    done = status(data, "--wait", "30")
    assert done.code == 0, done.out + done.err
    document: dict[str, Any] = done.json
    return document


def consumed(bootstrap: str, topic: str) -> list[str]:
    done = run_penstock("consume", topic, "--no-follow", "--bootstrap", bootstrap)
    assert done.code == 0, done.err
    return done.out.splitlines()


def test_a_cluster_comes_up_loses_a_broker_gets_it_back_stops_and_comes_back(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    data, port = tmp_path / "penstock-cluster", free_ports(4)
    first = f"127.0.0.1:{port}"
    begun = running("start", "--brokers", "3", "--data", str(data), "--listen", first, *FAST)
    everyone = f"{first},127.0.0.1:{port + 1},127.0.0.1:{port + 2}"
    assert f"produce greetings --bootstrap {everyone}\n" in begun.text()
    assert begun.pids.keys() == {"ZooKeeper", "broker 1", "broker 2", "broker 3"}

    # It is there, and says what it is.
    shown = healthy(data)
    assert shown["zookeeper"]["pid"] == begun.pids["ZooKeeper"]
    assert {each["id"]: each["pid"] for each in shown["brokers"]} == {
        number: begun.pids[f"broker {number}"] for number in (1, 2, 3)
    }
    assert [each["port"] for each in shown["brokers"]] == [port, port + 1, port + 2]
    assert [each["id"] for each in shown["brokers"] if each["controller"]] == [shown["controller"]]
    assert "All is well." in run_penstock("cluster", "status", "--bootstrap", first).out

    # It serves, and replicates.
    assert "3 replicas" in run_penstock("topic", "create", "orders", "-p", "3", "--bootstrap", first).out
    lines = [f"order {number}" for number in range(300)]
    produced = run_penstock("produce", "orders", "--bootstrap", first, stdin="\n".join(lines) + "\n")
    assert produced.code == 0, produced.err
    assert sorted(consumed(f"127.0.0.1:{port + 1}", "orders")) == sorted(lines)

    # Nobody else may have its folder or its ports.
    again = run_penstock("cluster", "start", "--data", str(data), "--listen", first)
    assert (again.code, "runs already" in again.err) == (1, True)
    elsewhere = run_penstock("cluster", "start", "--data", str(tmp_path / "other"), "--listen", first)
    assert (elsewhere.code, f"broker 1 can't listen on {first}" in elsewhere.err) == (1, True), elsewhere.err
    assert "broker 2 runs already" in run_penstock("cluster", "add", "--data", str(data), "--node-id", "2").err

    # In the folder where it was started, everything finds it.
    for arguments in (["topic", "list"], ["topic", "describe", "orders"], ["group", "list"], ["cluster", "elect"]):
        done = run_penstock(*arguments, cwd=tmp_path)
        assert done.code == 0, done.err
    assert run_penstock("produce", "orders", cwd=tmp_path, stdin="from here\n").code == 0
    lines.append("from here")
    found = run_penstock("consume", "orders", "--no-follow", cwd=tmp_path)
    assert sorted(found.out.splitlines()) == sorted(lines)

    # One is killed: that is told, and everyone can see it.
    os.kill(begun.pids["broker 2"], signal.SIGKILL)
    wait_for(lambda: "broker 2 (process" in begun.text() and "SIGKILL" in begun.text(), "the death is told")
    wait_for(lambda: f"penstock cluster add --node-id 2 --data {data}\n" in begun.text(), "and what to do")
    wait_for(lambda: status(data).json["missing"] == [2], "the broker is missing")
    done = wait_for(lambda: (now := status(data)).json["under_replicated"] and now, "partitions are under-replicated")
    assert done.code == 1
    assert not done.json["offline"]
    assert "orders" in {each["topic"] for each in done.json["under_replicated"]}
    for_people = run_penstock("cluster", "status", "--data", str(data))
    assert "! broker 2 is down." in for_people.out
    assert f"  penstock cluster add --node-id 2 --data {data}\n" in for_people.out
    kept = run_penstock("cluster", "elect", cwd=tmp_path)
    assert kept.code == 1
    assert "broker 2, its first replica, is down" in kept.out
    assert re.search(r"^No leader was elected\. \d+ partitions? keeps? (its|their) leader\.$", kept.out, re.M)
    assert sorted(consumed(f"127.0.0.1:{port + 2}", "orders")) == sorted(lines)

    # It comes back.
    returned = running("add", "--data", str(data), "--node-id", "2")
    assert len(healthy(data)["brokers"]) == 3

    # All stop together, and leave nothing behind.
    pids = [*begun.pids.values(), *returned.pids.values()]
    assert returned.stop(signal.SIGTERM) == 0
    assert begun.stop() == 0, begun.text()
    assert [pid for pid in pids if alive(pid)] == []
    down = status(data)
    assert (down.code, down.json["healthy"], down.json["missing"]) == (1, False, [1, 2, 3])
    assert "no broker answers" in down.err
    alone = run_penstock("cluster", "add", "--data", str(data))
    assert (alone.code, f"'penstock cluster start --data {data}'" in alone.err) == (1, True), alone.err

    # The same cluster comes back.
    once_more = running("start", "--data", str(data), *FAST)
    after = healthy(data)
    assert after["cluster_id"] == shown["cluster_id"]
    assert [each["port"] for each in after["brokers"]] == [port, port + 1, port + 2]
    assert sorted(consumed(first, "orders")) == sorted(lines)
    assert once_more.stop(signal.SIGTERM) == 0


def test_zookeeper_is_brought_back_to_brokers_that_were_started_elsewhere(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    data, first = tmp_path / "penstock-cluster", f"127.0.0.1:{free_ports(2)}"
    begun = running("start", "--brokers", "2", "--data", str(data), "--listen", first, *FAST)
    elsewhere: list[Running] = []
    for number in ("1", "2"):  # as in a rolling restart
        os.kill(begun.pids[f"broker {number}"], signal.SIGTERM)
        wait_for(lambda told=f"--node-id {number} ": told in begun.text(), "its end is told")
        elsewhere.append(running("add", "--data", str(data), "--node-id", number))
    assert begun.stop() == 0
    assert f"bring it back with: penstock cluster start --data {data}\n" in begun.text()

    back = running("start", "--data", str(data))
    assert back.pids.keys() == {"ZooKeeper"}
    assert healthy(data)["zookeeper"]["pid"] == back.pids["ZooKeeper"]
    wait_for(lambda: run_penstock("topic", "create", "t", "--bootstrap", first).code == 0, "topics are made again")
    again = run_penstock("cluster", "start", "--data", str(data))
    assert (again.code, "runs already" in again.err or "run already" in again.err) == (1, True), again.err
    assert [each.stop() for each in elsewhere] == [0, 0]
    assert back.stop() == 0


def test_a_broker_is_added_gets_its_share_and_another_is_drained(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    data, port = tmp_path / "cluster", free_ports(3)
    first = f"127.0.0.1:{port}"
    running("start", "--brokers", "1", "--data", str(data), "--listen", first, *FAST)
    assert "1 replica" in run_penstock("topic", "create", "orders", "-p", "2", "--bootstrap", first).out
    lines = [f"order {number}" for number in range(100)]
    run_penstock("produce", "orders", "--bootstrap", first, stdin="\n".join(lines) + "\n")
    alone = run_penstock("cluster", "drain", "1", "--data", str(data))
    assert (alone.code, "no broker is left" in alone.err) == (1, True), alone.err
    added = running("add", "--data", str(data))
    assert added.pids.keys() == {"broker 2"}
    healthy(data)

    planned = run_penstock("cluster", "rebalance", "--dry-run", "--json", "--data", str(data)).json["moves"]
    assert [len(each["replicas"]) for each in planned] == [1]
    assert "Nothing was changed" in run_penstock("cluster", "rebalance", "--dry-run", "--data", str(data)).out
    assert run_penstock("cluster", "rebalance", "--replicas", "3", "--data", str(data)).code == 2
    done = run_penstock("cluster", "rebalance", "--replicas", "2", "--data", str(data))
    assert (done.code, "Moved 2 partitions." in done.out) == (0, True), done.out + done.err
    assert [(each["leaders"], each["replicas"]) for each in healthy(data)["brokers"]] == [(1, 2), (1, 2)]
    assert "hold and lead about the same" in run_penstock("cluster", "rebalance", "--data", str(data)).out
    assert "No election was needed" in run_penstock("cluster", "elect", "orders:0", "--data", str(data)).out
    needless = run_penstock("cluster", "elect", "--unclean", "--data", str(data))
    assert (needless.code, needless.out) == (0, "No election was needed.\n"), "nothing can be lost: nobody is asked"
    assert "Nothing was moving" in run_penstock("cluster", "rebalance", "--cancel", "--data", str(data)).out

    more = running("add", "--data", str(data))
    done = run_penstock("cluster", "drain", "1", "--throttle", "100000000", "--data", str(data))
    assert (done.code, "Broker 1 holds nothing any more." in done.out) == (0, True), done.out + done.err
    shown = healthy(data)
    assert [each["replicas"] for each in shown["brokers"]] == [0, 2, 2]
    assert sorted(consumed(f"127.0.0.1:{port + 1}", "orders")) == sorted(lines)
    described = run_penstock("topic", "describe", "orders", "--bootstrap", first)
    assert "throttled" not in described.out, "what was held back is so no more"
    added_again = next(each for each in json.loads((data / "cluster.json").read_text())["brokers"] if each["id"] == 1)
    assert added_again["drained"], "nobody misses it when it is stopped and its folder removed"
    assert [each.stop() for each in (more, added)] == [0, 0]


def test_a_partition_without_a_leader_is_told_of_and_led_again_by_whoever_accepts_the_loss(
    tmp_path: Path, running: Callable[..., Running]
) -> None:
    data, port = tmp_path / "cluster", free_ports(3)
    everyone = ",".join(f"127.0.0.1:{port + number}" for number in range(3))
    begun = running("start", "--data", str(data), "--listen", f"127.0.0.1:{port}", *FAST)
    healthy(data)

    def penstock(*arguments: str, stdin: str | None = None) -> Finished:
        return run_penstock(*arguments, "--bootstrap", everyone, stdin=stdin)

    def kill(node_id: int) -> None:
        os.kill(begun.pids[f"broker {node_id}"], signal.SIGKILL)
        wait_for(lambda: node_id in status(data).json["missing"], f"broker {node_id} is missing")

    assert "2 replicas" in penstock("topic", "create", "orders", "-r", "2").out
    complete, behind = penstock("topic", "describe", "orders", "--json").json["partitions"][0]["replicas"]
    assert penstock("consume", "orders", "--group", "billing", "--no-follow").code == 0
    assert penstock("group", "reset", "billing", "--to", "start", "--topic", "orders").code == 0
    kill(behind)
    assert penstock("produce", "orders", stdin="only on one\n").code == 0
    kill(complete)
    wait_for(lambda: status(data).json["offline"], "nobody leads")

    # Who writes learns what is waited for, and in the end that it was in vain.
    began = time.monotonic()
    vain = penstock("produce", "orders", "--timeout", "4", stdin="nowhere\n")
    assert time.monotonic() - began < 15
    assert (vain.code, vain.out) == (1, "")
    assert vain.err.splitlines() == [
        "penstock: waiting for up to 4 s: partition 0 of orders has no leader.",
        f"  'penstock cluster status --bootstrap {everyone}' tells more.",
        "Produced 0 messages to orders.",
        "penstock: 1 message could not be produced within 4 s: partition 0 of orders has no leader.",
        f"  'penstock cluster status --bootstrap {everyone}' tells more.",
    ]
    terminal, stdin = os.openpty()
    os.write(terminal, b"nowhere\n")
    typed = command("produce", "orders", "--timeout", "2", "--bootstrap", everyone)
    with subprocess.Popen(typed, env=clean_environment(), stdin=stdin, stderr=subprocess.DEVNULL) as process:
        assert process.wait(15) == 1, "it does not wait for the next line"
    os.close(terminal)
    os.close(stdin)
    unread = penstock("consume", "orders", "--no-follow")
    assert (unread.code, "penstock: orders[0] can't be read now.\n  No broker leads the partition" in unread.err) == (
        1,
        True,
    ), unread.err

    described = penstock("group", "describe", "billing", "--json")
    assert described.code == 0, described.err
    assert [(each["committed"], each["lag"]) for each in described.json["partitions"]] == [(0, None)]

    # While no replica is up nobody can lead, and nobody is asked whether data may be lost.
    hopeless = run_penstock("cluster", "elect", "--unclean", "orders", "--json", "--data", str(data))
    assert hopeless.code == 1
    (failure,) = hopeless.json["failed"]
    assert (failure["error"], failure["message"]) == ("ELIGIBLE_LEADERS_NOT_AVAILABLE", "none of its replicas is up")

    # One comes back that lacks messages: that it could lead is told, and what that costs.
    running("add", "--data", str(data), "--node-id", str(behind))
    refused = run_penstock("cluster", "elect", "orders:0", "--data", str(data))
    assert refused.code == 1
    for part in (
        "no replica that has all of its messages is up",
        "No leader was elected. 1 partition without a leader.",
        f"Bring back broker {complete}: all committed messages are there.",
        f"  penstock cluster add --node-id {complete} --data {data}",
        "lost for good, acknowledged messages too",
        f"  penstock cluster elect --unclean orders:0 --data {data}",
    ):
        assert part in refused.out, refused.out
    assert f"elect --unclean orders:0 --data {data}" in run_penstock("cluster", "status", "--data", str(data)).out
    unanswered = run_penstock("cluster", "elect", "--unclean", "--data", str(data))
    assert (unanswered.code, "Add --yes" in unanswered.err) == (2, True)
    assert f"What only broker {complete} has is lost for good" in unanswered.err
    done = run_penstock("cluster", "elect", "--unclean", "orders", "--yes", "--json", "--data", str(data))
    assert (done.code, done.json["failed"]) == (0, []), done.err
    assert done.json["elected"] == [{"topic": "orders", "partition": 0, "leader": behind}]
    assert consumed(everyone, "orders") == []


def test_when_the_command_is_killed_its_processes_stop_too(tmp_path: Path, running: Callable[..., Running]) -> None:
    begun = running(
        "start", "--brokers", "1", "--data", str(tmp_path / "cluster"), "--listen", f"127.0.0.1:{free_ports(1)}"
    )
    pids = begun.pids.values()
    assert len(pids) == 2
    begun.end()
    wait_for(lambda: not any(map(alive, pids)), "both processes are gone")


def test_a_broker_that_can_not_start_is_quoted_and_the_rest_stops(tmp_path: Path) -> None:
    skip_without_java()
    data = tmp_path / "cluster"
    place = ("--data", str(data), "--listen", f"127.0.0.1:{free_ports(2)}")
    done = run_penstock("cluster", "start", "--brokers", "2", *place, "--set", "no.such.setting=1")
    assert done.code == 1
    assert "did not start: it ended with code 2" in done.err
    assert "no.such.setting" in done.err
    written = json.loads((data / "cluster.json").read_text())
    pids = [written["zookeeper"]["pid"], *(each["pid"] for each in written["brokers"])]
    assert [pid for pid in pids if alive(pid)] == []


def test_a_zookeeper_that_does_not_answer_is_told_of_and_ends_the_start_with_advice(tmp_path: Path) -> None:
    data, closed = tmp_path / "cluster", f"127.0.0.1:{free_port()}"
    place = ("--data", str(data), "--listen", f"127.0.0.1:{free_ports(2)}", "--zookeeper", f"{closed}/x")
    data.mkdir()
    (data / "broker-1.log").write_text("2026-01-01 00:00:00.000 WARNING broker       of a former life\n")
    patience = ("--set", "zookeeper.connection.timeout.ms=5000")
    done = run_penstock("cluster", "start", "--brokers", "2", *place, *patience)
    assert done.code == 1
    waits = [line for line in done.err.splitlines() if "is not up yet" in line]
    assert waits == [f"penstock: broker 1 is not up yet: waiting for ZooKeeper at {closed}, for up to 5 s"]
    assert f"no ZooKeeper answers at {closed}/x (tried for 5 s). Check that it runs" in done.err
    assert "former life" not in done.err, "what it said before it was started is no answer"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["start", "--brokers", "0"], "above 0"),
        (["start", "--brokers", "101"], "too many"),
        (["start", "--listen", "9092"], "not HOST:PORT"),
        (["start", "--brokers", "3", "--listen", "127.0.0.1:65534"], "not 3 ports"),
        (["start", "--zookeeper", "127.0.0.1:1", "--zookeeper-port", "2"], "Choose one of them"),
        (["add"], "no cluster was started"),
        (["status"], "no cluster was started"),
        (["drain", "first"], "not a whole number"),
        (["rebalance", "--throttle", "fast"], "above 0"),
        (["adopt"], "required: --zookeeper"),
    ],
)
def test_what_makes_no_sense_is_refused_with_advice(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    assert main(["cluster", *arguments, "--data", str(tmp_path / "none")]) in (1, 2)
    assert expected in capsys.readouterr().err


# ---- adopting


def adopt(data: Path, at: str, *more: str) -> Finished:
    return run_penstock("cluster", "adopt", "--data", str(data), "--zookeeper", at, *more)


@pytest.fixture
def lone_broker(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Stopped; it has a topic and a group."""
    broker = new_broker(offsets_topic_num_partitions=1)
    run_penstock("topic", "create", "orders", "-p", "2", "-c", "retention.ms=86400000", "--bootstrap", broker.bootstrap)
    run_penstock("produce", "orders", "--bootstrap", broker.bootstrap, stdin="one\ntwo\nthree\n")
    run_penstock("consume", "orders", "--group", "billing", "--no-follow", "--bootstrap", broker.bootstrap)
    assert broker.stop() == 0
    return broker


def test_a_broker_that_stood_alone_begins_a_cluster(lone_broker: BrokerProcess, zookeeper_path: str) -> None:
    lone_broker.settings = {"zookeeper_connect": zookeeper_path}
    with pytest.raises(AssertionError, match="penstock cluster adopt --data"):
        lone_broker.start()
    done = adopt(lone_broker.data, zookeeper_path, "--node-id", "7")
    assert done.code == 0, done.err
    assert "with 2 topics" in done.out
    assert "start --node-id 7 --data" in done.out
    assert not (lone_broker.data / "cluster.db").exists()
    again = adopt(lone_broker.data, zookeeper_path, "--json")
    assert (again.code, again.json["already"], again.json["node_id"]) == (0, True, 7)

    lone_broker.settings["node_id"] = 7
    lone_broker.start()
    bootstrap = lone_broker.bootstrap
    assert sorted(consumed(bootstrap, "orders")) == ["one", "three", "two"]
    assert run_penstock("group", "describe", "billing", "--json", "--bootstrap", bootstrap).json["lag"] == 0
    settings = run_penstock("topic", "describe", "orders", "--json", "--bootstrap", bootstrap).json["settings"]
    assert {each["name"]: each["value"] for each in settings}["retention.ms"] == "86400000"
    shown = run_penstock("cluster", "status", "--json", "--bootstrap", bootstrap)
    assert shown.code == 0, shown.out
    assert [each["id"] for each in shown.json["brokers"]] == [7]


def test_who_adopts_without_zookeeper_learns_what_is_waited_for(tmp_path: Path) -> None:
    closed = f"127.0.0.1:{free_port()}"
    waiting = subprocess.Popen(
        command("cluster", "adopt", "--data", str(tmp_path), "--zookeeper", f"{closed}/x"),
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"penstock: waiting for ZooKeeper at {closed}, for up to 15 s\n"
        waiting.kill()


def test_what_can_not_be_adopted_is_left_as_it_is(
    lone_broker: BrokerProcess, new_broker: Callable[..., BrokerProcess], zookeeper_path: str, tmp_path: Path
) -> None:
    other = new_broker(zookeeper_connect=zookeeper_path, node_id=5)
    run_penstock("topic", "create", "orders", "pears", "--bootstrap", other.bootstrap)
    done = adopt(lone_broker.data, zookeeper_path)
    assert done.code == 1
    assert "holds another cluster already" in done.err
    assert "(2 topics, broker 5). Both have orders." in done.err
    assert "at a path that is empty" in done.err

    in_use = adopt(other.data, f"{zookeeper_path}-2")
    assert (in_use.code, "another broker uses" in in_use.err) == (1, True)
    assert other.stop() == 0
    taken = adopt(other.data, f"{zookeeper_path}-2")
    assert (taken.code, "belongs to a cluster already: it is broker 5" in taken.err) == (1, True), taken.err
    empty = tmp_path / "empty"
    assert "there is no folder" in adopt(empty, zookeeper_path).err
    empty.mkdir()
    assert "not the data folder of a broker" in adopt(empty, zookeeper_path).err
    assert "not an address" in adopt(lone_broker.data, "nowhere:nothing").err

    lone_broker.start()
    assert sorted(consumed(lone_broker.bootstrap, "orders")) == ["one", "three", "two"]
