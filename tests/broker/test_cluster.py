"""Three brokers in one process and a real ZooKeeper: they find each other, replicate, and refuse all others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.app import Broker, StartError
from penstock.cluster.catalog import Conflict
from penstock.cluster.controller import Term
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.record_batch import read_batches
from tests.broker.conftest import Brokers, Caller
from tests.storage.logs import batch_at
from tests.zookeepers import eventually

NOBODY = -1


class Cluster:
    def __init__(self, brokers: Brokers, folder: Path, connect: str) -> None:
        self._brokers = brokers
        self._folder = folder
        self.connect = connect
        self.running: dict[int, Broker] = {}

    async def start(self, node_id: int, data: str | None = None, **more: str) -> Broker:
        folder = self._folder / (data or f"broker-{node_id}")
        settings = {"node_id": str(node_id), "zookeeper_connect": self.connect, "flush": "os", **more}
        self.running[node_id] = await self._brokers.start(data=folder, **settings)
        return self.running[node_id]

    async def start_three(self, **more: str) -> None:
        for node_id in (1, 2, 3):
            await self.start(node_id, **more)
        await eventually(lambda: all(len(each.image.brokers) == 3 for each in self.running.values()))

    async def stop(self, node_id: int) -> None:
        await self._brokers.stop(self.running.pop(node_id))

    async def call(self, node_id: int) -> Caller:
        return await self._brokers.call(self.running[node_id])

    async def create(self, name: str, partitions: int = 1, **config: str) -> None:
        caller = await self.call(next(iter(self.running)))
        replicas = min(3, len(self.running))
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        response = await caller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        await eventually(lambda: all(name in each.image.topics for each in self.running.values()))

    def leader_of(self, name: str, index: int = 0) -> int:
        return next(iter(self.running.values())).image.topics[name].partitions[index].leader

    async def produce(self, name: str, acks: int = -1, to: int | None = None) -> Any:
        caller = await self.call(self.leader_of(name) if to is None else to)
        records = memoryview(bytearray(batch_at(0)))
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
        response = await caller.ask(ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[data]), 12)
        return response.responses[0].partition_responses[0], response


@pytest.fixture
def cluster(brokers: Brokers, tmp_path: Path, zookeeper_path: str) -> Cluster:
    return Cluster(brokers, tmp_path, zookeeper_path)


async def test_what_is_acknowledged_by_all_is_on_all(cluster: Cluster) -> None:
    await cluster.start_three()
    await cluster.create("t")
    for expected in range(5):
        answer, _ = await cluster.produce("t")
        assert (answer.error_code, answer.base_offset) == (0, expected)
    logs = [broker.partitions.get("t", 0).log for broker in cluster.running.values()]
    assert [log.end_offset for log in logs] == [5, 5, 5]
    contents = [bytes(log.read(0, 1 << 20, log.end).read()) for log in logs]
    assert contents[0] == contents[1] == contents[2]


async def test_whoever_asks_the_wrong_broker_is_told_the_right_one(cluster: Cluster) -> None:
    await cluster.start_three()
    await cluster.create("t")
    leader = cluster.leader_of("t")
    other = next(node_id for node_id in cluster.running if node_id != leader)
    answer, response = await cluster.produce("t", to=other)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == leader
    assert [(node.node_id, node.port) for node in response.node_endpoints] == [(leader, cluster.running[leader].port)]


async def test_a_broker_that_stops_hands_over_first_and_comes_back_in_sync(cluster: Cluster) -> None:
    await cluster.start_three()
    await cluster.create("t", min_insync_replicas="2")
    await cluster.produce("t")
    leader = cluster.leader_of("t")
    await cluster.stop(leader)
    assert cluster.leader_of("t") not in (leader, NOBODY)
    answer, _ = await cluster.produce("t")
    assert (answer.error_code, answer.base_offset) == (0, 1)
    await cluster.start(leader)
    await eventually(lambda: len(cluster.running[leader].image.topics["t"].partitions[0].isr) == 3)
    assert cluster.running[leader].partitions.get("t", 0).log.end_offset == 2


async def test_each_listener_tells_its_own_addresses(cluster: Cluster) -> None:
    listeners = {"listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
                 "advertised_listeners": "OUTSIDE://broker.example.com:19092"}  # fmt: skip
    broker = await cluster.start(1, inter_broker_listener_name="INSIDE", **listeners)
    (inside, outside) = broker.image.brokers[1].endpoints
    assert (inside.listener, inside.host) == ("INSIDE", "127.0.0.1")
    assert (outside.listener, outside.host, outside.port) == ("OUTSIDE", "broker.example.com", 19092)
    caller = await cluster.call(1)  # which dials the first one
    response = await caller.ask(MetadataRequest(topics=[]))
    assert [(node.host, node.port) for node in response.brokers] == [("127.0.0.1", inside.port)]


async def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_sees_what_is_committed(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        await cluster.start(node_id, broker_rack=f"rack-{node_id}")
    await eventually(lambda: all(len(each.image.brokers) == 3 for each in cluster.running.values()))
    await cluster.create("t")
    await cluster.produce("t")
    leader = cluster.leader_of("t")
    near = next(node_id for node_id in cluster.running if node_id != leader)
    topic_id = cluster.running[near].image.topics["t"].topic_id

    async def fetch(node_id: int, offset: int = 0) -> Any:
        caller = await cluster.call(node_id)
        asked = FetchTopic(
            topic_id=topic_id,
            partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
        )
        request = FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[asked], rack_id=f"rack-{near}")
        return (await caller.ask(request, 17)).responses[0].partitions[0]

    sent_on = await fetch(leader)
    assert (sent_on.preferred_read_replica, len(sent_on.records)) == (near, 0)
    found = await fetch(near)
    assert (found.high_watermark, len(list(read_batches(found.records)))) == (1, 1)
    waiting = asyncio.create_task(fetch(near, offset=1))
    await asyncio.sleep(0.1)
    await cluster.produce("t")
    async with asyncio.timeout(0.4):  # sooner than the leader's answer to an idle follower would tell it
        assert len((await waiting).records) > 0


# ---- who does not belong


async def test_a_fetch_that_claims_to_be_a_broker_counts_for_nothing(cluster: Cluster) -> None:
    await cluster.start_three()
    await cluster.create("t")
    leader = cluster.leader_of("t")
    broker = cluster.running[leader]
    other = next(node_id for node_id in cluster.running if node_id != leader)
    await cluster.stop(other)
    asked = FetchTopic(topic_id=broker.image.topics["t"].topic_id,
                       partitions=[FetchPartition(partition=0, fetch_offset=10**6, partition_max_bytes=1)])  # fmt: skip
    for replica_id, epoch in ((other, 1), (other, -1), (99, 1), (leader, broker.image.brokers[leader].epoch)):
        caller = await cluster.call(leader)
        state = ReplicaState(replica_id=replica_id, replica_epoch=epoch)
        request = FetchRequest(replica_state=state, max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[asked])
        assert (await caller.ask(request, 17)).error_code == ErrorCode.STALE_BROKER_EPOCH
    caller = await cluster.call(leader)
    older = FetchRequest(replica_id=other, max_wait_ms=0, min_bytes=0, session_epoch=0)
    assert (await caller.ask(older, 12)).error_code == ErrorCode.STALE_BROKER_EPOCH
    answer, _ = await cluster.produce("t")
    assert answer.error_code == 0


async def test_two_brokers_of_one_number_or_in_one_folder(cluster: Cluster) -> None:
    first = await cluster.start(1, zookeeper_session_timeout_ms="1000")
    with pytest.raises(StartError, match=f"broker 1 runs already, at 127.0.0.1:{first.port}"):
        await cluster.start(1, data="another", zookeeper_session_timeout_ms="1000")
    cluster.running[1] = first
    with pytest.raises(StartError, match="another broker uses"):
        await cluster.start(2, data="broker-1")
    cluster.running.pop(2, None)
    await cluster.create("t")  # it works on


async def test_two_brokers_at_one_address(cluster: Cluster) -> None:
    first = await cluster.start(1)
    with pytest.raises(StartError, match=f"broker 1 is known at 127.0.0.1:{first.port} already"):
        await cluster.start(2, advertised=f"127.0.0.1:{first.port}")
    await cluster.start(2)  # and nothing of the attempt is left


async def test_a_folder_belongs_to_one_broker_of_one_cluster(cluster: Cluster, zookeeper_path: str) -> None:
    await cluster.start(1)
    await cluster.stop(1)
    with pytest.raises(StartError, match="belongs to broker 1, not 2"):
        await cluster.start(2, data="broker-1")
    cluster.connect = zookeeper_path + "-another"
    with pytest.raises(StartError, match="belongs to cluster"):
        await cluster.start(1)


async def test_nodes_that_no_broker_has_written_are_left_alone(cluster: Cluster, zookeeper_path: str) -> None:
    await cluster.start(1)
    store = await ZooKeeperStore.open(zookeeper_path)
    foreign = {
        "/topics/text": b"not JSON", "/topics/list": b"[1]", "/topics/other": b'{"format":1}', "/brokers/abc": b"{}",
        "/topics/later": b'{"format":2}', "/brokers/7": b'{"format":1,"endpoints":3}', "/deletions/zz": b"?",
        "/config/brokers/9": b"\xff", "/config/groups/g": b"{}",
    }  # fmt: skip
    for path, data in foreign.items():
        await store.create(path, data)
    await cluster.create("t")
    caller = await cluster.call(1)
    topic = CreatableTopic(name="text", num_partitions=1, replication_factor=1)
    response = await caller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert "no broker has written" in response.topics[0].error_message
    await cluster.stop(1)
    broker = await cluster.start(1)
    assert list(broker.image.topics) == ["t"]
    assert list(broker.image.brokers) == [1]
    assert {path: (await store.get(path)).data for path in foreign} == foreign
    await store.close()


async def test_what_a_former_controller_writes_fails(cluster: Cluster) -> None:
    await cluster.start_three()
    await cluster.create("t")
    former = next(each for each in cluster.running.values() if each._controller.term is not None)
    term = former._controller.term
    assert term is not None
    stale = Term(term.epoch - 1, term.version - 1)
    with pytest.raises(Conflict):
        await former._catalog.write_topics([former.image.topics["t"]], [stale.condition])
