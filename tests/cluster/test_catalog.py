"""The catalog: topics that are written apart, and news that comes late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cluster import catalog as catalog_module
from penstock.cluster import zookeeper
from penstock.cluster.administration import NewTopic
from penstock.cluster.catalog import WRITE_BYTES_MAX, WRITE_TOPICS_MAX, Catalog, Conflict
from penstock.cluster.coordination import Delete, Disconnected, Operation, Set, Versioned
from penstock.cluster.model import BrokerState, ClusterImage, Endpoint, PartitionState, TopicState
from penstock.cluster.nodes import TOPICS, BrokerNode, DeletionNode, TopicNode, save, size_at_most
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.protocol.errors import ApiError, ErrorCode
from tests.cluster.controlled_cluster import NODE_ID, ControlledCluster
from tests.fakes import eventually, turns

STATE = PartitionState(leader=NODE_ID, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2))


def topic_of(name: str, partitions: int, size: int = 0) -> TopicState:
    """With a config of that size, which nobody looks at."""
    config = {"x": "y" * size} if size else {}
    return TopicState(name, name.encode().ljust(16)[:16], (STATE,) * partitions, config)


def writes_of(cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch) -> list[list[Operation]]:
    """What is sent to the store from now on."""
    sent: list[list[Operation]] = []
    real = cluster.store.multi

    async def multi(operations: Sequence[Operation]) -> Any:
        sent.append(list(operations))
        return await real(operations)

    monkeypatch.setattr(cluster.store, "multi", multi)
    return sent


# ---- many topics


async def test_topics_are_written_as_many_at_a_time_as_fit(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [topic_of(f"t{number}", 2000) for number in range(10)]
    sent = writes_of(cluster, monkeypatch)
    await cluster.catalog.write_apart(topics)
    assert [operation.path for some in sent for operation in some] == [TopicNode.path_of(each.name) for each in topics]
    together = WRITE_BYTES_MAX // size_at_most(topics[0])
    assert 1 < together < len(topics)
    assert {len(some) for some in sent[:-1]} == {together}
    assert list(cluster.image.topics.values()) == topics


async def test_no_more_than_so_many_topics_are_written_at_a_time(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = writes_of(cluster, monkeypatch)
    await cluster.catalog.write_apart([topic_of(f"t{number}", 1) for number in range(2 * WRITE_TOPICS_MAX + 1)])
    assert [len(some) for some in sent] == [WRITE_TOPICS_MAX, WRITE_TOPICS_MAX, 1]


async def test_a_topic_that_is_too_large_is_left_out_of_those_written_apart(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalog_module, "WRITE_BYTES_MAX", 1 << 30)  # as if its size could not be seen before
    topics = [topic_of("a", 1), topic_of("large", 1, 2 << 20), topic_of("b", 1), topic_of("c", 1)]
    await cluster.catalog.write_apart(topics)
    assert list(cluster.image.topics) == ["a", "b", "c"]
    assert set(await cluster.store.children(TOPICS)) == {"a", "b", "c"}
    assert [vars(record)["topic"] for record in caplog.records if "not written" in record.message] == ["large"]


async def test_a_topic_that_no_broker_has_written_is_left_out_too(cluster: ControlledCluster) -> None:
    a, bad = topic_of("a", 1), topic_of("bad", 1)
    await cluster.catalog.write_apart([a, bad])
    await cluster.store.multi([Set(TopicNode.path_of("bad"), b"garbage")])
    await cluster.catalog.reread()
    assert cluster.catalog.is_foreign("bad")
    after = [replace(topic, partitions=(replace(STATE, leader_epoch=1),)) for topic in (bad, a)]
    await cluster.catalog.write_apart(after)
    assert cluster.image.topics["a"] == after[1]
    assert (await cluster.store.get(TopicNode.path_of("bad"))).data == b"garbage"


async def test_what_may_have_been_written_is_not_left_out_in_silence(cluster: ControlledCluster) -> None:
    cluster.store.fail_after = True
    with pytest.raises(ApiError) as caught:
        await cluster.catalog.write_apart([topic_of("a", 1), topic_of("b", 1)])
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert isinstance(caught.value.__cause__, Disconnected)


# ---- news


async def test_an_older_version_than_the_known_one_is_not_news(cluster: ControlledCluster) -> None:
    topic = topic_of("t", 1)
    await cluster.catalog.write_topics([topic])
    old = await cluster.store.get(TopicNode.path_of("t"))
    newer = replace(topic, partitions=(replace(STATE, isr=(1, 2, 3)),))
    await cluster.catalog.write_topics([newer])
    cluster.listener.told.clear()
    cluster.catalog._topic_told("t", old)
    assert cluster.image.topics["t"] == newer
    assert cluster.catalog.version_of("t") == old.version + 1
    assert cluster.listener.told == []


async def written_twice(cluster: ControlledCluster) -> tuple[TopicState, TopicState]:
    topic = topic_of("t", 1)
    newer = replace(topic, partitions=(replace(STATE, isr=(1, 2, 3)),))
    for each in (topic, newer):
        await cluster.catalog.write_topics([each])
    return topic, newer


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "found by a write"])
async def test_an_older_version_is_news_where_the_store_itself_has_gone_back(
    is_told: bool, cluster: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has deleted the node and brought it back as it was before."""
    topic, newer = await written_twice(cluster)
    path = TopicNode.path_of("t")
    await cluster.store.multi([Delete(path)])
    await cluster.store.multi([save(TopicNode(topic))])
    await eventually(lambda: cluster.catalog.version_of("t") == 0)
    cluster.image.put_topic(newer)  # as if that had not been heard of
    cluster.catalog._versions["t"] = 1
    if is_told:
        cluster.catalog._topic_told("t", await cluster.store.get(path))
        assert cluster.image.topics["t"] == newer
    else:
        with pytest.raises(Conflict):
            await cluster.catalog.write_topics([replace(newer, partitions=(STATE, STATE))])
    await eventually(lambda: cluster.image.topics["t"] == topic)
    assert cluster.catalog.version_of("t") == 0
    assert "has gone back to an older state" in caplog.text
    await cluster.catalog.write_topics([newer])


async def test_what_was_read_does_not_count_if_something_newer_was_learned_meanwhile(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, _ = await written_twice(cluster)
    read, path = cluster.store.get, TopicNode.path_of("t")

    async def slow(asked: str) -> Versioned:
        found = await read(asked)
        if asked == path and cluster.catalog.version_of("t") == 1:
            await cluster.catalog.write_topics([topic])
        return found

    monkeypatch.setattr(cluster.store, "get", slow)
    cluster.listener.told.clear()
    await cluster.catalog.refresh([path])
    await turns()
    assert cluster.image.topics["t"] == topic
    assert cluster.catalog.version_of("t") == 2
    assert cluster.listener.told == [("changed", "t")]


async def test_an_older_broker_counts_where_the_store_itself_has_gone_back(cluster: ControlledCluster) -> None:
    brokers = [BrokerState(2, (Endpoint("PLAINTEXT", "there", 9092),), epoch=epoch) for epoch in (7, 3)]
    path = BrokerNode(brokers[0]).path
    await cluster.store.create(path, BrokerNode(brokers[0]).encode())
    await eventually(lambda: cluster.image.brokers.get(2) == brokers[0])
    stale = Versioned(BrokerNode(brokers[1]).encode(), 0)
    cluster.catalog._broker_told("2", stale)
    await turns()
    assert cluster.image.brokers[2] == brokers[0], "of a former life"
    await cluster.store.set(path, stale.data)
    await eventually(lambda: cluster.image.brokers[2] == brokers[1])


async def test_another_topic_of_the_same_name_is_news_whatever_its_version(cluster: ControlledCluster) -> None:
    topic = topic_of("t", 1)
    for epoch in range(3):
        await cluster.catalog.write_topics([replace(topic, partitions=(replace(STATE, leader_epoch=epoch),))])
    another = replace(topic, topic_id=bytes(range(16)))
    cluster.catalog._topic_told("t", Versioned(TopicNode(another).encode(), 0))
    assert cluster.image.topics["t"] == another
    assert cluster.listener.told[-2:] == [("lost", "t"), ("created", "t")]


def deleted_by_another(topic: TopicState) -> list[Operation]:
    return [Delete(TopicNode.path_of(topic.name)), save(DeletionNode(topic.topic_id, topic.name, (1, 2)))]


@pytest.mark.parametrize("note_first", [True, False], ids=["the note first", "the note later"])
async def test_a_topic_is_deleted_when_there_is_a_note_of_that_whichever_is_told_first(
    note_first: bool, cluster: ControlledCluster
) -> None:
    topic = topic_of("t", 1)
    await cluster.catalog.write_topics([topic])
    cluster.listener.told.clear()
    operations = deleted_by_another(topic)
    await cluster.store.multi(operations[::-1] if note_first else operations)
    wanted = [("deleted", "t")] if note_first else [("lost", "t"), ("deleted after all", "t")]
    await eventually(lambda: cluster.listener.told == wanted)


async def test_a_topic_whose_node_is_gone_without_a_note_is_lost_and_that_is_said(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catalog_module, "NOTE_S", 0.01)
    await cluster.catalog.write_topics([topic_of("t", 1), topic_of("u", 1)])
    cluster.listener.told.clear()
    await cluster.store.multi([Delete(TopicNode.path_of("t"))])
    await eventually(lambda: "nobody has deleted it" in caplog.text)
    await cluster.administration.delete_topic("u")
    assert cluster.listener.told == [("lost", "t"), ("deleted", "u")]
    assert caplog.text.count("nobody has deleted it") == 1


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "deleted"])
async def test_what_is_told_while_everything_is_read_again_counts(
    is_made: bool, cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker makes or deletes a topic when its folder has been read, and that is told before what was read: it
    would not be told again."""
    topic = topic_of("t", 1)
    path = TopicNode.path_of("t")
    if not is_made:
        await cluster.catalog.write_topics([topic])
    change: Operation = save(TopicNode(topic)) if is_made else Delete(path)
    read = cluster.store.children_with_data

    async def late(folder: str) -> dict[str, Versioned]:
        stored = await read(folder)
        if folder == TOPICS:
            await cluster.store.multi([change])
            await eventually(lambda: ("t" in cluster.image.topics) is is_made)
        return stored

    monkeypatch.setattr(cluster.store, "children_with_data", late)
    cluster.listener.told.clear()
    await cluster.catalog.reread()
    assert cluster.listener.told == [("created" if is_made else "lost", "t")]
    assert ("t" in cluster.image.topics) is is_made


class _Answer:
    """To a request that was made of kazoo; given when the test wants it."""

    exception = None
    value: object

    def __init__(self) -> None:
        self._links: list[Callable[[Any], None]] = []

    def rawlink(self, link: Callable[[Any], None]) -> None:
        self._links.append(link)

    def give(self, value: object) -> None:
        self.value = value
        for link in self._links:
            link(self)


class _Client:
    """A client of kazoo whose server answers when the test says so."""

    connected = True
    client_state = "CONNECTED"
    client_id = (1, b"")

    def __init__(self) -> None:
        self.asked: list[tuple[str, _Answer]] = []

    def add_listener(self, listener: object) -> None: ...

    def _ask(self, kind: str) -> _Answer:
        answer = _Answer()
        self.asked.append((kind, answer))
        return answer

    def get_async(self, path: str, watch: object = None) -> _Answer:
        return self._ask("get")

    def sync_async(self, path: str) -> _Answer:
        return self._ask("sync")

    def get_children_async(self, path: str, watch: object = None) -> _Answer:
        return self._ask("list")

    def transaction(self) -> SimpleNamespace:
        return SimpleNamespace(
            set_data=lambda *change: None, check=lambda *condition: None, commit_async=lambda: self._ask("multi")
        )

    async def question(self, kind: str) -> _Answer:
        """The oldest of its kind, without its answer."""
        for _ in range(100):
            for place, (each, answer) in enumerate(self.asked):
                if each == kind:
                    del self.asked[place]
                    return answer
            await asyncio.sleep(0.001)
        raise AssertionError(f"nobody asks for {kind}: {self.asked}")


@pytest.mark.parametrize("rule", [True, False], ids=["with the rule", "without it"])
async def test_the_image_does_not_go_back_when_two_answers_come_at_once(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A write of this broker's own is read because of its watch, as the next one is made: that one's answer is heard
    first, because fewer hands pass it on."""
    client = _Client()
    monkeypatch.setattr(zookeeper, "make_client", lambda *arguments: client)
    if not rule:
        told = Catalog._topic_told

        def whatever(self: Catalog, name: str, content: Versioned | None) -> None:
            self._versions[name] = -1
            told(self, name, content)

        monkeypatch.setattr(Catalog, "_topic_told", whatever)
    store = ZooKeeperStore("host:1", 2000)
    store._connected, store._session_id = True, 1
    image = ClusterImage(cluster_id="", controller_id=-1)
    catalog = Catalog(store, image, BrokerSettings({"node.id": "1", "data": str(tmp_path)}), NODE_ID)
    joined = replace(STATE, isr=(1, 2, 3))
    first = topic_of("t", 2)
    second, third = replace(first, partitions=(joined, STATE)), replace(first, partitions=(joined, joined))

    loading = asyncio.ensure_future(store.follow(TOPICS, catalog._topic_told))
    (await client.question("get")).give((b"which cluster it is", SimpleNamespace(version=0, mzxid=1)))
    (await client.question("sync")).give(None)
    (await client.question("list")).give(["t"])
    (await client.question("get")).give((TopicNode(first).encode(), SimpleNamespace(version=1, mzxid=10)))
    catalog._take_topics(await loading)

    writing = asyncio.ensure_future(catalog.write_topics([second]))
    answer = await client.question("multi")
    store._followings[0]._child_changed("t")
    answer.give([SimpleNamespace(version=2), True])
    await writing
    reading = await client.question("get")
    writing = asyncio.ensure_future(catalog.write_topics([third]))
    answer = await client.question("multi")
    reading.give((TopicNode(second).encode(), SimpleNamespace(version=2, mzxid=11)))
    answer.give([SimpleNamespace(version=3), True])
    versions = []
    for _ in range(8):
        await asyncio.sleep(0)
        versions.append(catalog.version_of("t"))
    await writing
    if rule:
        assert versions == sorted(versions)
        assert image.topics["t"] == third
    else:
        assert versions != sorted(versions)


# ---- too large


async def test_a_topic_that_would_not_fit_at_its_worst_is_not_created(tmp_path: Path) -> None:
    """It does now, but not when all of its replicas have been replaced."""
    cluster = await ControlledCluster(tmp_path, brokers=10).start()
    made = await cluster.administration.create_topics([NewTopic("fits", 5000, 3)])
    assert isinstance(made[0], TopicState)
    refused = await cluster.administration.create_topics([NewTopic("large", 10_000, 10)])
    assert isinstance(refused[0], ApiError)
    assert refused[0].code is ErrorCode.POLICY_VIOLATION
    assert list(cluster.image.topics) == ["fits"]
    await cluster.stop()


async def test_a_topic_does_not_get_more_partitions_than_fit_at_their_worst(tmp_path: Path) -> None:
    cluster = await ControlledCluster(tmp_path, brokers=10).start()
    await cluster.administration.create_topic("t", 100, 10)
    with pytest.raises(ApiError) as caught:
        await cluster.administration.create_partitions("t", 10_000)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert len(cluster.image.topics["t"].partitions) == 100
    await cluster.stop()
