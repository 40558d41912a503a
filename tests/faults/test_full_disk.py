"""A disk without room: an error and no acknowledgement, nothing corrupt, and well again when there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.record_batch import read_batches, read_records
from tests.brokers import BrokerProcess
from tests.clients.drivers import CLIENTS, Commit, Outgoing, Refused, send_all
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire, batch_of

CONFLUENT = CLIENTS["confluent"]
DISK_BYTES = 48 << 20
BALLAST_BYTES = 24 << 20
VALUE = bytes(200_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small-disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mount.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def full(small_disk: Path) -> Iterator[tuple[BrokerProcess, Path]]:
    """A broker on the small disk, and a file whose removal makes room."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker = BrokerProcess(small_disk).start()
    yield broker, ballast
    broker.close()


def fill(wire: Wire, topic: str) -> list[int]:
    """Produces until the disk is full; the offsets that were acknowledged."""
    acknowledged: list[int] = []
    for number in range(10_000):
        answer = wire.produce(topic, batch_of(b"%05d" % number + VALUE))
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert answer.base_offset == -1
            return acknowledged
        assert answer.base_offset == number
        acknowledged.append(number)
    raise AssertionError("the disk never filled")


def leave_nothing(filler: Path) -> None:
    """Takes what room is left, to the last page."""
    with filler.open("wb", buffering=0) as rest, contextlib.suppress(OSError):
        while True:
            rest.write(bytes(4096))


def contents(bootstrap: str, topic: str) -> list[bytes]:
    """The first bytes of each message; the place in the list is the offset."""
    found: list[bytes] = []
    with Wire(bootstrap) as wire:
        while True:
            data = wire.fetch(topic, len(found), max_bytes=4 << 20, wait_ms=0)
            assert data.error_code == ErrorCode.NONE
            for header, batch in read_batches(data.records):
                assert header.base_offset == len(found), "a gap"
                found += [(record.value or b"")[:5] for record in read_records(batch, 1 << 21, check_crc=True)]
            if len(found) == data.high_watermark:
                return found


def test_a_full_disk_refuses_without_losing_and_heals_without_a_restart(full: tuple[BrokerProcess, Path]) -> None:
    broker, ballast = full
    topic = create_topic(broker.bootstrap, "filling")
    with Wire(broker.bootstrap) as wire:
        acknowledged = fill(wire, topic)
        assert len(acknowledged) > 10
        # Still full: still refused, and what was acknowledged is still read.
        assert wire.produce(topic, batch_of(b"again" + VALUE)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert contents(broker.bootstrap, topic) == [b"%05d" % n for n in acknowledged]
        ballast.unlink()
        wait_until(lambda: wire.produce(topic, batch_of(b"there" + VALUE)).error_code == ErrorCode.NONE)
        assert wire.produce(topic, batch_of(b"after" + VALUE)).base_offset == len(acknowledged) + 1
    expected = [b"%05d" % n for n in acknowledged] + [b"there", b"after"]
    assert contents(broker.bootstrap, topic) == expected
    broker.kill()
    broker.start()
    assert contents(broker.bootstrap, topic) == expected


def test_a_producer_that_retries_gets_through_when_there_is_room_again(full: tuple[BrokerProcess, Path]) -> None:
    broker, ballast = full
    topic = create_topic(broker.bootstrap, "filling")
    with Wire(broker.bootstrap) as wire:
        acknowledged = fill(wire, topic)
    producer = CONFLUENT.producer(
        broker.bootstrap, idempotent=True, **{"message.timeout.ms": 60_000, "retry.backoff.ms": 100}
    )
    for n in range(5):
        producer.send(topic, Outgoing(b"retry" + VALUE, b"%d" % n))
    time.sleep(0.5)  # it is refused meanwhile, of which it says nothing
    ballast.unlink()
    assert [placed.offset for placed in producer.finish()] == [len(acknowledged) + n for n in range(5)]
    producer.close()
    assert contents(broker.bootstrap, topic) == [b"%05d" % n for n in acknowledged] + [b"retry"] * 5


def test_a_full_disk_refuses_commits_and_new_topics_and_heals(full: tuple[BrokerProcess, Path]) -> None:
    broker, ballast = full
    topic = create_topic(broker.bootstrap, "filling")
    consumer = CONFLUENT.consumer(broker.bootstrap, group="readers")
    consumer.assign((topic, 0))
    consumer.commit({(topic, 0): Commit(1)})
    filler = ballast.parent / "filler"
    with Wire(broker.bootstrap) as wire:
        fill(wire, topic)
    leave_nothing(filler)
    committed = 1
    for offset in range(2, 200):
        try:
            consumer.commit({(topic, 0): Commit(offset, "x" * 3000)})
            committed = offset
        except Refused:
            break
    else:
        pytest.fail("commits are taken without end though the disk is full")
    filler.unlink()
    ballast.unlink()

    def commits_again() -> bool:
        try:
            consumer.commit({(topic, 0): Commit(500)})
        except Refused:
            return False
        return True

    found = consumer.committed((topic, 0))
    assert found is not None
    assert found.offset >= committed
    wait_until(commits_again)
    consumer.close()
    create_topic(broker.bootstrap, "another")
    send_all(CONFLUENT, broker.bootstrap, "another", [b"x"])
    broker.kill()
    broker.start()
    reader = CONFLUENT.consumer(broker.bootstrap, group="readers")
    again = reader.committed((topic, 0))
    assert again is not None
    assert again.offset == 500
    reader.close()
