"""Where a consumer reads, what it leaves out, when it stops, and how far it is behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.client import Consumer, Producer
from tests.client.conftest import MakeTopic

Unique = Callable[[str], str]
WAIT_S = 20.0
HOUR_MS = 3_600_000


def fill(bootstrap: str, topic: str, count: int = 10, partitions: int = 1) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(
                topic,
                str(number),
                partition=number % partitions,
                headers={"parity": "odd" if number % 2 else "even"},
                timestamp_ms=1_700_000_000_000 + number * HOUR_MS,
            )


def values(consumer: Consumer[bytes, str], count: int) -> list[str]:
    return [message.value for message in consumer.messages(count, timeout=WAIT_S)]


def test_what_a_filter_leaves_out_counts_as_processed(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic)
    with Consumer[bytes, str](bootstrap, group, topic, value="text", where={"parity": "even"}) as consumer:
        assert values(consumer, 5) == ["0", "2", "4", "6", "8"]
        assert consumer.poll(0.5) is None
    with Consumer[bytes, str](bootstrap, group, topic, value="text") as consumer:
        assert consumer.poll(0.5) is None
        assert consumer.lag == 0


def test_seeking_in_the_midst_of_a_batch(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic()
    fill(bootstrap, topic)
    with Consumer[bytes, str](bootstrap, unique("group"), topic, value="text") as consumer:
        seen = []
        for message in consumer.messages(8, timeout=WAIT_S):
            seen.append(message.value)
            if seen == ["0", "1", "2"]:
                consumer.seek(topic, 0, 7)
            if len(seen) == 6:
                consumer.seek(topic, 0, 1)
    assert seen == ["0", "1", "2", "7", "8", "9", "1", "2"]


def test_seeking_to_a_time(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic(partitions=2)
    fill(bootstrap, topic, partitions=2)
    with Consumer[bytes, str](bootstrap, unique("group"), topic, value="text") as consumer:
        consumer.seek_to_time(datetime.fromtimestamp(1_700_000_000 + 6 * 3600 - 1, UTC))
        assert sorted(values(consumer, 4)) == ["6", "7", "8", "9"]
        consumer.seek_to_time(datetime.fromtimestamp(1_900_000_000, UTC))
        assert consumer.poll(0.5) is None
        fill(bootstrap, topic, 1)
        assert values(consumer, 1) == ["0"]


def test_a_paused_partition_gives_nothing_and_loses_nothing(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic = make_topic(partitions=2)
    fill(bootstrap, topic, 20, partitions=2)
    with Consumer[bytes, str](bootstrap, unique("group"), topic, value="text") as consumer:
        first = consumer.poll(WAIT_S)
        assert first is not None
        consumer.pause((topic, 1 - first.partition))
        rest = [message.partition for message in consumer.messages(9, timeout=WAIT_S)]
        assert set(rest) == {first.partition}
        assert consumer.poll(0.3) is None
        consumer.resume()
        again = [message.offset for message in consumer.messages(10, timeout=WAIT_S)]
        assert again == list(range(10))


def test_the_lag_is_what_is_not_processed(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    fill(bootstrap, topic, 10, partitions=2)
    with Consumer[bytes, str](bootstrap, group, topic, value="text") as consumer:
        assert consumer.poll(WAIT_S) is not None
        assert consumer.lag == 10
        values(consumer, 4)
        assert consumer.lag == 5
        assert sorted(consumer.lags) == [(topic, 0), (topic, 1)]
        values(consumer, 5)
        assert consumer.lag == 0


def test_a_signal_ends_the_loop_behind_the_message_in_hand(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(), unique("group")
    fill(bootstrap, topic)
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    with Consumer[bytes, str](bootstrap, group, topic, value="text") as consumer:
        for message in consumer:
            seen.append(message.value)
            if len(seen) == 3:
                os.kill(os.getpid(), signal.SIGTERM)
        assert consumer.stopping
    assert seen == ["0", "1", "2"]
    assert signal.getsignal(signal.SIGTERM) is before
    with Consumer[bytes, str](bootstrap, group, topic, value="text") as consumer:
        assert values(consumer, 1) == ["3"]


def test_another_thread_may_stop_a_consumer_that_waits(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    with Consumer[bytes, bytes](bootstrap, unique("group"), make_topic()) as consumer:
        threading.Timer(0.3, consumer.stop).start()
        assert list(consumer) == []


def test_partitions_go_to_a_new_member_with_what_was_processed(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    fill(bootstrap, topic, 20, partitions=2)
    came: list[object] = []
    went: list[object] = []
    with Consumer[bytes, str](bootstrap, group, topic, value="text", commit_interval_s=60) as old:
        old.on_assign(came.extend)
        old.on_revoke(went.extend)
        seen = values(old, 20)
        with Consumer[bytes, str](bootstrap, group, topic, value="text") as new:
            new.begin()
            while not new.assignment:
                assert old.poll(0.1) is None
                assert new.poll(0.1) is None
            assert sorted(went) == [(topic, 0), (topic, 1)]
            fill(bootstrap, topic, 2, partitions=2)
            while len(seen) < 22:
                seen += [each.value for each in (old.poll(0.1), new.poll(0.1)) if each is not None]
    assert len(came) >= 3
    assert sorted(seen) == sorted([str(number) for number in range(20)] + ["0", "1"])


def test_a_custom_partitioner_chooses(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with Producer(bootstrap, partitioner=lambda key, partitions: (key or b"\0")[0] % partitions) as producer:
        sent = [producer.send(topic, b"", key=bytes([number])).result(WAIT_S).partition for number in range(6)]
        assert sent == [0, 1, 2, 0, 1, 2]
        assert producer.send(topic, b"", key=bytes([1]), partition=0).result(WAIT_S).partition == 0
