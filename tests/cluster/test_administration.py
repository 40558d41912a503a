from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.administration import NewTopic
from penstock.cluster.config_changes import Append
from penstock.cluster.coordination import Set
from penstock.cluster.model import PartitionState, TopicState
from penstock.cluster.settings import effective_topic_settings
from penstock.cluster.topic_names import OFFSETS_TOPIC
from penstock.protocol.errors import ApiError, ErrorCode
from tests.cluster.controlled_cluster import NODE_ID, ControlledCluster


async def restarted(cluster: ControlledCluster, folder: Path) -> ControlledCluster:
    await cluster.stop()
    return await ControlledCluster(folder).start()


async def refusal(attempt: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await attempt
    return caught.value


# ---- topics


async def test_a_topic_is_created_with_the_brokers_defaults(cluster: ControlledCluster) -> None:
    topic = await cluster.administration.create_topic("t")
    assert topic.partitions == (PartitionState(leader=NODE_ID, leader_epoch=0, replicas=(NODE_ID,), isr=(NODE_ID,)),)
    assert cluster.image.topics == {"t": topic}
    assert cluster.image.topics_by_id == {topic.topic_id: topic}
    assert cluster.listener.told == [("created", "t")]


async def test_what_was_done_is_there_after_a_restart(cluster: ControlledCluster, tmp_path: Path) -> None:
    await cluster.administration.create_topic("kept", 3, config={"retention.ms": "5"})
    await cluster.administration.create_topic("gone")
    await cluster.administration.delete_topic("gone")
    await cluster.administration.create_partitions("kept", 4)
    await cluster.administration.alter_topic_config("kept", {"flush": "os"})
    await cluster.administration.alter_broker_config(None, {"log.retention.ms": "7"})
    before, cluster_id = dict(cluster.image.topics), cluster.image.cluster_id
    again = await restarted(cluster, tmp_path)
    assert again.image.topics == before
    assert again.image.topics["kept"].config == {"retention.ms": "5", "flush": "os"}
    assert again.image.cluster_id == cluster_id
    assert again.image.broker_config == {"log.retention.ms": "7"}
    assert again.settings.get("log.retention.ms") == 7
    assert again.listener.told == []
    await again.administration.create_partitions("kept", 5)
    await again.administration.delete_topic("kept")
    await again.stop()


async def test_the_cluster_id_is_made_once_and_looks_like_kafkas(cluster: ControlledCluster) -> None:
    assert len(cluster.image.cluster_id) == 22
    assert not cluster.image.cluster_id.startswith("-")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("a/b", "contains one or more characters other than ASCII alphanumerics"),
        ("naïve", "contains one or more characters other than ASCII alphanumerics"),
        ("a\n", "contains one or more characters other than ASCII alphanumerics"),
    ],
)
async def test_a_name_that_kafka_refuses_is_refused(cluster: ControlledCluster, name: str, reason: str) -> None:
    error = await refusal(cluster.administration.create_topic(name))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert reason in (error.message or "")


async def test_the_longest_name_is_allowed(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("a" * 249)


async def test_names_that_differ_in_dot_and_underscore_collide_until_one_is_deleted(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("a.b_c")
    error = await refusal(cluster.administration.create_topic("a_b.c"))
    assert (error.code, error.message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b.c' collides with existing topic: a.b_c",
    )
    await cluster.administration.delete_topic("a.b_c")
    await cluster.administration.create_topic("a_b.c")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "exists"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"config": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"config": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": [(0, [1])], "partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": [(0, [1])], "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignments": [(0, [])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [2])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1, 1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1]), (0, [1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(1, [1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_topic_that_can_not_be_is_refused_with_kafkas_error(
    cluster: ControlledCluster, options: dict[str, Any], code: ErrorCode
) -> None:
    await cluster.administration.create_topic("exists")
    error = await refusal(cluster.administration.create_topic(**{"name": "t", **options}))
    assert error.code is code
    assert list(cluster.image.topics) == ["exists"]


async def test_a_topic_can_be_placed_by_hand(tmp_path: Path) -> None:
    cluster = await ControlledCluster(tmp_path, brokers=3).start()
    topic = await cluster.administration.create_topic("t", assignments=[(1, [3, 1]), (0, [2, 3])])
    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1)]
    assert [partition.leader for partition in topic.partitions] == [2, 3]
    error = await refusal(cluster.administration.create_topic("u", assignments=[(0, [1, 2]), (1, [3])]))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "not consistent with previous partitions" in (error.message or "")
    await cluster.stop()


async def test_validation_alone_changes_nothing(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("a.b", validate_only=True)
    assert cluster.image.topics == {}
    await cluster.administration.create_topic("a_b")
    await cluster.administration.create_partitions("a_b", 5, validate_only=True)
    await cluster.administration.alter_topic_config("a_b", {"flush": "os"}, validate_only=True)
    await cluster.administration.alter_broker_config(None, {"flush": "os"}, validate_only=True)
    assert len(cluster.image.topics["a_b"].partitions) == 1
    assert cluster.image.topics["a_b"].config == {}
    assert cluster.settings.get("flush") == "commit"
    assert cluster.listener.told == [("created", "a_b")]


async def test_in_one_request_the_good_topics_are_created_and_the_bad_are_told_why(cluster: ControlledCluster) -> None:
    outcomes = await cluster.administration.create_topics(
        [NewTopic("good"), NewTopic("bad name"), NewTopic("a.b"), NewTopic("a_b"), NewTopic("also", 2)]
    )
    assert [o.name if isinstance(o, TopicState) else o.code for o in outcomes] == [
        "good", ErrorCode.INVALID_TOPIC_EXCEPTION, "a.b", ErrorCode.INVALID_TOPIC_EXCEPTION, "also",
    ]  # fmt: skip
    assert set(cluster.image.topics) == {"good", "a.b", "also"}


async def test_calls_at_once_are_served_one_after_the_other(cluster: ControlledCluster) -> None:
    outcomes = await asyncio.gather(
        *(cluster.administration.create_topic("t") for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, TopicState) for outcome in outcomes) == 1
    await asyncio.gather(
        *(cluster.administration.alter_topic_config("t", {"leader.replication.throttled.replicas": Append(f"0:{n}")})
          for n in range(5))
    )  # fmt: skip
    assert cluster.image.topics["t"].config["leader.replication.throttled.replicas"] == "0:0,0:1,0:2,0:3,0:4"


async def test_a_deleted_topic_comes_back_with_another_id(cluster: ControlledCluster) -> None:
    first = await cluster.administration.create_topic("t")
    await cluster.administration.delete_topic("t")
    second = await cluster.administration.create_topic("t")
    assert first.topic_id != second.topic_id
    assert cluster.image.topics_by_id == {second.topic_id: second}
    assert cluster.listener.told == [("created", "t"), ("deleted", "t"), ("created", "t")]


async def test_topics_are_deleted_by_name_and_by_id(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("a")
    b = await cluster.administration.create_topic("b")
    failures = await cluster.administration.delete_topics(["a", b.topic_id, "nowhere", bytes(16)])
    assert [failure and failure.code for failure in failures] == [
        None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ]  # fmt: skip
    assert cluster.image.topics == {}


async def test_partitions_are_added_behind_the_old_ones(cluster: ControlledCluster) -> None:
    before = await cluster.administration.create_topic("t", 2)
    after = await cluster.administration.create_partitions("t", 5)
    assert after.partitions[:2] == before.partitions
    assert len(after.partitions) == 5
    assert after.topic_id == before.topic_id
    assert cluster.listener.told == [("created", "t"), ("changed", "t")]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("nowhere", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 10_001, None, ErrorCode.POLICY_VIOLATION),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_partitions_that_can_not_be_added_are_refused(
    cluster: ControlledCluster, name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    await cluster.administration.create_topic("t", 2)
    error = await refusal(cluster.administration.create_partitions(name, count, assignments))
    assert error.code is code


async def test_the_offsets_topic_is_compacted_and_made_once(cluster: ControlledCluster) -> None:
    first, second = await asyncio.gather(
        cluster.administration.ensure_topic(OFFSETS_TOPIC), cluster.administration.ensure_topic(OFFSETS_TOPIC)
    )
    assert first == second
    assert first.internal
    assert len(first.partitions) == 50
    assert effective_topic_settings(first.config, cluster.settings)["cleanup.policy"] == ("compact",)
    await cluster.administration.delete_topic("__consumer_offsets")
    assert cluster.image.topics == {}


# ---- configs


async def test_a_topics_config_changes_and_goes_back(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t", config={"retention.ms": "5", "flush": "os"})
    await cluster.administration.alter_topic_config("t", {"retention.ms": None, "segment.ms": "9", "no.such": None})
    assert cluster.image.topics["t"].config == {"flush": "os", "segment.ms": "9"}
    await cluster.administration.alter_topic_config("t", {"flush": "interval"}, replace=True)
    assert cluster.image.topics["t"].config == {"flush": "interval"}
    assert cluster.listener.told == [("created", "t"), ("changed", "t"), ("changed", "t")]


async def test_a_change_that_changes_nothing_is_not_told(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t", config={"flush": "os"})
    await cluster.administration.alter_topic_config("t", {"flush": "os"})
    assert cluster.listener.told == [("created", "t")]


async def test_a_config_that_would_not_fit_into_the_topics_node_is_refused(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t", 10_000)
    listed = "leader.replication.throttled.replicas"
    fits, too_much = ",".join(["0:1"] * 50_000), ",".join(["0:1"] * 100_000)
    await cluster.administration.alter_topic_config("t", {listed: fits})
    for check_only in (False, True):
        error = await refusal(
            cluster.administration.alter_topic_config("t", {listed: too_much}, validate_only=check_only)
        )
        assert error.code is ErrorCode.POLICY_VIOLATION
    assert cluster.image.topics["t"].config == {listed: fits}


async def test_lists_are_added_to_and_only_lists(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t")
    await cluster.administration.alter_topic_config("t", {"cleanup.policy": Append("compact")})
    assert cluster.image.topics["t"].config == {"cleanup.policy": "delete,compact"}
    error = await refusal(cluster.administration.alter_topic_config("t", {"retention.ms": Append("5")}))
    assert error.code is ErrorCode.INVALID_CONFIG
    assert error.message == "Can't APPEND to key retention.ms because its type is not LIST."


async def test_brokers_settings_change_for_all_and_for_one(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t")
    await cluster.administration.alter_broker_config(None, {"log.retention.ms": "5"})
    await cluster.administration.alter_broker_config(NODE_ID, {"log.retention.ms": "6"})
    assert cluster.image.broker_config == {"log.retention.ms": "5"}
    assert effective_topic_settings({}, cluster.settings)["retention.ms"] == 6
    await cluster.administration.alter_broker_config(NODE_ID, {"log.retention.ms": None})
    assert effective_topic_settings({}, cluster.settings)["retention.ms"] == 5


async def test_a_broker_setting_that_is_fixed_is_refused(cluster: ControlledCluster) -> None:
    error = await refusal(cluster.administration.alter_broker_config(None, {"node.id": "5"}))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert cluster.image.broker_config == {}


# ---- producer ids


async def test_blocks_of_producer_ids_never_overlap_across_restarts(cluster: ControlledCluster, tmp_path: Path) -> None:
    blocks = await asyncio.gather(*(cluster.administration.next_producer_id_block() for _ in range(3)))
    again = await restarted(cluster, tmp_path)
    blocks = [*blocks, await again.administration.next_producer_id_block()]
    assert blocks == [range(1000), range(1000, 2000), range(2000, 3000), range(3000, 4000)]
    await again.stop()


# ---- when things go wrong


async def test_a_write_that_did_not_happen_is_not_seen(cluster: ControlledCluster) -> None:
    cluster.store.fail_before = True
    error = await refusal(cluster.administration.create_topic("a.b"))
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert cluster.image.topics == {}
    cluster.store.fail_before = False
    await cluster.administration.create_topic("a_b")
    assert cluster.listener.told == [("created", "a_b")]


async def test_a_write_that_happened_though_it_failed_is_found_by_the_next_change(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("doomed")
    cluster.store.fail_after = True
    await refusal(cluster.administration.create_topic("t"))
    await refusal(cluster.administration.delete_topic("doomed"))
    cluster.store.fail_after = False
    error = await refusal(cluster.administration.create_topic("t"))
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert list(cluster.image.topics) == ["t"]
    assert cluster.listener.told == [("created", "doomed"), ("created", "t"), ("deleted", "doomed")]


async def test_someone_elses_write_is_not_overwritten(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t")
    stored = await cluster.store.get("/topics/t")
    await cluster.store.multi([Set("/topics/t", stored.data.replace(b'"config":{}', b'"config":{"flush":"os"}'))])
    await cluster.administration.alter_topic_config("t", {"retention.ms": "5"})
    assert cluster.image.topics["t"].config == {"flush": "os", "retention.ms": "5"}


async def test_a_change_is_finished_though_whoever_asked_has_gone(cluster: ControlledCluster) -> None:
    asking = asyncio.create_task(cluster.administration.create_topic("t"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await cluster.administration.close()
    assert list(cluster.image.topics) == ["t"]
    assert cluster.listener.told == [("created", "t")]


async def test_a_listener_that_fails_does_not_undo_the_change(cluster: ControlledCluster) -> None:
    class Broken:
        def topic_created(self, topic: TopicState) -> None:
            raise OSError("disk full")

        topic_changed = topic_deleted = topic_lost = lost_topic_deleted = None

    cluster.catalog.subscribe(Broken())
    later = type(cluster.listener)(cluster.image)
    cluster.catalog.subscribe(later)
    await cluster.administration.create_topic("t")
    assert later.told == [("created", "t")]


async def test_every_change_gives_the_image_a_new_generation(cluster: ControlledCluster) -> None:
    generations = [cluster.image.generation]
    for change in (
        cluster.administration.create_topic("t"),
        cluster.administration.alter_topic_config("t", {"flush": "os"}),
        cluster.administration.alter_broker_config(None, {"flush": "os"}),
        cluster.administration.delete_topic("t"),
    ):
        await change
        generations.append(cluster.image.generation)
    assert generations == sorted(set(generations))
