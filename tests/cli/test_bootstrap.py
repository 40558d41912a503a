"""Which brokers a command asks when nobody names them, and what it says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.bootstrap import find
from penstock.cli.cluster.folder import ClusterFolder, Member, Record
from penstock.cli.cluster.start import greeting
from penstock.cli.problem import Problem

from .conftest import free_port


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(folder: Path, *ports: int) -> ClusterFolder:
    cluster = ClusterFolder(folder)
    cluster.make()
    members = tuple(Member(number, f"127.0.0.1:{port}", 1) for number, port in enumerate(ports, start=1))
    cluster.write(Record("127.0.0.1:2181/penstock", 1, members))
    return cluster


def test_what_is_said_counts_more_than_the_environment_and_that_more_than_the_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(None).addresses == "127.0.0.1:9092"
    started(here / "penstock-cluster", 19092, 19093)
    assert find(None).addresses == "127.0.0.1:19092,127.0.0.1:19093"
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "there:1")
    assert find(None).addresses == "there:1"
    assert find("here:2").addresses == "here:2"


def test_a_folder_that_is_named_counts_more_than_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "there:1")
    started(here / "elsewhere", 7)
    assert find(None, here / "elsewhere").addresses == "127.0.0.1:7"
    with pytest.raises(Problem, match="no cluster was started in"):
        find(None, here / "nowhere")
    with pytest.raises(Problem, match="both say which cluster"):
        find("here:2", here / "elsewhere")


def test_who_listens_everywhere_is_reached_here(here: Path) -> None:
    cluster = ClusterFolder(here / "penstock-cluster")
    cluster.make()
    cluster.write(Record("z:1", None, (Member(1, "0.0.0.0:9092", 1), Member(2, "[::]:9093", 1))))
    assert find(None).addresses == "127.0.0.1:9092,127.0.0.1:9093"


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["produce", "t"], ["consume", "t"], ["group", "list"], ["txn", "list"], ["cluster", "status"]],
)
def test_a_cluster_of_the_folder_that_does_not_run_is_named(
    arguments: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = free_port(), free_port()
    started(here / "penstock-cluster", first, second)
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"penstock: no broker answers at 127.0.0.1:{first},127.0.0.1:{second} (connection refused).",
        f"  That is the cluster in {here / 'penstock-cluster'}.",
        "  Start it again with 'penstock cluster start', or name another with --bootstrap HOST:PORT.",
    ]


def test_a_record_that_can_not_be_read_is_no_reason_to_ask_someone_else(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "penstock-cluster").mkdir()
    (here / "penstock-cluster" / "cluster.json").write_text("")
    assert main(["topic", "list"]) == 1
    err = capsys.readouterr().err
    assert "cluster.json can't be read" in err
    assert "--bootstrap HOST:PORT" in err


@pytest.mark.parametrize("text", ["9092", ":9092", "host:", "host:0", "host:65536", "host:x"])
def test_what_is_no_address_is_refused_with_the_option_that_named_it(
    text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["topic", "list"], ["cluster", "status"]):
        assert main([*command, "--bootstrap", f"127.0.0.1:9092,{text}"]) == 2
        assert "For example: --bootstrap" in capsys.readouterr().err


# ---- what a person is told to type


def test_commands_that_are_shown_name_enough_of_a_cluster_that_is_elsewhere(here: Path) -> None:
    listened = [f"127.0.0.1:{port}" for port in (9092, 9093, 9094, 9095)]
    text = greeting(listened, "z:1", ClusterFolder(here / "else where"))
    some = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert f"produce greetings --bootstrap {some}\n" in text
    assert f'{{"bootstrap.servers": "{some}"}}' in text
    assert f"cluster status --data '{here / 'else where'}'\n" in text


def test_commands_that_are_shown_name_nothing_that_is_found_anyway(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ClusterFolder(here / "penstock-cluster")
    text = greeting(["127.0.0.1:19092", "127.0.0.1:19093"], "z:1", folder)
    assert "cluster status\n" in text
    assert "produce greetings\n" in text
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "there:1")
    text = greeting(["127.0.0.1:19092", "127.0.0.1:19093"], "z:1", folder)
    assert "produce greetings --bootstrap 127.0.0.1:19092,127.0.0.1:19093\n" in text
    assert f"cluster status --data {folder.path}\n" in text
