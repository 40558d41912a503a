"""What `penstock archive verify` makes of a log that is not the one, or not all, that was archived."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli import main
from penstock.pipeline.archive import verifying
from penstock.pipeline.archive.verifying import Compared, compare
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.fetching import OffsetRange
from tests.brokers import BrokerProcess
from tests.pipeline.histories import TopicHistory, make, settings_of
from tests.pipeline.test_history import make_anew


@pytest.fixture
def one(broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path) -> TopicHistory:
    """A hundred records, all of them archived by two files."""
    found = make(broker.bootstrap, new_topic(1), tmp_path)
    found.produce(100)
    found.archive_range(0, 60)
    found.archive_range(60, 100)
    return found


def remember(one: TopicHistory) -> None:
    """As a job does when it begins."""
    with Brokers(settings_of(one.bootstrap)) as brokers:
        one.archive.set_topic_id(one.topic, brokers.topics([one.topic])[one.topic].topic_id)


def verify(one: TopicHistory, capsys: Any, *, code: int) -> dict[str, Any]:
    where = ["--archive", one.archive.location.given, "--topic", one.topic, "--bootstrap", one.bootstrap]
    capsys.readouterr()
    assert main(["archive", "verify", *where, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["archive", "verify", *where]) == code
    return found


def test_what_retention_has_deleted_is_counted_and_no_difference(one: TopicHistory, capsys: Any) -> None:
    remember(one)
    one.delete_before(25)
    assert verify(one, capsys, code=0) == {"records": 75, "compacted": 0, "skipped": 25, "differences": []}
    said = capsys.readouterr().out
    assert "Compared 75 records: no difference." in said
    assert "25 offsets of the archive could not be compared: the log does not have them." in said


@pytest.mark.parametrize("count", [0, 100, 150])
def test_a_topic_of_the_same_name_is_not_the_one_that_was_archived(one: TopicHistory, capsys: Any, count: int) -> None:
    remember(one)
    make_anew(one)
    one.produce(count)  # in the last two cases the log has all that the archive has, by offsets
    found = verify(one, capsys, code=1)
    assert (found["records"], found["skipped"]) == (0, 100)
    (difference,) = found["differences"]
    assert (difference["partition"], difference["offset"]) == (0, 0)
    assert "the log is of another topic of this name" in difference["problem"]


def test_a_log_that_is_shorter_than_the_archive_is_a_difference(one: TopicHistory, capsys: Any) -> None:
    """Of an archive that does not know the id of its topic."""
    make_anew(one)
    one.produce(70)
    found = verify(one, capsys, code=1)
    assert (found["records"], found["skipped"]) == (70, 30)
    (difference,) = found["differences"]
    assert difference["offset"] == 70
    assert "the archive reaches up to 100, and the log ends here" in difference["problem"]


def test_a_topic_that_is_gone_leaves_nothing_to_compare(one: TopicHistory, capsys: Any) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": one.bootstrap, "log_level": 0})
    admin.delete_topics([one.topic])[one.topic].result(30)
    assert verify(one, capsys, code=0) == {"records": 0, "compacted": 0, "skipped": 100, "differences": []}


def test_what_retention_deletes_meanwhile_is_passed_over_and_the_rest_is_compared(
    one: TopicHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = verifying._log_rows
    begun = False

    def late(brokers: Brokers, wanted: OffsetRange) -> Iterator[tuple[pa.Table, int]]:
        nonlocal begun
        if not begun:
            begun = True
            one.delete_before(40)
        return plain(brokers, wanted)

    monkeypatch.setattr(verifying, "_log_rows", late)
    first = one.archive.pieces(one.topic)[0]
    with Brokers(settings_of(one.bootstrap)) as brokers:
        assert compare(brokers, one.archive, one.topic, first, (0, 100)) == Compared(records=20, skipped=40)


def test_a_file_that_goes_while_it_is_compared_is_no_difference(
    one: TopicHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on S3, where what is deleted fails in the words of any other failure."""
    first = one.archive.pieces(one.topic)[0]

    def gone(self: verifying._File) -> None:
        Path(first.files[0].path).unlink(missing_ok=True)
        raise self._failed(OSError("AWS Error NO_SUCH_KEY"))

    monkeypatch.setattr(verifying._File, "_next", gone)
    with Brokers(settings_of(one.bootstrap)) as brokers, pytest.raises(FileNotFoundError):
        compare(brokers, one.archive, one.topic, first, (0, 100))
    assert TopicPartition(one.topic, 0).partition == first.partition
