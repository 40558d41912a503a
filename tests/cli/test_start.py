"""`penstock start`, as a process: greeting, logs, settings, signals."""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.broker.config import load
from penstock.cli import _parser
from penstock.cli.cluster.folder import ClusterFolder, Member, Record
from penstock.cli.start import command_line, greeting, prepare_memory, reachable

from .conftest import BrokerProcess, clean_environment, command, free_port, run_penstock

Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[BrokerProcess] = []

    def begin(*options: str, port: int | None = None) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "data", *options, port=port))
        return started[-1]

    yield begin
    for broker in started:
        broker.kill()


def options(*arguments: str) -> argparse.Namespace:
    return _parser(["start", *arguments]).parse(["start", *arguments])


def test_an_option_of_its_own_counts_more_than_set() -> None:
    args = options("--set", "listen=1:1", "--listen", "2:2", "--set", "flush=os", "--node-id", "7", "--data", "d")
    assert command_line(args) == {"listen": "2:2", "flush": "os", "node.id": "7", "data": "d"}


@pytest.mark.parametrize(
    ("listen", "address"),
    [("127.0.0.1:9092", "127.0.0.1:9092"), ("0.0.0.0:9093", "127.0.0.1:9093"), ("[::]:9094", "127.0.0.1:9094")],
)
def test_the_greeting_names_an_address_that_works_here(listen: str, address: str) -> None:
    assert reachable(listen) == address


def test_the_greeting_tells_all_one_needs() -> None:
    text = greeting(load(command_line={"listen": "127.0.0.1:9999", "data": "somewhere", "flush": "os"}))
    for part in ("127.0.0.1:9999", str(Path("somewhere").absolute()), "flush       os", "produce greetings"):
        assert part in text


def test_the_greeting_names_every_listener_and_how_to_reach_the_first() -> None:
    listeners = "IN://0.0.0.0:19092,OUT://10.0.0.1:29092"
    text = greeting(load(command_line={"listeners": listeners, "data": "somewhere"}))
    assert "listening   IN://0.0.0.0:19092, OUT://10.0.0.1:29092\n" in text
    assert "consume greetings --bootstrap 127.0.0.1:19092\n" in text
    told = greeting(load(command_line={"listeners": listeners, "advertised.listeners": "IN://a:1", "data": "d"}))
    assert "consume greetings --bootstrap a:1\n" in told


def test_what_is_no_address_of_zookeeper_is_one_line_and_no_start(tmp_path: Path) -> None:
    refused = run_penstock("start", "--zookeeper", "127.0.0.1:abc", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert refused.code == 1
    assert "not an address of ZooKeeper: '127.0.0.1:abc'" in refused.err
    assert "Traceback" not in refused.err


def test_the_greeting_of_a_cluster_names_enough_of_it() -> None:
    brokers = ["10.0.0.2:9092", "10.0.0.1:9092", "10.0.0.3:9092", "10.0.0.4:9092"]
    text = greeting(load(command_line={"listen": "10.0.0.2:9092", "data": "somewhere"}), brokers)
    some = "10.0.0.2:9092,10.0.0.1:9092,10.0.0.3:9092"
    assert f"consume greetings --bootstrap {some}\n" in text
    assert f'{{"bootstrap.servers": "{some}"}}' in text


def test_the_greeting_names_a_broker_that_commands_would_not_ask_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    settings = load(command_line={"listen": "127.0.0.1:9092", "data": "somewhere"})
    assert "produce greetings\n" in greeting(settings)
    cluster = ClusterFolder(tmp_path / "penstock-cluster")
    cluster.make()
    cluster.write(Record("z:1", None, (Member(1, "127.0.0.1:19092", 1),)))
    assert "produce greetings --bootstrap 127.0.0.1:9092\n" in greeting(settings)


def test_memory_can_be_prepared_more_than_once() -> None:
    prepare_memory()
    prepare_memory()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--set", "num.partition=3"], "penstock: Unknown setting: num.partition. Did you mean num.partitions?\n"),
        (["--config", "/no/such.toml"], "penstock: /no/such.toml: no such file or directory.\n"),
    ],
)
def test_a_bad_setting_is_one_line_and_no_start(arguments: list[str], line: str) -> None:
    refused = run_penstock("start", *arguments)
    assert (refused.code, refused.err) == (2, line)


def test_a_misspelt_variable_is_pointed_out_before_anything_else() -> None:
    refused = run_penstock("start", "--set", "none=1", PENSTOCK_NUM_PARTITION="3")
    assert "did you mean PENSTOCK_NUM_PARTITIONS?" in refused.err.splitlines()[0]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_greets_answers_and_stops_cleanly(start: Start, how: signal.Signals) -> None:
    broker = start()
    broker.wait_until_it_answers()
    assert run_penstock("topic", "list", "--bootstrap", broker.address).code == 0
    stopped = broker.stop(how)
    assert stopped.code == 0
    assert stopped.err.startswith("Penstock ")
    assert broker.address in stopped.err


def test_a_broker_that_logs_json_writes_nothing_else(start: Start) -> None:
    broker = start("--log-format", "json", "--log-level", "debug")
    broker.wait_until_it_answers()
    lines = broker.stop().err.splitlines()
    assert lines
    assert all({"time", "level", "room", "message"} <= json.loads(line).keys() for line in lines)


def test_a_quiet_broker_that_logs_only_errors_says_nothing(start: Start) -> None:
    broker = start("--quiet", "--log-level", "error")
    broker.wait_until_it_answers()
    stopped = broker.stop()
    assert (stopped.code, stopped.out, stopped.err) == (0, "", "")


def test_settings_reach_the_broker_from_file_and_command_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("num.partitions = 4\n[log.retention]\nhours = 5\n")
    broker = start("--config", str(tmp_path / "penstock.toml"), "--set", "num.partitions=6")
    broker.wait_until_it_answers()
    created = run_penstock("topic", "create", "orders", "--json", "--bootstrap", broker.address)
    assert created.json["created"][0]["partitions"] == 6
    described = run_penstock("topic", "describe", "orders", "--json", "--bootstrap", broker.address).json
    assert {"name": "retention.ms", "value": "18000000", "source": "broker"} in described["settings"]


def test_an_address_in_use_is_said_plainly(start: Start, tmp_path: Path) -> None:
    broker = start()
    broker.wait_until_it_answers()
    second = subprocess.run(
        command("start", "--quiet", "--listen", broker.address, "--data", str(tmp_path / "other")),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert second.returncode == 1
    assert broker.address in second.stderr
    assert "--listen" in second.stderr
    assert "Traceback" not in second.stderr


def test_what_was_there_before_a_stop_is_there_after_the_next_start(start: Start) -> None:
    first = start()
    first.wait_until_it_answers()
    run_penstock("topic", "create", "orders", "--bootstrap", first.address)
    run_penstock("produce", "orders", "--bootstrap", first.address, stdin="kept\n")
    assert first.stop().code == 0
    second = start()
    second.wait_until_it_answers()
    assert run_penstock("consume", "orders", "--no-follow", "--bootstrap", second.address).out == "kept\n"


# ---- in a cluster


def test_who_joins_a_cluster_is_told_of_all_brokers(start: Start, tmp_path: Path, zookeeper_path: str) -> None:
    first = start("--zookeeper", zookeeper_path, "--node-id", "1", "--data", str(tmp_path / "one"))
    first.wait_until_it_answers()
    second = start("--zookeeper", zookeeper_path, "--node-id", "2", "--data", str(tmp_path / "two"))
    second.wait_until_it_answers()
    assert run_penstock("cluster", "status", "--wait", "20", "--bootstrap", second.address).code == 0
    assert f"produce greetings --bootstrap {second.address},{first.address}\n" in second.stop().err


class Gate:
    """In front of a ZooKeeper: it lets everyone through, or only who asks for its health, as this machine might."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._passing: list[socket.socket] = []
        self._is_shut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self._is_shut = True
        for each in self._passing:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            threading.Thread(target=self._pass, args=[client], daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        first = client.recv(65536)
        if self._is_shut and first != b"srvr":
            client.close()
            return
        server = socket.create_connection(self._behind)
        self._passing += [client, server]
        server.sendall(first)
        threading.Thread(target=_pump, args=[server, client], daemon=True).start()
        _pump(client, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_a_broker_that_zookeeper_answers_no_more_is_a_problem_though_it_answers_us(
    start: Start, zookeeper_path: str
) -> None:
    place, _, path = zookeeper_path.partition("/")
    host, _, port = place.partition(":")
    gate = Gate(host, int(port))
    broker = start("--zookeeper", f"{gate.address}/{path}")
    broker.wait_until_it_answers()
    assert run_penstock("cluster", "status", "--wait", "20", "--bootstrap", broker.address).code == 0
    gate.shut()

    def problems() -> list[str]:
        found: list[str] = run_penstock("cluster", "status", "--json", "--bootstrap", broker.address).json["problems"]
        return found

    deadline = time.monotonic() + 20
    while not problems() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert problems() == ["broker 1 does not reach ZooKeeper."]


def test_a_zookeeper_that_does_not_answer_is_waited_for_aloud_and_not_for_ever(start: Start) -> None:
    closed = f"127.0.0.1:{free_port()}"
    waiting = start("--zookeeper", f"{closed}/x", "--set", "zookeeper.connection.timeout.ms=3000")
    _, err = waiting.process.communicate(timeout=20)
    told, ended = err.splitlines()
    assert f"waiting for ZooKeeper at {closed}, for up to 3 s" in told
    assert f"no ZooKeeper answers at {closed}/x (tried for 3 s). Check that it runs" in ended
    assert f"'echo srvr | nc {closed.replace(':', ' ')}' shows its mode" in ended
    assert waiting.process.returncode == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_who_waits_for_zookeeper_can_be_stopped(start: Start, how: signal.Signals) -> None:
    waiting = start("--zookeeper", f"127.0.0.1:{free_port()}", "--set", "zookeeper.connection.timeout.ms=60000")
    assert waiting.process.stderr is not None
    assert "waiting for ZooKeeper" in waiting.process.stderr.readline()
    stopped = waiting.stop(how)
    assert (stopped.code, stopped.err.rstrip().endswith("stopped")) == (0, True), stopped.err
