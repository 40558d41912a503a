"""Every fault once, under load: nothing acknowledged is lost, nothing is doubled, and all goes on in time.

Without `--every-fault` one of each kind: that takes two minutes, and all of them six.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.matrix.conftest import Clusters
from tests.matrix.faults import ALL, Fault
from tests.matrix.table import ROW
from tests.matrix.trial import trial

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"

ONE_OF_EACH_KIND = {
    "kill -9 of the leader",
    "kill -9 of the transaction coordinator",
    "kill -9 of all at once",
    "SIGSTOP of the controller",
    "last replica standing",
    "ZooKeeper killed",
    "leader killed while ZooKeeper is away",
    "network of the leader cut whole",
    "network of the leader cut one way: nobody hears it",
    "disk full on one",
    "power loss on all",
    "corrupt segment on a running leader",
    "data folder of the leader wiped",
    "reassignment while leaders die",
}

_numbers = itertools.count(1)


@pytest.mark.parametrize("fault", ALL, ids=str)
def test_promises_are_kept(
    fault: Fault,
    clusters: Clusters,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    if str(fault) not in ONE_OF_EACH_KIND and not request.config.getoption("--every-fault"):
        pytest.skip("one of each kind is enough here; --every-fault runs all")
    cluster = clusters.take()
    if reason := fault.why_not(cluster):
        pytest.skip(reason)
    number = next(_numbers)
    try:
        record_property(ROW, asdict(trial(cluster, fault, f"trial-{number}", number, tmp_path)))
    except BaseException:
        clusters.abandon()
        raise


def test_what_stands_for_its_kind_exists() -> None:
    assert {str(fault) for fault in ALL} >= ONE_OF_EACH_KIND


def test_the_document_lists_every_fault() -> None:
    listed = re.findall(r"^\| ([^|]+?) \| +[\d.]+ \|", DOCUMENT.read_text(), re.M)
    assert listed == [str(fault) for fault in ALL]
