"""Read, process, write in transactions, while brokers and applications die: a short campaign of `make chaos`.

PENSTOCK_CHAOS_SEED repeats one; it is printed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.auditor import Ledger, Violation
from tests.chaos.campaign import campaign
from tests.faults.copier import transformed

SECONDS = 30.0
SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED") or random.SystemRandom().randrange(1 << 31))


@pytest.mark.timeout(240)
def test_a_copy_in_transactions_is_exact_whoever_is_killed(tmp_path: Path) -> None:
    verdict = campaign(tmp_path, SECONDS, SEED)
    print(verdict)
    assert verdict.messages > 1000
    assert sum(verdict.struck.values()) >= 5


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([0, 1, 3], id="one is lost"),
        pytest.param([0, 1, 1], id="one comes twice"),
        pytest.param([0, 1, 0], id="the order is wrong"),
    ],
)
def test_the_auditor_notices_when(numbers: list[int]) -> None:
    ledger = Ledger(partitions=1)
    *right, wrong = numbers
    for offset, number in enumerate(right):
        ledger.enter(0, offset, transformed(b"%d" % number))
    with pytest.raises(Violation):
        ledger.enter(0, len(right), transformed(b"%d" % wrong))


def test_the_auditor_is_content_with_each_message_once_and_in_order() -> None:
    ledger = Ledger(partitions=2)
    for partition, number in ((0, 0), (1, 0), (1, 1), (0, 1)):
        ledger.enter(partition, 7, transformed(b"%d" % number))
    assert ledger.following == [2, 2]
