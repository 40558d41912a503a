"""Every fault once, under load: nothing acknowledged is lost, nothing is doubled, and all goes on in time."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.matrix.conftest import Clusters
from tests.matrix.faults import ALL, Fault
from tests.matrix.table import ROWS
from tests.matrix.trial import trial

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"

_numbers = itertools.count(1)


@pytest.mark.parametrize("fault", ALL, ids=str)
def test_promises_are_kept(fault: Fault, clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters.take()
    if reason := fault.why_not(cluster):
        pytest.skip(reason)
    number = next(_numbers)
    try:
        ROWS.append(trial(cluster, fault, f"trial-{number}", number, tmp_path))
    except BaseException:
        clusters.abandon()
        raise


def test_the_document_lists_every_fault() -> None:
    listed = re.findall(r"^\| ([^|]+?) \| +[\d.]+ \|", DOCUMENT.read_text(), re.M)
    assert listed == [str(fault) for fault in ALL]
