"""Transactions that outlive something: a broker, their producer, the compaction of what they wrote."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.brokers import BrokerProcess
from tests.clients.drivers import Client, read_all
from tests.clients.drivers.face import WAIT_S, poll_until
from tests.clients.steps import create_topic, wait_until
from tests.clients.test_retention_and_compaction import compacted_topic, end_the_segment
from tests.clients.writers import CONFLUENT, LONG_MS, ConfluentWriter, NewWriter, committed_reader, values_up_to_end

# ---- restarts


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_transactions_survive_a_restart(
    how: str, client: Client, new_broker: Callable[..., BrokerProcess], new_writer: NewWriter
) -> None:
    """One is decided before, one is open; readers find the first at once, the second when it is committed."""
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "ledger")
    decided, undone, opened = (new_writer(name, at=broker.bootstrap) for name in ("decided", "undone", "opened"))
    for writer, value in ((decided, b"decided"), (undone, b"undone"), (opened, b"open")):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
    decided.commit()
    undone.abort()
    broker.stop() if how == "stopped" else broker.kill()
    broker.start()
    careful = committed_reader(client, broker.bootstrap, (topic, 0))
    assert [m.value for m in poll_until(careful, 1)] == [b"decided"]
    opened.send(topic, b"open still")
    opened.commit()
    assert [m.value for m in poll_until(careful, 2)] == [b"open", b"open still"]
    careful.close()
    assert values_up_to_end(client, broker.bootstrap, topic, "read_committed") == [b"decided", b"open", b"open still"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_readers_reach_the_end_after_a_restart_although_nobody_writes(
    how: str, new_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "ledger")
    writer = ConfluentWriter(broker.bootstrap, unique("writer"), LONG_MS)
    writer.begin()
    for n in range(3):
        writer.send(topic, b"%d" % n)
    writer.commit()
    writer.close()
    seen = read_all(CONFLUENT, broker.bootstrap, topic, 3, isolation="read_committed")
    broker.stop() if how == "stopped" else broker.kill()
    broker.start()
    assert read_all(CONFLUENT, broker.bootstrap, topic, 3, isolation="read_committed") == seen


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_transaction_whose_producer_is_gone_times_out_after_a_restart(
    how: str, new_broker: Callable[..., BrokerProcess]
) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "ledger")
    forgotten = ConfluentWriter(broker.bootstrap, "forgotten", 1500)
    forgotten.begin()
    forgotten.send(topic, b"forgotten")
    forgotten.flush()
    broker.stop() if how == "stopped" else broker.kill()
    broker.start()
    assert values_up_to_end(CONFLUENT, broker.bootstrap, topic, "read_committed") == []
    forgotten.close()


# ---- compaction


def test_compaction_keeps_the_newest_that_was_committed(
    client: Client, new_broker: Callable[..., BrokerProcess], new_writer: NewWriter
) -> None:
    """What was aborted goes, and never takes the place of what was committed before it."""
    broker = new_broker(log_cleaner_backoff_ms=100, log_retention_check_interval_ms=100)
    topic = compacted_topic(broker.bootstrap, "table")
    writer = new_writer(at=broker.bootstrap)
    for number, ends in ((0, writer.commit), (1, writer.commit), (2, writer.abort)):
        writer.begin()
        for key in range(10):
            writer.send(topic, b"%d.%d" % (number, key), b"key-%d" % key)
        writer.flush()
        ends()
    end_the_segment(broker.bootstrap, topic)
    kept = [(b"key-%d" % key, b"1.%d" % key) for key in range(10)]

    def table(isolation: str) -> list[tuple[bytes | None, bytes | None]]:
        values = read_up_to_tick(client, broker.bootstrap, topic, isolation)
        return [(key, value) for key, value in values if key != b"tick"]

    def is_compact() -> bool:
        careful = table("read_committed")
        assert careful[-10:] == kept
        return careful == kept == table("read_uncommitted")

    wait_until(is_compact, timeout_s=40)


def read_up_to_tick(
    client: Client, bootstrap: str, topic: str, isolation: str
) -> list[tuple[bytes | None, bytes | None]]:
    consumer = client.consumer(bootstrap, isolation=isolation)
    consumer.assign((topic, 0))
    found: list[tuple[bytes | None, bytes | None]] = []
    deadline = time.monotonic() + WAIT_S
    while b"tick" not in (key for key, _ in found):
        assert time.monotonic() < deadline, f"nothing comes behind {found[-1:]}"
        found += [(message.key, message.value) for message in consumer.poll()]
    consumer.close()
    return found
