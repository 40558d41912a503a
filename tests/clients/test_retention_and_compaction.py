"""Old data goes, as each client sees it: by time, by size, and all but the newest of each key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from penstock.protocol.record_batch import read_batches
from tests.brokers import BrokerProcess
from tests.clients.conftest import PEER
from tests.clients.drivers import CLIENTS, Client, Consumer, Outgoing, Received, read_all, send_all
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire, fetch_request

pytestmark = pytest.mark.skipif(PEER is not None, reason="the broker must look after its logs often")

CONFLUENT = CLIENTS["confluent"]
KILOBYTE = bytes(1000)
RETENTION_CHECK_MS = 100
END_OF_THE_FIRST_TICKS = 107


@pytest.fixture(scope="module")
def busy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that looks after its logs all the time."""
    settings = {
        "log_retention_check_interval_ms": RETENTION_CHECK_MS,
        "log_cleaner_backoff_ms": 100,
        "log_segment_delete_delay_ms": 0,
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("busy"), **settings)
    yield broker.start()
    broker.close()


def start_of(bootstrap: str, topic: str) -> int:
    with Wire(bootstrap) as wire:
        return wire.ask(fetch_request(topic, 0, wait_ms=0), 11).responses[0].partitions[0].log_start_offset


def settled_start_of(bootstrap: str, topic: str) -> int:
    """Where the log begins when retention has looked at it several times and found no more to do."""
    seen: list[int] = []

    def is_settled() -> bool:
        seen.append(start_of(bootstrap, topic))
        time.sleep(RETENTION_CHECK_MS / 1000)
        return seen[-1] > 0 and len(seen) > 5 and len(set(seen[-5:])) == 1

    wait_until(is_settled)
    return seen[-1]


def compacted_topic(bootstrap: str, name: str) -> str:
    """Compacts as soon as there is anything behind the active segment."""
    eager = {"segment_bytes": 1 << 20, "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 100}
    return create_topic(bootstrap, name, cleanup_policy="compact", **eager)


def end_the_segment(bootstrap: str, topic: str) -> None:
    """What is compacted lies behind the active segment: this fills one, so that the next message begins another."""
    for _ in range(3):
        send_all(CONFLUENT, bootstrap, topic, [Outgoing(bytes(500_000), b"tick")])


def read_up_to(consumer: Consumer, last: int) -> list[Received]:
    """How many messages compaction has left can't be known, but the last one is always there."""
    received: list[Received] = []
    deadline = time.monotonic() + 20
    while not received or received[-1].offset < last:
        assert time.monotonic() < deadline, f"nothing comes behind {received[-1:]}"
        received += consumer.poll(0.5)
    return received


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_compacted_topic_keeps_the_newest_of_each_key(
    compression: str | None, client: Client, busy_broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    bootstrap = busy_broker.bootstrap
    topic = compacted_topic(bootstrap, unique("table"))
    rounds = [[Outgoing(b"%d.%d" % (n, key), b"key-%d" % key) for key in range(20)] for n in range(5)]
    rounds.append([Outgoing(None, b"key-%d" % key) for key in range(5)])  # deleted
    for messages in rounds:
        send_all(CONFLUENT, bootstrap, topic, messages, compression=compression, linger_ms=50)
    end_the_segment(bootstrap, topic)
    kept = {(b"key-%d" % key, b"4.%d" % key) for key in range(5, 20)}

    def table_is_compact() -> bool:
        consumer = client.consumer(bootstrap)
        consumer.assign((topic, 0))
        received = read_up_to(consumer, END_OF_THE_FIRST_TICKS)
        consumer.close()
        offsets = [message.offset for message in received]
        assert offsets == sorted(set(offsets))
        found = [(m.key, m.value) for m in received if m.key != b"tick"]
        assert kept <= set(found), "the newest of a key is gone"
        return len(found) == len(kept)  # neither older ones nor, in the end, the tombstones

    def something_new_makes_it_compact() -> bool:
        """Tombstones go in a run after the one that has seen them first, so there must be something to run for."""
        end_the_segment(bootstrap, topic)
        return table_is_compact()

    wait_until(something_new_makes_it_compact, timeout_s=40)


def test_a_consumer_finds_its_way_through_the_gaps_of_a_compacted_topic(
    client: Client, busy_broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    bootstrap = busy_broker.bootstrap
    topic = compacted_topic(bootstrap, unique("gaps"))
    for n in range(50):
        key = b"often" if n % 10 else b"rarely-%d" % n
        send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, key)])
    end_the_segment(bootstrap, topic)

    def stored() -> list[int]:
        with Wire(bootstrap) as wire:
            batches = read_batches(wire.fetch(topic, 0).records)
            return [header.base_offset for header, _ in batches if header.record_count and header.base_offset < 50]

    wait_until(lambda: stored() == [0, 10, 20, 30, 40, 49])
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0))
    assert [m.offset for m in read_up_to(consumer, 52)][:6] == [0, 10, 20, 30, 40, 49]
    for offset, following in ((7, 10), (10, 10), (41, 49)):  # a place that is empty now is no error
        consumer.seek((topic, 0), offset)
        assert read_up_to(consumer, 52)[0].offset == following
    assert consumer.ends((topic, 0)) == (0, 53)
    consumer.close()


def test_a_segment_rolls_by_the_time_of_its_messages(busy_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    """What is filled in from the past is cut into segments as if it had come in its time."""
    bootstrap = busy_broker.bootstrap
    topic = create_topic(bootstrap, unique("history"), segment_ms=3_600_000, retention_ms=-1)
    for n in range(10):  # every 40 minutes: the second after the first of a segment is more than an hour later
        stamp = 1_700_000_000_000 + n * 2_400_000
        send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, timestamp_ms=stamp)])
    segments = sorted((busy_broker.data / f"{topic}-0").glob("*.log"))
    assert [int(path.stem) for path in segments] == [0, 2, 4, 6, 8]
    assert len(read_all(CONFLUENT, bootstrap, topic, 10)) == 10


def test_a_partition_drops_its_oldest_messages_beyond_its_size(
    client: Client, busy_broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    bootstrap = busy_broker.bootstrap
    topic = create_topic(bootstrap, unique("small"), retention_bytes=2 << 20, segment_bytes=1 << 20)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n + KILOBYTE) for n in range(6000)])
    begin = settled_start_of(bootstrap, topic)
    received = read_all(client, bootstrap, topic, 6000 - begin)
    assert [m.offset for m in received] == list(range(begin, 6000))
    assert (6000 - begin) * 1030 > 2 << 20, "more was dropped than had to be"


def test_messages_are_dropped_when_they_are_old(busy_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    bootstrap = busy_broker.bootstrap
    topic = create_topic(bootstrap, unique("old"), retention_ms=3_600_000, segment_bytes=1 << 20)
    old = [Outgoing(KILOBYTE, timestamp_ms=1_700_000_000_000) for _ in range(3000)]
    send_all(CONFLUENT, bootstrap, topic, old)
    wait_until(lambda: start_of(bootstrap, topic) == 3000)
    assert send_all(CONFLUENT, bootstrap, topic, [b"new"])[0].offset == 3000
    assert [m.value for m in read_all(CONFLUENT, bootstrap, topic, 1)] == [b"new"]


def test_a_topic_without_limits_keeps_everything(busy_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    bootstrap = busy_broker.bootstrap
    kept = create_topic(bootstrap, unique("kept"), retention_ms=-1, segment_bytes=1 << 20)
    control = create_topic(bootstrap, unique("control"), retention_ms=1000, segment_bytes=1 << 20)
    for topic in (kept, control):
        old = [Outgoing(KILOBYTE, timestamp_ms=1_700_000_000_000) for _ in range(3000)]
        send_all(CONFLUENT, bootstrap, topic, old)
    wait_until(lambda: start_of(bootstrap, control) == 3000)
    assert start_of(bootstrap, kept) == 0


def test_disk_space_is_given_back(busy_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    bootstrap = busy_broker.bootstrap
    topic = create_topic(bootstrap, unique("freed"), retention_bytes=1 << 20, segment_bytes=1 << 20)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(KILOBYTE) for _ in range(8000)])
    folder = busy_broker.data / f"{topic}-0"
    wait_until(lambda: sum(path.stat().st_size for path in folder.iterdir() if path.exists()) < 3 << 20)
