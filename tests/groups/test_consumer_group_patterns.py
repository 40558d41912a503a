"""Subscriptions by pattern: resolved by the coordinator, stored, and looked at again when topics change (KIP-848)."""

import pytest
from group_engine import FakeTopics, GroupEngine

from penstock.coordinator.machine import LogRecord
from penstock.groups.config import GroupConfig
from penstock.groups.consumer.records import PatternStored
from penstock.groups.records import read_record
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def engine() -> GroupEngine:
    topics = FakeTopics()
    topics.set("logs-a", 2)
    topics.set("logs-b", 1)
    topics.set("metrics", 1)
    topics.set("__internal", 1)
    return GroupEngine(topics=topics)


def patterns_written(engine: GroupEngine) -> dict[str, set[str] | None]:
    stored = [read_record(record) for record in engine.written]
    return {
        each.regex: None if each.resolved is None else set(each.resolved.topics)
        for each in stored
        if isinstance(each, PatternStored)
    }


def test_a_pattern_means_all_topics_whose_whole_name_it_matches(engine: GroupEngine) -> None:
    response = engine.start("a", regex="logs-.")
    assert engine.given(response) == {"logs-a": {0, 1}, "logs-b": {0}}
    assert patterns_written(engine) == {"logs-.": {"logs-a", "logs-b"}}
    assert engine.given(engine.start("b", regex="logs")) == {}


def test_names_and_a_pattern_may_be_mixed_and_internal_topics_are_not_matched(engine: GroupEngine) -> None:
    assert engine.given(engine.start("a", "metrics", regex=".*a")) == {"metrics": {0}, "logs-a": {0, 1}}
    assert "__internal" not in (engine.given(engine.start("b", regex=".*", group="other")) or {})


def test_a_pattern_that_is_none_is_refused(engine: GroupEngine) -> None:
    response = engine.start("a", regex="(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not engine.machine.groups
    assert engine.start("a", regex=r"(a)\1").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_others_use_is_not_resolved_again(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    engine.start("b", regex="logs-.")
    assert not patterns_written(engine)
    assert engine.consumer_group.regex_counts == {"logs-.": 2}


def test_a_new_topic_is_found_but_not_more_often_than_every_so_often(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    engine.topics.set("logs-c", 1)
    engine.advance(5_000)
    assert engine.beat("a", 1).member_epoch == 1
    engine.advance(5_000)
    response = engine.beat("a", 1)
    assert (response.member_epoch, engine.given(response)) == (
        2,
        {"logs-a": {0, 1}, "logs-b": {0}, "logs-c": {0}},
    )
    assert patterns_written(engine) == {"logs-.": {"logs-a", "logs-b", "logs-c"}}


def test_a_topic_that_goes_is_no_longer_matched(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    engine.topics.remove("logs-b")
    engine.advance(10_000)
    assert engine.given(engine.beat("a", 1)) == {"logs-a": {0, 1}}


def test_a_new_topic_that_no_pattern_matches_changes_nothing(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    engine.topics.set("other", 1)
    engine.advance(10_000)
    assert engine.beat("a", 1).member_epoch == 1
    assert not engine.written


def test_a_pattern_that_nobody_uses_is_forgotten(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    engine.start("b", regex="met.*")
    engine.beat("b", -1)
    assert patterns_written(engine) == {"met.*": None}
    told = engine.beat("a", 1, regex="metrics")
    assert patterns_written(engine) == {"logs-.": None, "metrics": {"metrics"}}
    assert engine.given(told) == {}


def test_a_pattern_may_be_given_up_for_names(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-a")
    response = engine.beat("a", 1, regex="", topics=["metrics"], owned={})
    assert engine.given(response) == {"metrics": {0}}
    assert patterns_written(engine) == {"logs-a": None}


def test_a_change_behind_a_name_that_is_subscribed_to_anyway_is_still_a_change(engine: GroupEngine) -> None:
    engine.start("a", regex="x-.*")
    engine.start("b", "x-1")
    epoch = engine.consumer_group.group_epoch
    engine.topics.set("x-1", 1)
    engine.advance(10_000)
    engine.beat("b", 2)
    assert engine.consumer_group.group_epoch > epoch
    assert engine.consumer_group.resolved["x-.*"].topics == {"x-1"}


def test_what_a_pattern_matched_survives_a_reload(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    before = engine.consumer_group.resolved
    engine.reload()
    assert engine.consumer_group.resolved == before
    assert engine.beat("a", 1).member_epoch == 1
    assert not engine.written
    engine.topics.set("logs-c", 1)
    engine.advance(10_000)
    assert engine.beat("a", 1).member_epoch == 2


def test_offsets_of_matched_topics_are_not_deleted(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    engine.commit({("logs-a", 0): 1, ("metrics", 0): 1}, "a", 1)
    topics = engine.delete_offsets(("logs-a", 0), ("metrics", 0)).topics
    errors = [ErrorCode(topic.partitions[0].error_code) for topic in topics]
    assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


def test_a_pattern_that_only_another_coordinator_could_read_means_what_it_meant_there(engine: GroupEngine) -> None:
    engine.start("a", regex="logs-.")
    unread = "(?<unread"
    engine.log = [
        LogRecord(
            r.key.replace(b"\0\6logs-.", b"\0\x09" + unread.encode()),
            (r.value or b"").replace(b"\7logs-.", b"\x0a" + unread.encode()),
        )
        for r in engine.log
    ]
    engine.reload()
    assert engine.consumer_group.resolved[unread].topics == {"logs-a", "logs-b"}
    engine.topics.set("logs-c", 1)
    engine.advance(10_000)
    assert engine.beat("a", 1).error_code == ErrorCode.NONE
    assert engine.consumer_group.resolved[unread].topics == {"logs-a", "logs-b"}


def test_every_pattern_is_matched_once_against_a_name() -> None:
    topics = FakeTopics(**{f"t{n}": 1 for n in range(50)})
    engine = GroupEngine(GroupConfig(consumer_regex_refresh_interval_ms=1), topics=topics)
    engine.start("a", regex="t.*")
    seen = engine.consumer_group.matches["t.*"].seen
    assert len(seen) == 50
    topics.set("t50", 1)
    engine.advance(10)
    engine.beat("a", 1)
    assert engine.consumer_group.matches["t.*"].seen == seen | {"t50"}
