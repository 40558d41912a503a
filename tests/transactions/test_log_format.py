"""The records of `__transaction_state`, byte for byte as Kafka 4.2 writes and reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.coordinator.machine import LogRecord
from penstock.transactions.records import read_record, tombstone, transaction_record
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX, NEVER_MS, Transaction

# Written by Kafka's own TransactionLogKey and TransactionLogValue.
KEY = bytes.fromhex("000000087061796d656e7473")
ONGOING_V0 = bytes.fromhex(
    "000000000000000003e800070000ea60010000000200066f726465727300000002000000000000000200125f5f636f6e73756d65725f"
    "6f666673657473000000010000000d0000018bcfe5687b0000018bcfe56800"
)
ONGOING_V1 = bytes.fromhex(
    "000100000000000003e800070000ea600103135f5f636f6e73756d65725f6f666673657473020000000d00076f726465727303000000"
    "0000000002000000018bcfe5687b0000018bcfe5680000"
)
ROTATING_V1 = bytes.fromhex(
    "000100000000000003e87fff0000ea600203135f5f636f6e73756d65725f6f666673657473020000000d00076f726465727303000000"
    "0000000002000000018bcfe5687b0000018bcfe5680003000800000000000003e7010800000000000007d002020002"
)
# Of a transaction that another producer has kept (KIP-939); by hand, from Kafka's schema: NextProducerEpoch has tag 3.
KEPT_V1 = (
    bytes.fromhex("0001" "00000000000003e8" "0007" "7fffffff" "01")
    + bytes.fromhex("02" "07") + b"orders" + bytes.fromhex("03" "00000000" "00000002" "00")
    + bytes.fromhex("0000018bcfe5687b" "0000018bcfe56800")
    + bytes.fromhex("04" "0008" "00000000000003e7" "0108" "00000000000007d0" "0202" "0002" "0302" "0005")
)  # fmt: skip
EMPTY_V1 = bytes.fromhex("000100000000000003e800000000ea6000000000018bcfe5687bffffffffffffffff00")

ONGOING = Transaction(
    "payments", 1000, 7, timeout_ms=60_000, state=State.ONGOING,
    partitions=frozenset({("orders", 0), ("orders", 2), ("__consumer_offsets", 13)}),
    started_ms=1_700_000_000_000, updated_ms=1_700_000_000_123,
)  # fmt: skip
ROTATING = replace(
    ONGOING, producer_epoch=EPOCH_MAX, state=State.PREPARE_COMMIT, previous_producer_id=999, next_producer_id=2000,
    version=2,
)  # fmt: skip
KEPT = replace(
    ONGOING, timeout_ms=NEVER_MS, partitions=frozenset({("orders", 0), ("orders", 2)}), previous_producer_id=999,
    next_producer_id=2000, next_producer_epoch=5, version=2,
)  # fmt: skip
EMPTY = Transaction("payments", 1000, 0, timeout_ms=60_000, updated_ms=1_700_000_000_123)

written = pytest.mark.parametrize(
    ("transaction", "value"),
    [(ONGOING, ONGOING_V1), (ROTATING, ROTATING_V1), (KEPT, KEPT_V1), (EMPTY, EMPTY_V1)],
    ids=["ongoing", "rotating", "kept", "empty"],
)


@written
def test_a_record_is_kafkas(transaction: Transaction, value: bytes) -> None:
    assert transaction_record(transaction) == LogRecord(KEY, value)


@written
def test_kafkas_record_is_read(transaction: Transaction, value: bytes) -> None:
    assert read_record(LogRecord(KEY, value)) == ("payments", transaction)


def test_the_value_of_older_brokers_is_read() -> None:
    assert read_record(LogRecord(KEY, ONGOING_V0)) == ("payments", ONGOING)


def test_the_next_id_of_a_decision_begins_with_epoch_0_and_of_who_keeps_it_with_its_own() -> None:
    assert (ROTATING.is_kept, ROTATING.following) == (False, (2000, 0))
    assert (KEPT.is_kept, KEPT.owner) == (True, (2000, 5))


def test_a_tombstone_ends_an_id() -> None:
    assert tombstone("payments") == LogRecord(KEY, None)
    assert read_record(LogRecord(KEY, None)) == ("payments", None)


def test_the_last_epoch_is_not_in_the_log() -> None:
    stored = transaction_record(replace(ONGOING, last_epoch=6))
    assert read_record(stored) == ("payments", replace(ONGOING, last_epoch=-1))


def test_every_state_comes_back_under_kafkas_number() -> None:
    numbers = {}
    for state in State:
        record = transaction_record(replace(ONGOING, state=state))
        found = read_record(record)
        numbers[state.title] = int(state)
        if state in (State.DEAD, State.PREPARE_EPOCH_FENCE):
            assert found is None, "nobody stores it"
            continue
        assert found is not None
        assert found[1] is not None
        assert found[1].state is state
    assert numbers == {
        "Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5,
        "Dead": 6, "PrepareEpochFence": 7,
    }  # fmt: skip


def test_a_record_of_another_kind_is_passed_over() -> None:
    assert read_record(LogRecord(b"\x00\x09" + KEY[2:], ONGOING_V1)) is None
