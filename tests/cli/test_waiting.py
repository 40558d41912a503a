"""When a producer's wait is told of, and in which words; the statistics are such as librdkafka gives."""

from __future__ import annotations

import json
from typing import Any

from penstock.cli.waiting import Waiting


class Watched:
    """A second passes between two statistics."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[str] = []
        self.waiting = Waiting("orders", self.told.append, lambda: self.now_s)

    def second(self, unanswered: int = 1, **partitions: dict[str, int]) -> None:
        self.now_s += 1.0
        known = {name.removeprefix("p"): {**QUIET, **facts} for name, facts in partitions.items()}
        topics: dict[str, Any] = {"orders": {"partitions": {**known, "-1": {**QUIET, "leader": -1}}}}
        self.waiting.on_statistics(json.dumps({"msg_cnt": unanswered, "topics": topics if known else {}}))


QUIET = {"leader": 1, "msgq_cnt": 0, "xmit_msgq_cnt": 0, "msgs_inflight": 0, "txmsgs": 0}
NO_LEADER = {"leader": -1, "msgq_cnt": 3}


def test_a_partition_without_a_leader_is_told_of_once_after_two_seconds() -> None:
    watched = Watched()
    watched.second(p0={}, p1=NO_LEADER)
    assert watched.told == []
    for _ in range(5):
        watched.second(p0={}, p1=NO_LEADER)
    assert watched.told == ["partition 1 of orders has no leader"]
    assert watched.waiting.why(1) == "partition 1 of orders has no leader"


def test_several_are_told_of_together() -> None:
    watched = Watched()
    for _ in range(3):
        watched.second(p0=NO_LEADER, p1=NO_LEADER, p2={"leader": 3, "msgs_inflight": 1})
    assert watched.told == [
        "partitions 0, 1 of orders have no leader; broker 3, which leads partition 2 of orders, acknowledges nothing"
    ]


def test_a_partition_that_answers_is_not_waited_for_however_much_it_has_left() -> None:
    watched = Watched()
    for _ in range(10):
        watched.waiting.answered(0)
        watched.second(p0={"msgq_cnt": 1000, "txmsgs": 5})
    assert watched.told == []


def test_what_is_refused_and_sent_again_waits_though_no_queue_holds_it() -> None:
    watched = Watched()
    for sent in (1, 3, 4, 4):
        watched.second(p0={"leader": 2, "txmsgs": sent})
    assert watched.told == ["broker 2, which leads partition 0 of orders, acknowledges nothing"]


def test_nothing_is_told_while_nothing_is_unanswered() -> None:
    watched = Watched()
    watched.second(p0={"txmsgs": 1})
    for _ in range(5):
        watched.second(unanswered=0, p0={"txmsgs": 2})
    assert watched.told == []


def test_a_topic_that_is_gone_is_no_reason_to_fail() -> None:
    watched = Watched()
    watched.second(p1=NO_LEADER)
    for _ in range(3):
        watched.second()
    assert watched.told == []
    assert watched.waiting.why(1) is None
