"""That what is installed has the compiled twin, and that the other one is there without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.pipeline import columns, pure_columns, twins
from tests.pipeline.column_twins import can_compile, compiled_twin


def test_the_columns_that_are_installed_are_compiled_where_they_can_be(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--installed"):
        pytest.skip("only an installed package can be compiled, and the source is under test")
    assert can_compile() == columns.COMPILED


def test_what_is_compiled_is_used() -> None:
    assert (twins.Columns is not pure_columns.Columns) == columns.COMPILED


def test_source_can_be_compiled_where_there_is_a_compiler() -> None:
    """Else every test of the compiled twin would be skipped, and none would tell."""
    assert (compiled_twin() is not None) == can_compile()


def test_without_the_compiled_twin_the_other_one_does_the_work() -> None:
    script = (
        "import sys; sys.modules['penstock.pipeline._columns'] = None; "
        "from penstock.pipeline import columns, pure_columns, twins; "
        "assert twins.Columns is pure_columns.Columns; print(columns.COMPILED)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_the_room_can_be_looked_into_without_arrow() -> None:
    """The rest of the package must not need what only the extra `spark` brings."""
    script = (
        "import sys; sys.modules['pyarrow'] = None; import penstock.pipeline, penstock.pipeline.twins; print('there')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "there\n", done.stderr
