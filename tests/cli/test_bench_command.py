from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Finished

Penstock = Callable[..., Finished]


def test_a_load_of_so_many_messages_is_measured_to_the_last(penstock: Penstock) -> None:
    options = ["--messages", "2001", "--size", "100", "--producers", "2", "--partitions", "2", "--consumers", "2"]
    done = penstock("bench", *options, "--compression", "lz4", "--json")
    assert done.code == 0, done.err
    report = done.json
    for side in ("produce", "consume"):
        assert report[side]["messages"] == 2001
        assert report[side]["failed"] == 0
        assert list(report[side]["latency_ms"]) == ["p50", "p90", "p99", "p99.9", "max"]
        assert sum(row["messages"] for row in report[side]["histogram"]) == 2001


def test_a_steady_load_keeps_its_rate(penstock: Penstock) -> None:
    report = penstock("bench", "--duration", "2", "--rate", "200", "--size", "20", "--linger", "0", "--json").json
    assert 300 <= report["produce"]["messages"] <= 401
    assert 150 <= report["produce"]["messages_per_s"] <= 250


def test_a_person_reads_a_table_and_a_picture_and_the_topic_is_gone(penstock: Penstock) -> None:
    done = penstock("bench", "--messages", "500", "--consumers", "0", "--acks", "1")
    assert done.code == 0, done.err
    assert ["produce", "500", "0"] in [line.split()[:3] for line in done.out.splitlines()]
    assert "P99.9" in done.out
    assert "█" in done.out
    assert "penstock-bench" not in penstock("topic", "list").out


@pytest.mark.parametrize("size", ["7", "5000000", "99999999999"])
def test_a_size_that_no_message_may_have_is_refused_before_anything_begins(penstock: Penstock, size: str) -> None:
    refused = penstock("bench", "--size", size)
    assert refused.code == 2
    assert "bytes" in refused.err
    assert "Traceback" not in refused.err
