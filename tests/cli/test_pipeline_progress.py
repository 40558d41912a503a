from __future__ import annotations

import pytest

from penstock.cli.pipeline.progress import Progress
from penstock.pipeline.transform.running import Batch


def batch(query: str, rows_out: int | None, *, dead_letters: bool = False) -> Batch:
    return Batch(query, dead_letters, 0, rows_in=7, rows_out=rows_out, read=7, lag=0, duration_ms=1500)


def test_rows_that_spark_does_not_count_are_left_out_and_not_called_none(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("orders", ["orders.a", "orders.b", "orders.bad"], as_json=False) as progress:
        progress.tell(batch("orders.a", 5))
        progress.tell(batch("orders.bad", 2, dead_letters=True))
        progress.summary()
        progress.tell(batch("orders.b", None))
    progress.summary()
    assert capsys.readouterr().out.splitlines() == [
        "orders.a  batch 0: 7 in, 5 out, 0 behind, 1.5 s",
        "orders.bad  batch 0: 2 bad, 0 behind, 1.5 s",
        "Pipeline orders: 7 in, 5 out, 2 bad.",
        "orders.b  batch 0: 7 in, 0 behind, 1.5 s",
        "Pipeline orders: 14 in, 2 bad.",
    ]
