"""`python -m penstock.testing`, as a test of another language uses it: by its pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock
from tests.testing.conftest import WAIT_S

PACKAGE = Path(penstock.__file__).parents[1]


class Started:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.testing", *arguments], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.line()

    def end(self) -> tuple[int, str]:
        """The exit code and what was on standard error, once its input is closed."""
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, errors


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    made: list[Started] = []

    def start(*arguments: str) -> Started:
        made.append(Started(*arguments))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_it_prints_its_address_and_stops_when_its_input_closes(start: Callable[..., Started]) -> None:
    started = start("--topic", "orders:3", "--topic", "bills")
    producer = Producer({"bootstrap.servers": started.line(), "log_level": 0})
    assert len(producer.list_topics("orders", WAIT_S).topics["orders"].partitions) == 3
    assert started.ask("topics") == 'ok ["bills", "orders"]'
    assert started.end() == (0, "")


def test_its_address_comes_as_json_if_asked_for(start: Callable[..., Started]) -> None:
    started = start("--json", "--brokers", "3", "--set", "num.partitions=2")
    assert json.loads(started.line())["bootstrap"].count("127.0.0.1:") == 3
    assert started.ask("topic orders") == 'ok "orders"'
    leader = json.loads(started.ask("leader orders").removeprefix("ok "))
    assert started.ask(f"kill {leader}") == "ok"
    assert started.ask("leader orders") in {f"ok {number}" for number in {1, 2, 3} - {leader}}
    assert started.end() == (0, "")


def test_lines_do_what_methods_do(start: Callable[..., Started]) -> None:
    started = start()
    producer = Producer({"bootstrap.servers": started.line(), "log_level": 0, "retries": 0})
    assert started.ask("fail_next Produce INVALID_RECORD times=1") == "ok"
    outcomes: list[object] = []
    for value in ("no", "yes"):
        producer.produce("orders", value, on_delivery=lambda error, sent: outcomes.append(error and error.name()))
        assert producer.flush(WAIT_S) == 0
    assert outcomes == ["INVALID_RECORD", None]
    assert started.ask("advance minutes=10") == "ok"
    assert started.ask("advance 60") == "ok"
    (found,) = json.loads(started.ask("messages orders").removeprefix("ok "))
    assert (found["value"], found["partition"], found["offset"], found["key"]) == ("yes", 0, 0, None)
    assert started.ask("produce orders 42 'two words' key=7").startswith("ok [{")
    (found,) = json.loads(started.ask('produce bills {"to": "ada", "sum": 5}').removeprefix("ok "))
    assert json.loads(found["value"]) == {"to": "ada", "sum": 5}
    refused = started.ask("nonsense")
    assert refused.startswith("error no command is called 'nonsense'")
    assert refused.endswith("disconnect_clients, stop, kill, start, help")
    usages = json.loads(started.ask("help").removeprefix("ok "))
    assert list(usages) == refused.rpartition("there are ")[2].split(", ")[:-1]
    assert usages["delay"] == "delay api seconds [times=] [topic=]"
    assert started.ask("help topics") == 'ok {"topics": "topics"}'
    assert started.ask("produce orders total=5").endswith("is put in quotes")
    assert started.ask("fail_next Produc X").startswith("error no API is called 'Produc': did you mean Produce")
    assert started.ask("advance").startswith("error time goes forward only")
    assert started.ask("topic").startswith("error missing a required argument")
    assert started.end() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it_too(start: Callable[..., Started], number: signal.Signals) -> None:
    started = start()
    assert started.line()
    started.process.send_signal(number)
    assert started.process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--brokers", "0"), "1 to 9 brokers"),
        (("--set", "num.partition=1"), "did you mean num.partitions"),
        (("--set", "num.partitions=x"), "Invalid value x"),
        (("--set", "nonsense"), "not SETTING=VALUE"),
        (("--topic", "orders:many"), "not NAME:PARTITIONS"),
        (("--topic", "a b"), "can't be made"),
    ],
)
def test_mistakes_are_said_at_once(start: Callable[..., Started], arguments: tuple[str, str], says: str) -> None:
    code, errors = start(*arguments).end()
    assert code == 2
    assert says in errors
