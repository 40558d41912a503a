"""kill -9 under load, again and again: nothing acknowledged is lost, nothing comes twice, groups go on.

PENSTOCK_KILLS sets how often, PENSTOCK_KILLS_SEED at which moments.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.protocol.record_batch import read_batches, read_records
from tests.brokers import BrokerProcess
from tests.clients.drivers import CLIENTS
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire
from tests.faults.load import Load

KILLS = int(os.environ.get("PENSTOCK_KILLS", "20"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "1"))
PARTITIONS = 3
TOPIC, GROUP = "ledger", "readers"
PRODUCERS = ("alice", "bob")


@pytest.fixture
def loads() -> Iterator[Callable[..., Load]]:
    started: list[Load] = []

    def start(*arguments: object) -> Load:
        started.append(Load(*arguments))
        return started[-1]

    yield start
    for load in started:
        load.close()


def stored(bootstrap: str, partition: int) -> list[bytes]:
    """Every message of a partition: the place in the list is the offset, since nothing may be missing."""
    values: list[bytes] = []
    with Wire(bootstrap) as wire:
        while True:
            found = wire.fetch(TOPIC, len(values), partition=partition, max_bytes=8 << 20, wait_ms=0)
            for header, batch in read_batches(found.records):
                assert header.base_offset == len(values), f"a gap before {header.base_offset} in {partition}"
                values += [record.value or b"" for record in read_records(batch, 1 << 21, check_crc=True)]
            if len(values) == found.high_watermark:
                return values


def check_producer(name: str, journal: list[list[str]], log: dict[int, list[bytes]]) -> None:
    for line in journal:
        partition, offset, number = map(int, line)
        expected = f"{name}:{partition}:{number} ".encode()
        assert offset < len(log[partition]), f"{name}'s acknowledged message {number} is lost"
        assert log[partition][offset].startswith(expected), f"something else stands at {partition}/{offset}"
    acknowledged: dict[int, int] = defaultdict(int)
    for line in journal:
        acknowledged[int(line[0])] += 1
    for partition, values in log.items():
        own = [int(value.split(b" ", 1)[0].rsplit(b":", 1)[1]) for value in values if value.startswith(name.encode())]
        # Each once, in order; and since every one was acknowledged in the end, there are no others.
        assert own == list(range(acknowledged[partition])), f"{name}'s messages in {partition} are not what was sent"


def check_consumer(journal: list[list[str]], log: dict[int, list[bytes]]) -> None:
    """It reads on from where it stands, or again from a commit: never past what it has not read."""
    following: dict[int, int] = defaultdict(int)
    committed: dict[int, int] = defaultdict(int)
    for what, *numbers in journal:
        partition, offset = map(int, numbers)
        if what == "committed":
            committed[partition] = offset
            continue
        assert offset <= following[partition], f"the group skipped {following[partition]} in {partition}"
        if offset != following[partition]:
            assert offset >= committed[partition], f"the group went back behind its commit in {partition}"
        following[partition] = offset + 1
    for partition, values in log.items():
        assert following[partition] == committed[partition] == len(values)


@pytest.mark.timeout(60 + 10 * KILLS)
def test_a_broker_killed_again_and_again_keeps_its_promises(
    new_broker: Callable[..., BrokerProcess], loads: Callable[..., Load], tmp_path: Path
) -> None:
    moments = random.Random(SEED)
    broker = new_broker(group_min_session_timeout_ms=100)
    create_topic(broker.bootstrap, TOPIC, PARTITIONS, segment_bytes=1 << 20)
    producers = {
        name: loads(tmp_path / name, "produce", broker.bootstrap, TOPIC, str(PARTITIONS), name) for name in PRODUCERS
    }
    reader = loads(tmp_path / "reader", "consume", broker.bootstrap, TOPIC, GROUP)
    for _ in range(KILLS):
        before = [load.size() for load in producers.values()]
        wait_until(
            lambda before=before: all(load.size() > size for load, size in zip(producers.values(), before)),
            message=f"nothing is acknowledged any more:\n{broker.log.read_text()[-2000:]}",
        )
        time.sleep(moments.uniform(0.0, 0.5))
        broker.kill()
        broker.start()
    for producer in producers.values():
        producer.finish()
    reader.finish()
    log = {partition: stored(broker.bootstrap, partition) for partition in range(PARTITIONS)}
    assert sum(len(values) for values in log.values()) > 20 * KILLS
    for name, producer in producers.items():
        check_producer(name, producer.lines(), log)
    check_consumer(reader.lines(), log)
    group = CLIENTS["confluent"].consumer(broker.bootstrap, group=GROUP)
    for partition, values in log.items():
        committed = group.committed((TOPIC, partition))
        assert committed is not None
        assert committed.offset == len(values)
    group.close()
