"""The suites on the page about testing run as they stand there, but for the one that needs a container."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.test_documents import assert_shown, blocks
from tests.testing.conftest import WITH_PLUGIN
from tests.testing.test_plugin import PACKAGE

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
PYTHON = [block.text for block in blocks(PAGE) if block.language == "python"]
FILES = {text.partition("\n")[0].removeprefix("# "): text for text in PYTHON}
NOT_RUN = "conftest.py and test_shop.py, before"
SUITES = sorted(name for name in FILES if name not in (NOT_RUN, "shop.py"))


def test_only_what_needs_a_container_is_not_run() -> None:
    assert "testcontainers" in FILES[NOT_RUN]
    assert not [name for name in SUITES if "testcontainers" in FILES[name]]
    assert len(SUITES) > 10
    for name, text in FILES.items():
        compile(text, name, "exec")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    return lambda *arguments: pytester.runpytest_subprocess(*WITH_PLUGIN, *arguments, timeout=90)


def test_the_suites_pass(run: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    for name in ("shop.py", *SUITES):
        (pytester.path / name).write_text(FILES[name])
    result = run("-n", "2")
    result.assert_outcomes(passed=sum(text.count("def test_") for name, text in FILES.items() if name in SUITES))


def test_the_command_prints_what_is_shown() -> None:
    (block,) = (block for block in blocks(PAGE) if block.language == "sh" and "penstock.testing" in block.text)
    command = block.text.replace("python -m", f"'{sys.executable}' -m")
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(PACKAGE)}
    )
    assert block.shows
    assert_shown(done.stdout, block.shows)
