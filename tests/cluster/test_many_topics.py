"""Requests about more topics than fit into one write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.cluster import administration, zookeeper_multi
from penstock.cluster.administration import NewTopic
from penstock.cluster.coordination import DataTooLarge, Disconnected, Operation
from penstock.cluster.model import TopicState
from penstock.protocol.errors import ApiError, ErrorCode
from tests.cluster.controlled_cluster import ControlledCluster

AT_ONCE = 10


class Writes:
    """As ZooKeeper takes them: no more than fits into a request. Behind a number of them there is no connection."""

    def __init__(self, cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics: list[int] = []
        self.fail_from = 1 << 30
        self._real = cluster.store.multi
        monkeypatch.setattr(cluster.store, "multi", self._multi)

    async def _multi(self, operations: Sequence[Operation]) -> Any:
        zookeeper_multi.check("/penstock", operations)
        if len(self.topics) >= self.fail_from:
            raise Disconnected("no connection")
        self.topics.append(sum(operation.path.startswith("/topics/") for operation in operations))
        return await self._real(operations)


@pytest.fixture
def writes(cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch) -> Writes:
    monkeypatch.setattr(administration, "TOPICS_AT_ONCE", AT_ONCE)
    return Writes(cluster, monkeypatch)


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


async def test_as_many_topics_as_there_may_be_are_made_and_deleted_by_one_request(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = Writes(cluster, monkeypatch)
    every = [f"{number:05d}".ljust(249, "x") for number in range(4000)]
    made = await cluster.administration.create_topics([NewTopic(name) for name in every])
    assert [topic.name for topic in made if isinstance(topic, TopicState)] == every
    assert await cluster.administration.delete_topics(every) == [None] * len(every)
    assert cluster.image.topics == {}
    assert len(writes.topics) == 2 * len(every) / administration.TOPICS_AT_ONCE


@pytest.mark.usefixtures("writes")
async def test_each_topic_of_a_large_request_has_its_own_outcome(cluster: ControlledCluster) -> None:
    await cluster.administration.create_topic("t3")
    made = await cluster.administration.create_topics([NewTopic(name) for name in [*names(25), "bad name"]])
    refused = {place: each.code for place, each in enumerate(made) if isinstance(each, ApiError)}
    assert refused == {3: ErrorCode.TOPIC_ALREADY_EXISTS, 25: ErrorCode.INVALID_TOPIC_EXCEPTION}
    outcomes = await cluster.administration.delete_topics([*names(12), "none", *names(25)[12:]])
    assert [place for place, each in enumerate(outcomes) if each is not None] == [12]
    assert cluster.image.topics == {}


async def test_what_comes_behind_a_write_that_fails_is_not_tried(cluster: ControlledCluster, writes: Writes) -> None:
    await cluster.administration.create_topics([NewTopic(name) for name in names(25)])
    writes.fail_from = len(writes.topics) + 1
    outcomes = await cluster.administration.delete_topics(names(25))
    assert [each and each.code for each in outcomes] == [None] * AT_ONCE + [ErrorCode.REQUEST_TIMED_OUT] * 15
    assert list(cluster.image.topics) == names(25)[AT_ONCE:]
    cluster.catalog.in_doubt = False
    with pytest.raises(ApiError, match="can't be written"):
        await cluster.administration.create_topics([NewTopic("a"), NewTopic("b")])


async def test_topics_that_are_too_large_together_are_written_in_smaller_portions(
    cluster: ControlledCluster, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = zookeeper_multi.check

    def small(root: str, operations: Sequence[Operation]) -> None:
        if sum(operation.path.startswith("/topics/") for operation in operations) > 3:
            raise DataTooLarge("/topics")
        check(root, operations)

    monkeypatch.setattr(zookeeper_multi, "check", small)
    made = await cluster.administration.create_topics([NewTopic(name) for name in names(AT_ONCE)])
    assert [topic.name for topic in made if isinstance(topic, TopicState)] == names(AT_ONCE)
    assert writes.topics == [2, 3, 2, 3]
    assert await cluster.administration.delete_topics(names(AT_ONCE)) == [None] * AT_ONCE


async def test_what_is_only_to_be_validated_is_not_written(cluster: ControlledCluster, writes: Writes) -> None:
    outcomes = await cluster.administration.create_topics([NewTopic(name) for name in names(25)], validate_only=True)
    assert all(isinstance(each, TopicState) for each in outcomes)
    assert writes.topics == []
