"""What Spark says of a failure, in the words of the command that was run."""

from __future__ import annotations

import pytest

from penstock.cli.sparking import explain, unreadable
from penstock.pipeline.problem import ALLOW_LOSS, DataLost, OptionError, PipelineError


def test_the_option_that_allows_loss_is_the_commands_own() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR]\n"
        "Traceback (most recent call last):\n"
        f"penstock.pipeline.problem.DataLost: t-0: offset 5 is gone. Option {ALLOW_LOSS} makes the job go on.\n"
        " SQLSTATE: XXKST"
    )
    said = "the replay failed: t-0: offset 5 is gone. Option --allow-loss makes the job go on."
    assert str(explain(Exception(failure), "the replay failed")) == said


@pytest.mark.parametrize(("problem", "helps"), [(DataLost("gone"), True), (OptionError("no topic"), False)])
def test_a_loss_that_is_found_before_spark_starts_says_what_goes_on(problem: PipelineError, helps: bool) -> None:
    found = unreadable(problem, "can't read 't'")
    assert str(found) == f"can't read 't': {problem}"
    assert (found.hint is not None and "--allow-loss" in found.hint) is helps
