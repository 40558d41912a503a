"""What a task does, with a real broker and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.pipeline.archive import copying, parquet
from penstock.pipeline.archive.copying import copy_range
from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.archive.status import log_ends, status
from penstock.pipeline.archive.verifying import Compared, compare, compare_again
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.connection import ClientSettings
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.problem import DataLost, PipelineError
from tests.brokers import BrokerProcess
from tests.pipeline.archive.producing import as_consumed, consume_committed, produce_everything, produce_plain
from tests.pipeline.archive.rows import DAY_MS, NOON_MS, archive_range, read_all


@pytest.fixture
def brokers(broker: BrokerProcess) -> Iterator[Brokers]:
    with Brokers(ClientSettings((("127.0.0.1", broker.port),), patience_s=20)) as found:
        yield found


def whole(brokers: Brokers, topic: str, partition: int = 0) -> OffsetRange:
    place = TopicPartition(topic, partition)
    return OffsetRange(place, *log_ends(brokers, topic)[place])


def test_a_range_that_is_too_much_for_a_file_is_cut_at_the_same_offsets_every_time(
    brokers: Brokers,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic()
    produce_everything(broker.bootstrap, topic, 1)
    wanted = whole(brokers, topic)
    monkeypatch.setattr(copying, "CHUNK_BYTES", 4_000)
    archives = [Archive(str(tmp_path / name)) for name in ("a", "b")]
    for each in archives:
        copied = copy_range(brokers, each, wanted, file_bytes=20_000)
        assert copied.files == len(each.files(topic))
        assert len(each.pieces(topic)) >= 3
        assert each.coverage(topic) == {0: [(wanted.start, wanted.stop)]}
    expected = consume_committed(broker.bootstrap, topic, 1)
    assert copied.rows == len(expected)
    assert as_consumed(read_all(archives[0], topic)) == expected
    names = [[Path(file.path).name for file in each.files(topic)] for each in archives]
    assert names[0] == names[1]


def test_records_of_more_days_than_files_can_be_open_are_cut_into_ranges(
    brokers: Brokers,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce(topic, value=b"v", timestamp=NOON_MS - (number * 7 % 30) * DAY_MS)
    producer.flush(30)
    monkeypatch.setattr(parquet, "DAYS_MAX", 8)
    archive = Archive(str(tmp_path))
    copy_range(brokers, archive, whole(brokers, topic))
    assert archive.coverage(topic) == {0: [(0, 100)]}
    assert [each["offset"] for each in read_all(archive, topic)] == list(range(100))
    assert all(1 <= len(each.files) <= 8 for each in archive.pieces(topic))


def test_a_range_that_lost_records_is_not_archived_as_if_it_had_none(
    brokers: Brokers, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    from penstock.cli import main

    topic = new_topic()
    produce_plain(broker.bootstrap, topic, 20)
    wanted = whole(brokers, topic)
    assert main(["topic", "truncate", topic, "--before-offset", "10", "-y", "--bootstrap", broker.bootstrap]) == 0
    archive = Archive(str(tmp_path))
    with pytest.raises(DataLost, match=f"{topic}-0: offset 0 was to be read, but the log reaches from 10 to 20"):
        copy_range(brokers, archive, wanted)
    assert archive.coverage(topic) == {}


def test_a_place_that_can_not_be_written_is_told_with_the_range(
    brokers: Brokers, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    produce_plain(broker.bootstrap, topic, 5)
    (tmp_path / "file").write_bytes(b"")
    archive = Archive(str(tmp_path / "file" / "below"))
    with pytest.raises(PipelineError, match=rf"{topic}-0 \[0, 5\) can't be written to .*below"):
        copy_range(brokers, archive, whole(brokers, topic))


def test_a_comparison_tells_what_differs_and_what_only_the_archive_has(
    brokers: Brokers, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    produce_everything(broker.bootstrap, topic, 1)
    log = whole(brokers, topic)
    visible = len(consume_committed(broker.bootstrap, topic, 1))
    archive = Archive(str(tmp_path))
    archive_range(archive, topic, log.start, log.stop)  # a record at every offset, also where one was aborted
    (piece,) = archive.pieces(topic)
    found = compare(brokers, archive, topic, piece, (0, log.stop))
    assert "its key is None in the log and b'k0' in the archive" in str(found.differences[0])
    assert found.compacted == 0
    last = compare(brokers, archive, topic, piece, (log.stop - 1, log.stop))
    assert str(last.differences[0]) == (
        f"{topic}-0 at offset {log.stop - 1}: the archive has it, the log does not (or it was aborted)"
    )
    found = compare(brokers, archive, topic, piece, (0, log.stop), compacted=True)
    assert (found.records, found.compacted) == (visible, log.stop - visible)


def test_a_comparison_is_of_the_range_that_was_asked_for(
    brokers: Brokers, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    produce_plain(broker.bootstrap, topic, 20)
    archive = Archive(str(tmp_path))
    assert copy_range(brokers, archive, whole(brokers, topic)).rows == 20
    (piece,) = archive.pieces(topic)
    assert compare(brokers, archive, topic, piece, (5, 15)) == Compared(records=10)
    assert compare(brokers, archive, topic, piece, (20, 20)) == Compared()
    assert compare_again(brokers, archive, topic, piece, (0, 20)) == Compared(records=20)
    assert status(archive, topic, log_ends(brokers, topic)).partitions[0].lag == 0
