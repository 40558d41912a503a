"""What `penstock archive` says before it begins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from penstock.cli.archive.needs import byte_size, duration, human_bytes
from penstock.pipeline.archive.job import explain
from penstock.pipeline.archive.layout import Archive
from tests.brokers import BrokerProcess
from tests.pipeline.archive.rows import DAY_MS, NOON_MS, archive_range

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("pyspark", ["run", "--topic", "t", "--to", "/nowhere"]),
        ("pyarrow", ["run", "--topic", "t", "--to", "/nowhere"]),
        ("pyarrow", ["status", "--archive", "/nowhere"]),
        ("pyarrow", ["compact", "--archive", "/nowhere"]),
        ("pyarrow", ["verify", "--archive", "/nowhere"]),
    ],
)
def test_what_is_not_installed_is_told_with_the_command_that_installs_it(
    missing: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["archive", *command]) == 1
    said = capsys.readouterr().err
    assert missing in said
    assert "pip install 'penstock[spark]'" in said


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["archive", "run", "--topic", "t", "--to", str(tmp_path)]) == 1
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err


def test_nothing_of_spark_or_arrow_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, contextlib\n"
        "from penstock.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['archive', 'run', '-h'])\n"
        "main(['archive', 'run', '--to', 'x', '--trigger', 'soon'])\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'pyarrow', 'pandas', 'numpy')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--to", "x"], "what is to be archived?"),
        (["run", "--to", "x", "--topic", "a", "--topic-pattern", "b"], "what is to be archived?"),
        (["run", "--topic", "a"], "--to"),
        (["run", "--topic", "a", "--to", "x", "--once", "--trigger", "1m"], "not allowed with"),
        (["run", "--topic", "a", "--to", "x", "--trigger", "soon"], "'soon' is not a time"),
        (["run", "--topic-pattern", "a", "--to", "ftp://x", "--bootstrap", NOBODY], "neither a folder nor"),
        (["compact", "--archive", "x", "--target", "0"], "'0' is not a size"),
        (["status", "--bootstrap", NOBODY], "which archive?"),
        (["status", "--archive", "x", "--set", "kafka.acks=1"], "no option 'kafka.acks'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_its_option(arguments: list[str], said: str, capsys: Any) -> None:
    assert main(["archive", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_topic_that_is_not_there_is_told_before_spark_starts(broker: BrokerProcess, capsys: Any) -> None:
    command = ["archive", "run", "--topic", "nowhere", "--to", "/tmp/x", "--bootstrap", broker.bootstrap]
    assert main(command) == 1
    assert "there is no topic 'nowhere'" in capsys.readouterr().err


def test_an_archive_is_looked_at_and_compacted_without_its_brokers(tmp_path: Path, capsys: Any) -> None:
    archive = Archive(str(tmp_path))
    place = ["--archive", str(tmp_path), "--bootstrap", NOBODY]
    assert main(["archive", "compact", *place]) == 1
    assert "there is no archive in" in capsys.readouterr().err
    archive_range(archive, "orders", 0, 10)
    archive_range(archive, "orders", 10, 20)
    archive_range(archive, "orders", 30, 40, [NOON_MS, NOON_MS + DAY_MS] * 5)
    assert main(["archive", "status", *place, "--topic", "order"]) == 1
    assert "Did you mean 'orders'?" in capsys.readouterr().err
    assert main(["archive", "compact", *place, "--dry-run"]) == 0
    assert "Would merge 2 files into 1." in capsys.readouterr().out
    assert main(["archive", "compact", *place]) == 0
    assert "Merged 2 files into 1." in capsys.readouterr().out
    assert main(["archive", "compact", *place]) == 0
    assert "Nothing to merge." in capsys.readouterr().out
    assert main(["archive", "status", *place]) == 0
    said = capsys.readouterr()
    assert "orders-0: offsets 20 to 29 are in no file." in said.out
    (row,) = [line for line in said.out.splitlines() if line.startswith("orders ")]
    assert row.split()[:5] == ["orders", "0", "0", "40", "3"]
    assert row.split()[-3:] == ["30", "1", "-"]
    assert "how far behind it is can't be told" in said.err


def test_sizes_and_times_are_read_as_people_write_them() -> None:
    assert [byte_size(each) for each in ("5", "64MB", "1gb")] == [5, 64 << 20, 1 << 30]
    assert [duration(each) for each in ("500ms", "1m", "2h")] == [0.5, 60, 7200]
    assert [human_bytes(each) for each in (5, 1536, 5 << 30)] == ["5 B", "1.5 KB", "5.0 GB"]


def test_the_layers_of_spark_are_taken_off_a_failure() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR]\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in partitions\n'
        "penstock.pipeline.problem.DataLost: t-0 begins at 9, and was to be read from 1. Option "
        'failOnDataLoss="false" makes the job go on with what is there.\n'
        " SQLSTATE: XXKST"
    )
    said = str(explain(Exception(text)))
    assert said == (
        "t-0 begins at 9, and was to be read from 1. Option --allow-gaps makes the job go on with what is there."
    )
    assert str(explain(Exception("one\ntwo"))) == "one"


def test_a_place_that_nobody_can_write_to_is_told_before_spark_starts(
    broker: BrokerProcess, new_topic: Callable[..., str], capsys: Any
) -> None:
    where = ["--to", "/proc/nope", "--once", "--bootstrap", broker.bootstrap]
    assert main(["archive", "run", "--topic", new_topic(), *where]) == 1
    assert capsys.readouterr().err == "penstock: folder /proc/nope can't be made: No such file or directory\n"
