"""What is refused before a broker is asked, and how."""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from penstock.cli import COMMANDS, connection, main
from penstock.cli.bootstrap import Bootstrap
from penstock.cli.connection import Connection
from penstock.cli.parser import key_value
from penstock.cli.problem import Problem
from penstock.cli.raw import check
from penstock.protocol.errors import ErrorCode

from .conftest import free_port, run_penstock


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_a_misspelt_command_is_refused_with_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "topc") == "penstock: there is no command 'penstock topc'.\n  Did you mean 'topic'?\n"


def test_a_misspelt_command_of_a_command_is_refused_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'describe'?" in refused(capsys, "group", "descrbe")


def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean '--partitions'?" in refused(capsys, "topic", "create", "orders", "--partitons=3")


def test_no_command_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert ", ".join(COMMANDS) in refused(capsys)


def test_an_abbreviated_option_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not know '--part'" in refused(capsys, "topic", "create", "orders", "--part", "3")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        *([name] for name in COMMANDS),
        *(["topic", name] for name in ("create", "list", "describe", "alter", "truncate", "delete")),
        *(["group", name] for name in ("list", "describe", "reset", "delete")),
    ],
)
def test_help_is_everywhere(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "-h"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "usage: penstock" in out
    assert "commands:" in out or "examples:" in out or arguments == ["version"]


@pytest.mark.parametrize("text", ["retention.ms", "=5", ""])
def test_a_setting_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        key_value(text)


def test_a_value_may_contain_an_equals_sign() -> None:
    assert key_value("header=a=b") == ("header", "a=b")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["produce", "t", "--key", "k", "--key-separator", ":"], "Choose one of them."),
        (["consume", "t", "--json", "--format", "%v"], "Choose one of them."),
        (["consume", "t", "--format", "%y"], "unknown verb '%y'"),
        (["consume", "t", "--group", "g", "--partition", "1"], "Leave out --partition or --group."),
        (["consume", "t", "--group", "g", "--from", "17"], "penstock group reset g"),
        (["topic", "alter", "t"], "nothing to change"),
        (["topic", "alter", "t", "--set", "flush=os", "--unset", "flush"], "both set and unset"),
        (["topic", "truncate", "t"], "required"),
        (["topic", "create", "t", "-p", "0"], "above 0"),
        (["group", "reset", "g"], "required"),
        (["bench", "--size", "3"], "8 bytes"),
        (["bench", "--consumers", "4", "--partitions", "2"], "--partitions 4"),
        (["topic", "list", "--bootstrap", "nowhere"], "not HOST:PORT"),
    ],
)
def test_what_makes_no_sense_is_refused_with_advice(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in refused(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments", [["topic", "list"], ["produce", "t"], ["consume", "t"], ["group", "list"], ["bench"]]
)
def test_a_broker_that_is_not_there_is_said_at_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--bootstrap", f"127.0.0.1:{free_port()}"]) == 1
    err = capsys.readouterr().err
    assert "no broker answers" in err
    assert "connection refused" in err
    assert "penstock start" in err


def test_something_that_is_no_broker_is_given_up_after_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert main(["topic", "list", "--bootstrap", f"127.0.0.1:{mute.getsockname()[1]}"]) == 1
    assert "no broker answers" in capsys.readouterr().err


def test_what_took_too_long_is_answered_with_where_to_look() -> None:
    bootstrap = Bootstrap("127.0.0.1:9092", "", " --bootstrap 127.0.0.1:9092")
    problem = connection.explain(KafkaError(KafkaError.REQUEST_TIMED_OUT), "can't create 't'", bootstrap)
    assert "'penstock cluster status --bootstrap 127.0.0.1:9092' tells whether" in (problem.hint or "")
    with pytest.raises(Problem) as raised:
        check(ErrorCode.REQUEST_TIMED_OUT, "can't move t-0")
    assert "'penstock cluster status' tells whether" in (raised.value.hint or "")


def test_several_that_are_silent_share_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REACH_TIMEOUT_S", 1.0)
    with ExitStack() as stack:
        full = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0)) for _ in range(3)]
        for server in full * 3:
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        began = time.monotonic()
        with pytest.raises(Problem, match="no answer within 1 s"):
            Connection(Bootstrap(",".join(f"127.0.0.1:{server.getsockname()[1]}" for server in full), ""))
        assert time.monotonic() - began < 2.5, "not a second for each"


def test_starting_imports_nothing_that_other_commands_need() -> None:
    script = (
        "import sys; from penstock.cli import main; "
        "assert main(['start', '--set', 'no.such.setting=1']) == 2; "
        "print([m for m in ('rich', 'confluent_kafka', 'json', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stdout == "[]\n", done.stderr


def test_version_is_one_line_or_one_document() -> None:
    assert run_penstock("version").out.startswith("penstock 0.")
    assert run_penstock("version", "--json").json.keys() == {"penstock", "python", "librdkafka", "platform", "hot_path"}


def test_what_is_installed_is_compiled_where_it_can_be(request: pytest.FixtureRequest) -> None:
    """A first install finds no library beside it, and must compile all the same."""
    if not request.config.getoption("--installed"):
        pytest.skip("only an installed package can be compiled, and the source is under test")
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    can_be = shutil.which("cc") is not None and headers.exists()
    assert run_penstock("version", "--json").json["hot_path"] == ("compiled" if can_be else "interpreted")
