"""Retention that waits for a group, as a person sees it who archives a topic: commits, restarts, and what is told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.brokers import BrokerProcess
from tests.cli.conftest import Finished, run_penstock
from tests.clients.conftest import PEER
from tests.clients.drivers import CLIENTS, Outgoing, send_all
from tests.clients.steps import create_topic, wait_until
from tests.clients.test_retention_and_compaction import start_of

pytestmark = pytest.mark.skipif(PEER is not None, reason="Kafka has no such setting")

CONFLUENT = CLIENTS["confluent"]
GROUP = "archive"
OLD_MS = 1_700_000_000_000
CHECKED_OFTEN = {
    "log_retention_check_interval_ms": 100, "log_cleaner_backoff_ms": 100, "log_segment_delete_delay_ms": 0,
}  # fmt: skip
AGED = {"retention_ms": 60_000, "internal_segment_bytes": 1500}  # a record of a kilobyte fills a segment


class Archive:
    """A topic whose retention waits for a group, and another that goes the way of all topics."""

    def __init__(self, broker: BrokerProcess, **settings: object) -> None:
        self.broker = broker
        self.topic = create_topic(broker.bootstrap, "orders", retention_hold_group=GROUP, **AGED, **settings)
        self.control = create_topic(broker.bootstrap, "control", **AGED)
        self.written = 0

    @property
    def start(self) -> int:
        return start_of(self.broker.bootstrap, self.topic)

    def write(self, count: int, topic: str | None = None) -> None:
        """Records that are past their retention, one after the other, so that each has a batch of its own."""
        for _ in range(count):
            send_all(
                CONFLUENT, self.broker.bootstrap, topic or self.topic, [Outgoing(bytes(1000), timestamp_ms=OLD_MS)]
            )

    def let_retention_pass(self) -> None:
        """Until a topic that waits for nobody has lost all, twice: then every topic has been looked at."""
        for _ in range(2):
            self.write(1, self.control)
            self.written += 1
            wait_until(lambda: start_of(self.broker.bootstrap, self.control) == self.written)

    def commit(self, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        consumer.close()

    def penstock(self, *arguments: str) -> Finished:
        return run_penstock(*arguments, "--bootstrap", self.broker.bootstrap)

    def files(self) -> list[int]:
        """The offsets that the segments on the disk begin with."""
        return sorted(int(path.stem) for path in Path(self.broker.data / f"{self.topic}-0").glob("*.log"))

    def warnings(self) -> list[str]:
        return [line for line in self.broker.log.read_text().splitlines() if " WARNING " in line]


@pytest.fixture
def archive(new_broker: Callable[..., BrokerProcess]) -> Callable[..., Archive]:
    return lambda **settings: Archive(new_broker(**CHECKED_OFTEN), **settings)


def test_what_the_group_has_not_committed_stays_and_what_it_has_goes_before_and_after_a_restart(
    archive: Callable[..., Archive],
) -> None:
    each = archive()
    each.write(10)
    each.let_retention_pass()
    assert (each.start, each.files()) == (0, list(range(10)))
    described = each.penstock("topic", "describe", "orders").out
    shown = r"^orders\[0\] holds 1\d,\d+ bytes for archive, which has committed nothing\.$"
    assert re.search(shown, described, re.M), described

    each.commit(4)
    wait_until(lambda: each.start == 4)
    wait_until(lambda: each.files() == list(range(4, 10)))
    each.let_retention_pass()
    assert each.start == 4
    hold = each.penstock("topic", "describe", "orders", "--json").json["partitions"][0]["hold"]
    held = hold.pop("held_bytes")
    assert hold == {"group": GROUP, "committed": 4, "over_limit": False}
    assert 6 * 1000 < held < 6 * 1200

    each.broker.stop()
    each.broker.start()
    each.let_retention_pass()
    assert each.start == 4
    each.broker.kill()
    each.broker.start()
    each.let_retention_pass()
    assert each.start == 4, "nor after a crash"
    each.commit(10)
    wait_until(lambda: each.start == 10)
    assert [line for line in each.warnings() if "retention" in line] == []
    healthy = each.penstock("cluster", "status", "--json")
    assert (healthy.code, healthy.json["holds"]) == (0, [])


def test_beyond_the_limit_the_oldest_go_and_log_description_and_status_say_so(
    archive: Callable[..., Archive],
) -> None:
    each = archive(retention_hold_max_bytes=5000)
    each.commit(0)
    each.write(10)
    wait_until(lambda: each.start == 6, message=f"it begins at {each.start}")
    each.let_retention_pass()
    assert each.start == 6, "as much as the limit allows stays"
    (told,) = [line for line in each.warnings() if "retention.hold.max.bytes" in line]
    assert re.search(r"partition=orders-0 group=archive committed=0 below=\d bytes=\d+ held=\d+ max=5000$", told), told

    described = each.penstock("topic", "describe", "orders").out
    shown = (
        r"^! orders\[0\] holds 4,\d+ bytes for archive, which has committed up to offset 0\. Over the limit: what was "
        r"not committed is deleted\.$"
    )
    assert re.search(shown, described, re.M), described
    status = each.penstock("cluster", "status")
    assert status.code == 1
    assert "! orders[0] holds 4," in status.out
    assert "! 1 partition over retention.hold.max.bytes: what the group has not committed is deleted.\n" in status.out
    document = each.penstock("cluster", "status", "--json").json
    assert [(hold["topic"], hold["partition"], hold["over_limit"]) for hold in document["holds"]] == [
        ("orders", 0, True)
    ]

    each.commit(8)
    wait_until(lambda: each.start == 8)
    assert each.penstock("cluster", "status", "--wait", "10").code == 0
    assert "Over the limit" not in each.penstock("topic", "describe", "orders").out


def test_what_a_person_asks_for_does_not_wait(archive: Callable[..., Archive]) -> None:
    each = archive()
    each.write(6)
    each.let_retention_pass()
    assert each.penstock("topic", "truncate", "orders", "--before-offset", "3", "--yes").code == 0
    assert each.start == 3
    each.commit(4)
    wait_until(lambda: each.start == 4)
    assert each.penstock("group", "delete", GROUP, "--yes").code == 0
    each.write(2)
    each.let_retention_pass()
    assert each.start == 4, "a group that is gone holds everything"
    each.penstock("topic", "alter", "orders", "--unset", "retention.hold.group")
    wait_until(lambda: each.start == 8)


def test_a_compacted_topic_keeps_what_the_group_has_not_committed(archive: Callable[..., Archive]) -> None:
    each = archive()
    bootstrap = each.broker.bootstrap
    policy = {"cleanup_policy": "compact", "internal_segment_bytes": 1500, "min_cleanable_dirty_ratio": 0.01}
    held = create_topic(bootstrap, "held-table", retention_hold_group=GROUP, **policy)
    control = create_topic(bootstrap, "table", **policy)
    for _ in range(6):
        for topic in (held, control):
            send_all(CONFLUENT, bootstrap, topic, [Outgoing(bytes(1000), b"same")])

    def size(topic: str) -> int:
        return sum(path.stat().st_size for path in (each.broker.data / f"{topic}-0").glob("*.log"))

    wait_until(lambda: size(control) < 3000)
    time.sleep(0.5)
    assert size(held) > 6000
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(held, 0, 6)], asynchronous=False)
    consumer.close()
    wait_until(lambda: size(held) < 3000)
