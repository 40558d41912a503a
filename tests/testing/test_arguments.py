"""What tests give to the kit by mistake: each is told what can be given, and nothing is half done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.testing import BadArgument, PenstockBroker, PenstockCluster

Call = Callable[[Any], object]

MISTAKES: list[tuple[str, Call]] = [
    ("the name of a header is text, not 5", lambda kit: kit.produce("t", "a", headers={5: 1})),
    ("5 is no headers: headers are a dict", lambda kit: kit.produce("t", "a", headers=5)),
    ("is no headers", lambda kit: kit.produce("t", "a", headers=[("a", "b", "c")])),
    ("is no headers", lambda kit: kit.produce("t", "a", headers="ab")),
    ("name of a topic is text", lambda kit: kit.produce(5, "a")),
    ("partition is a whole number", lambda kit: kit.produce("t", "a", partition="0")),
    ("t has partitions 0 to 0, and no 1", lambda kit: kit.produce("t", "a", partition=1)),
    ("timestamp_ms is milliseconds", lambda kit: kit.produce("t", "a", timestamp_ms=2**70)),
    ("timestamp_ms is milliseconds", lambda kit: kit.produce("t", "a", timestamp_ms=1.5)),
    ("give bytes, text, None or JSON", lambda kit: kit.produce("t", "a", object())),
    ("give its bytes", lambda kit: kit.produce("t", "\ud800")),
    ("partitions is a whole number from 1 on", lambda kit: kit.topic("u", "3")),
    ("replication_factor is a whole number", lambda kit: kit.topic("u", replication_factor="x")),
    ("at_least is a whole number", lambda kit: kit.messages("t", at_least="1")),
    ("timeout_s is a number", lambda kit: kit.messages("t", timeout_s="1")),
    ("name of a topic is text", lambda kit: kit.messages(5)),
    ("no isolation is called 5", lambda kit: kit.messages("t", isolation=5)),
    ("the time is a number", lambda kit: kit.advance("1")),
    ("minutes is a number", lambda kit: kit.advance(minutes="1")),
    ("a century at most", lambda kit: kit.advance(days=10**9)),
    ("no API is called 5", lambda kit: kit.fail_next(5, "X")),
    ("no error is called 5", lambda kit: kit.fail_next("Fetch", 5)),
    ("times, is a whole number", lambda kit: kit.fail_next("Fetch", "NOT_COORDINATOR", 1.5)),
    ("name of a topic is text", lambda kit: kit.lose_answer("Fetch", topic=5)),
    ("a delay is a number of more than 0", lambda kit: kit.delay("Fetch", "1")),
    ("a delay is a number of more than 0", lambda kit: kit.delay("Fetch", float("inf"))),
    ("there is no broker '1': there are 1", lambda kit: kit.kill("1")),
    ("there is no broker True", lambda kit: kit.start(True)),
    ("there is no topic 'nope'", lambda kit: kit.in_sync("nope")),
    ("partition is a whole number", lambda kit: kit.leader("t", "0")),
    ("partition is a whole number", lambda kit: kit.in_sync("t", -1)),
    ("timeout_s is a number", lambda kit: kit.wait_until_in_sync("1")),
    ("Invalid value x for configuration num.partitions", lambda kit: PenstockBroker(num_partitions="x")),
    ("brokers is a whole number", lambda kit: PenstockCluster("3")),  # type: ignore[arg-type]
]


@pytest.fixture(scope="module")
def kit() -> Iterator[PenstockCluster]:
    with PenstockCluster(1) as kit:
        kit.topic("t")
        yield kit


@pytest.mark.parametrize(("says", "call"), MISTAKES)
def test_what_can_not_be_is_told_what_can(kit: PenstockCluster, says: str, call: Call) -> None:
    with pytest.raises(BadArgument) as caught:
        call(kit)
    assert says in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)
    assert kit.messages("t") == []
