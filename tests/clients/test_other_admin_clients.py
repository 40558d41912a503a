"""Administration once more, with the admin clients of kafka-python and aiokafka, which ask in other versions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing

import kafka
import kafka.errors
import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer.offsets import OffsetSpec

from penstock.protocol.errors import ErrorCode
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Commit, Outgoing, send_all
from tests.clients.steps import create_topic, wait_until

KAFKA_PYTHON = CLIENTS["kafka-python"]
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def python_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


@pytest_asyncio.fixture
async def aio_admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    yield client
    await client.close()


# ---- kafka-python


def test_kafka_python_makes_grows_describes_and_deletes_a_topic(
    python_admin: KafkaAdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("python")
    options = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000"}}
    made = python_admin.create_topics({topic: options}, wait_for_metadata=True)
    assert made["topics"][0]["num_partitions"] == 2
    assert made["topics"][0]["configs"]["retention.ms"]["value"] == "5000"
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        python_admin.create_topics({topic: options})
    python_admin.create_partitions({topic: 3})
    python_admin.wait_for_topics([topic])
    (described,) = python_admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    assert uuid.UUID(str(described["topic_id"])) != uuid.UUID(int=0)
    assert topic in python_admin.list_topics()
    python_admin.delete_topics([topic])
    wait_until(lambda: topic not in python_admin.list_topics())


def test_kafka_python_deletes_a_topic_by_its_id(python_admin: KafkaAdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    (described,) = python_admin.describe_topics([topic])
    python_admin.delete_topics([uuid.UUID(str(described["topic_id"]))])
    wait_until(lambda: topic not in python_admin.list_topics())
    with pytest.raises(kafka.errors.KafkaError):
        python_admin.delete_topics([uuid.uuid4()])


def test_kafka_python_describes_topics_page_by_page(
    python_admin: KafkaAdminClient, unique: Callable[[str], str], bootstrap: str
) -> None:
    prefix = unique("page")
    topics = [create_topic(bootstrap, f"{prefix}-{n}", 3) for n in range(3)]
    pages, cursor = [], None
    while True:
        page = python_admin.describe_topic_partitions(topics, response_partition_limit=2, cursor=cursor)
        pages.append([(t["name"], p["partition_index"]) for t in page["topics"] for p in t["partitions"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert all(len(page) <= 2 for page in pages)
    assert [entry for page in pages for entry in page] == [(topic, n) for topic in topics for n in range(3)]


def test_kafka_python_changes_settings(python_admin: KafkaAdminClient, new_topic: Topics) -> None:
    topic = new_topic(segment_ms=777_000)

    def modified() -> dict[str, str]:
        found = python_admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
        own = ("DYNAMIC_TOPIC_CONFIG", "TOPIC_CONFIG")
        return {name: config["value"] for name, config in found.items() if config["config_source"] in own}

    answer = python_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "5000"})])
    assert answer == {"topic": {topic: "OK"}}
    assert modified() == {"segment.ms": "777000", "retention.ms": "5000"}
    answer = python_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "soon"})])
    assert "InvalidConfig" in answer["topic"][topic]
    python_admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})])
    assert modified() == {"segment.ms": "777000"}
    everything = python_admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], include_synonyms=True, config_filter="all"
    )["topic"][topic]
    assert [synonym["name"] for synonym in everything["segment.ms"]["synonyms"]][:1] == ["segment.ms"]
    assert everything["segment.ms"]["config_type"] == "LONG"


def test_kafka_python_lists_config_resources(python_admin: KafkaAdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    found = python_admin.list_config_resources(["TOPIC", "BROKER"])
    assert topic in found["topic"]
    assert found["broker"] == ["1"]


def test_kafka_python_lists_offsets_and_deletes_records(
    python_admin: KafkaAdminClient, new_topic: Topics, bootstrap: str
) -> None:
    topic = new_topic()
    sent = [Outgoing(b"x", timestamp_ms=START_MS + stamp) for stamp in (0, 9000, 5000)]
    send_all(KAFKA_PYTHON, bootstrap, topic, sent)
    partition = kafka.TopicPartition(topic, 0)

    def find(spec: int) -> tuple[int, int]:
        return python_admin.list_partition_offsets({partition: spec})[partition][:2]

    assert find(OffsetSpec.EARLIEST) == (0, -1)
    assert find(OffsetSpec.LATEST) == (3, -1)
    assert find(OffsetSpec.MAX_TIMESTAMP) == (1, START_MS + 9000)
    assert find(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert find(START_MS + 100) == (1, START_MS + 9000)
    assert find(START_MS + 10_000) == (-1, -1)
    python_admin.delete_records({partition: 2})
    assert find(OffsetSpec.EARLIEST) == (2, -1)
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        python_admin.delete_records({partition: 99})


def test_kafka_python_describes_cluster_and_log_dirs(
    python_admin: KafkaAdminClient, new_topic: Topics, bootstrap: str
) -> None:
    cluster = python_admin.describe_cluster()
    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
    assert cluster["controller_id"] == 1
    topic = new_topic()
    send_all(KAFKA_PYTHON, bootstrap, topic, [bytes(10_000)])
    (broker,) = python_admin.describe_log_dirs({topic: [0]})
    (folder,) = broker["log_dirs"]
    assert folder["error_code"] == 0
    assert folder["log_dir"].startswith("/")
    assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
    (found,) = folder["topics"]
    assert found["name"] == topic
    assert found["partitions"][0]["partition_size"] >= 10_000
    assert not found["partitions"][0]["is_future_key"]


def test_kafka_python_describes_producers(python_admin: KafkaAdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    send_all(KAFKA_PYTHON, bootstrap, topic, [b"x"] * 3, idempotent=True)
    (found,) = python_admin.describe_producers([kafka.TopicPartition(topic, 0)]).values()
    (producer,) = found.active_producers if hasattr(found, "active_producers") else found
    assert producer.producer_id >= 0
    assert producer.producer_epoch == 0
    assert producer.last_sequence == 2


def test_kafka_python_reads_the_versions_of_every_api(python_admin: KafkaAdminClient) -> None:
    versions = {getattr(key, "name", key): value for key, value in python_admin.api_versions().items()}
    assert len(versions) >= 30


# ---- aiokafka


async def until(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    for _ in range(1000):
        if await ask() == wanted:
            return
        await asyncio.sleep(0.02)
    pytest.fail("it never came true")


async def test_aiokafka_makes_grows_describes_and_deletes_a_topic(
    aio_admin: AIOKafkaAdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("aio")
    answer = await aio_admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"})])
    assert [(name, code) for name, code, *_ in answer.topic_errors] == [(topic, 0)]
    answer = await aio_admin.create_topics([NewTopic(topic, 2, 1)])
    assert [code for _, code, *_ in answer.topic_errors] == [ErrorCode.TOPIC_ALREADY_EXISTS]

    async def partitions() -> int:
        (described,) = await aio_admin.describe_topics([topic])
        return len(described["partitions"])

    await until(partitions, 2)
    await aio_admin.create_partitions({topic: NewPartitions(4)})
    await until(partitions, 4)
    await aio_admin.delete_topics([topic])

    async def listed() -> bool:
        return topic in await aio_admin.list_topics()

    await until(listed, False)


async def test_aiokafka_changes_settings(aio_admin: AIOKafkaAdminClient, new_topic: Topics) -> None:
    topic = new_topic()

    async def retention() -> str:
        asked = AioConfigResource(AioConfigResourceType.TOPIC, topic, configs={"retention.ms": ""})
        (answer,) = await aio_admin.describe_configs([asked])
        ((code, _, _, name, entries, *_),) = answer.resources
        assert (code, name) == (0, topic)
        return entries[0][1]

    changed = AioConfigResource(AioConfigResourceType.TOPIC, topic, configs={"retention.ms": "5000"})
    (answer,) = await aio_admin.alter_configs([changed])
    assert answer.resources[0][0] == 0
    assert await retention() == "5000"
    wrong = AioConfigResource(AioConfigResourceType.TOPIC, topic, configs={"retention.ms": "soon"})
    (answer,) = await aio_admin.alter_configs([wrong])
    assert answer.resources[0][0] == ErrorCode.INVALID_CONFIG
    assert await retention() == "5000"


async def test_aiokafka_deletes_records(aio_admin: AIOKafkaAdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    send_all(KAFKA_PYTHON, bootstrap, topic, [b"x"] * 5)
    partition = TopicPartition(topic, 0)
    assert await aio_admin.delete_records({partition: RecordsToDelete(before_offset=3)}) == {partition: 3}


async def test_aiokafka_describes_cluster_and_groups(
    aio_admin: AIOKafkaAdminClient, new_topic: Topics, bootstrap: str, unique: Callable[[str], str]
) -> None:
    cluster = await aio_admin.describe_cluster()
    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
    topic, group = new_topic(), unique("group")
    consumer = CLIENTS["confluent"].consumer(bootstrap, group=group)
    consumer.assign((topic, 0))
    consumer.commit({(topic, 0): Commit(8)})
    consumer.close()
    assert group in {name for name, *_ in await aio_admin.list_consumer_groups()}
    offsets = await aio_admin.list_consumer_group_offsets(group)
    assert offsets[TopicPartition(topic, 0)].offset == 8
    (described,) = await aio_admin.describe_consumer_groups([group])
    assert described.groups[0][:3] == (0, group, "Empty")
