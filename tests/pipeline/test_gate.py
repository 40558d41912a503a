"""Commands that run jobs reach brokers as --set says, from the first connection on.

That Spark's tasks do so too is seen where a query and a replay run: test_query_command.py, test_replay.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import main
from tests.pipeline.gate import ARGUMENTS

pytestmark = pytest.mark.timeout(300)


def test_an_archive_is_begun_behind_a_password(
    door: str, new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic()
    line = ["archive", "run", "--to", "/proc/nope", "--once", "--bootstrap", door, *ARGUMENTS]
    assert main([*line, "--topic", topic]) == 1
    assert "folder /proc/nope can't be made" in capsys.readouterr().err, "the topic was found before"
    assert main([*line, "--topic", f"{topic}x"]) == 1
    assert f"Did you mean '{topic}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["query", "SELECT 1"], ["replay", "--topic", "a", "--into", "b"], ["archive", "run", "--topic", "a"]]
)
def test_what_is_wrong_with_a_setting_is_told_before_spark_starts(
    command: list[str], door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*command, *(["--to", str(tmp_path)] if command[0] == "archive" else []), "--bootstrap", door, *ARGUMENTS]
    assert main([*line, "--set", "kafka.acks=1"]) == 2
    assert "has no option 'kafka.acks'" in capsys.readouterr().err
    assert main([*line, "--set", "kafka.sasl.password=guessed"]) == 1
    assert "does not let 'ann' in" in capsys.readouterr().err
