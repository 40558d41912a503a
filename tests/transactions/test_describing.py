"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from tests.transactions.engine import ID, ORDERS, START_MS, STOCK, TIMEOUT_MS, TransactionEngine


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


@pytest.fixture
def five() -> TransactionEngine:
    """One id in each state that lasts, begun ten milliseconds apart."""
    engine = TransactionEngine()
    for name in ("empty", "ongoing", "preparing", "committed", "aborted"):
        engine.now_ms += 10
        stamp = engine.producer(name)
        if name != "empty":
            engine.add(stamp, ORDERS, name=name)
    for name in ("committed", "aborted"):
        engine.end(engine.stamp(name), commit=name == "committed", name=name)
    engine.write_markers()
    engine.end(engine.stamp("preparing"), name="preparing")
    return engine


def test_an_open_transaction_is_described(engine: TransactionEngine) -> None:
    engine.ongoing(STOCK, ("orders", 2), ORDERS)
    (found,) = engine.describe()
    assert (found.error_code, found.transactional_id, found.transaction_state) == (ErrorCode.NONE, ID, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (1000, 0)
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (TIMEOUT_MS, START_MS)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0, 2]), ("stock", [3])]


def test_what_is_not_open_has_no_beginning_and_no_partitions(five: TransactionEngine) -> None:
    found = five.describe("empty", "ongoing", "preparing", "committed", "aborted")
    assert [
        (each.transaction_state, each.transaction_start_time_ms >= 0, [topic.topic for topic in each.topics])
        for each in found
    ] == [
        ("Empty", False, []),
        ("Ongoing", True, ["orders"]),
        ("PrepareCommit", True, ["orders"]),
        ("CompleteCommit", False, []),
        ("CompleteAbort", False, []),
    ]


def test_an_id_that_is_unknown_is_an_error_beside_the_others(engine: TransactionEngine) -> None:
    engine.producer()
    first, second = engine.describe("nobody", ID)
    assert (first.error_code, first.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "nobody")
    assert second.error_code == ErrorCode.NONE


def test_without_a_filter_all_are_listed(five: TransactionEngine) -> None:
    assert five.listed() == [
        ("aborted", 1004, "CompleteAbort"),
        ("committed", 1003, "CompleteCommit"),
        ("empty", 1000, "Empty"),
        ("ongoing", 1001, "Ongoing"),
        ("preparing", 1002, "PrepareCommit"),
    ]


def test_filters_must_all_let_it_through(five: TransactionEngine) -> None:
    names = lambda found: [name for name, *_ in found]  # noqa: E731
    assert names(five.listed(states=("Empty", "Ongoing"))) == ["empty", "ongoing"]
    assert names(five.listed(producer_ids=(1001, 1003, 7))) == ["committed", "ongoing"]
    assert names(five.listed(states=("Ongoing",), producer_ids=(1001, 1003))) == ["ongoing"]
    assert five.listed(states=("Dead",)) == []
    assert five.listed(producer_ids=(7,)) == []


def test_only_what_is_open_has_an_age(five: TransactionEngine) -> None:
    names = lambda found: [name for name, *_ in found]  # noqa: E731
    age_ms = five.now_ms - START_MS - 20  # of the one that is ongoing; the one that is preparing is ten younger
    assert names(five.listed(older_than_ms=age_ms - 11)) == ["ongoing", "preparing"]
    assert names(five.listed(older_than_ms=age_ms - 10)) == ["ongoing"]
    assert names(five.listed(older_than_ms=age_ms)) == []
    assert names(five.listed(older_than_ms=0)) == ["ongoing", "preparing"]


def test_asking_writes_nothing(five: TransactionEngine) -> None:
    before = len(five.log)
    five.describe("empty", "nobody")
    five.listed()
    assert len(five.log) == before
