"""A group is of one archive alone: retention waits for what it has committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.pipeline.archive.group import expect_own, location_in, metadata_of
from penstock.pipeline.archive.location import parse_location
from penstock.pipeline.archive.ranges import RangesReader
from penstock.pipeline.archive.settings import archive_options
from penstock.pipeline.archive.sink import Archived, ArchiveWriter
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.group_offsets import commit, committed
from penstock.pipeline.options import read_options
from penstock.pipeline.problem import PipelineError
from tests.brokers import BrokerProcess
from tests.pipeline.histories import settings_of


def test_a_second_archive_with_the_same_group_is_refused_before_it_begins_and_before_it_commits(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    place, group = TopicPartition(topic, 0), f"penstock-archive-{topic}"
    client = settings_of(broker.bootstrap)
    reading = read_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}, streaming=True)
    first, second = (archive_options({"archive.location": str(tmp_path / name)})[0] for name in ("one", "two"))
    done = Archived((OffsetRange(place, 0, 7),), 7, 1, 100)

    assert RangesReader(reading, first).initialOffset() == {topic: {"0": 0}}
    for _ in range(2):
        ArchiveWriter(client, first).commit([done], 0)
    refused = rf"group '{group}' is of another archive: it has committed {topic}-0 for {tmp_path}/one"
    with pytest.raises(PipelineError, match=refused):
        RangesReader(reading, second).initialOffset()
    with pytest.raises(PipelineError, match=refused):
        RangesReader(reading, second).partitions({topic: {"0": 0}}, {topic: {"0": 7}})
    with pytest.raises(PipelineError, match=refused):
        ArchiveWriter(client, second).commit([done], 0)
    with Brokers(client) as brokers:
        assert location_in(committed(brokers, group, [place])[place].metadata) == f"{tmp_path}/one"
    own = archive_options({"archive.location": str(tmp_path / "two"), "archive.group": f"{group}-2"})[0]
    ArchiveWriter(client, own).commit([done], 0)


def test_a_place_is_the_same_whatever_it_is_called_and_what_others_commit_is_theirs(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    place, group = TopicPartition(topic, 0), f"of-{topic}"
    with Brokers(settings_of(broker.bootstrap)) as brokers:
        expect_own(brokers, group, [place], parse_location("/srv/a"))
        commit(brokers, group, {place: 1}, "something else")
        expect_own(brokers, group, [place], parse_location("/srv/a"))
        commit(brokers, group, {place: 1}, metadata_of(parse_location("s3://lake/topics/")))
        expect_own(brokers, group, [place], parse_location("s3a://lake/topics"))
        for other in ("s3a://lake/topic", "hdfs://lake/topics", "/lake/topics"):
            with pytest.raises(PipelineError, match=f"for s3://lake/topics, not for {other}"):
                expect_own(brokers, group, [place], parse_location(other))
