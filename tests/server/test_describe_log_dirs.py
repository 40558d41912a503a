from __future__ import annotations

import pytest
from kafka.protocol.admin.cluster import DescribeLogDirsResponse as Theirs

from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    RetentionHold,
)
from penstock.replication.holds import NOTHING, Hold
from penstock.server.handlers import describe_log_dirs
from tests.server.admin_broker import AdminBroker


async def ask(
    broker: AdminBroker, topics: list[DescribableLogDirTopic] | None, version: int = 5
) -> DescribeLogDirsResult:
    request = DescribeLogDirsRequest(topics=topics)
    response = await broker.ask(describe_log_dirs.handle, request, DescribeLogDirsResponse, version)
    (result,) = response.results
    return result


def shown(result: DescribeLogDirsResult) -> dict[str, list[tuple[int, int]]]:
    return {topic.name: [(p.partition_index, p.partition_size) for p in topic.partitions] for topic in result.topics}


@pytest.fixture
def broker(admin_broker: AdminBroker) -> AdminBroker:
    admin_broker.partitions.held = {("t", 1): 20, ("t", 0): 10, ("u", 0): 5}
    return admin_broker


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_partition_has_its_size(broker: AdminBroker, version: int) -> None:
    result = await ask(broker, None, version)
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(broker.partitions.data_dir))
    assert shown(result) == {"t": [(0, 10), (1, 20)], "u": [(0, 5)]}
    assert not result.is_cordoned
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0


async def test_only_what_is_asked_for_is_described(broker: AdminBroker) -> None:
    asked = [DescribableLogDirTopic(topic="t", partitions=[1, 7]), DescribableLogDirTopic(topic="x", partitions=[0])]
    assert shown(await ask(broker, asked)) == {"t": [(1, 20)]}
    assert shown(await ask(broker, [])) == {}


async def test_a_folder_that_is_gone_is_a_storage_error(broker: AdminBroker) -> None:
    broker.partitions.data_dir /= "gone"
    assert (await ask(broker, None)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_what_a_partition_keeps_for_a_group_is_told_to_those_who_know_of_it(broker: AdminBroker) -> None:
    broker.holds = {("t", 1): Hold("archive", NOTHING, 15, lost_to=3), ("u", 0): Hold("archive", 7, 5)}
    result = await ask(broker, None)
    told = [(topic.name, p.partition_index, p.retention_hold) for topic in result.topics for p in topic.partitions]
    assert told == [
        ("t", 0, None),
        ("t", 1, RetentionHold(group_id="archive", committed_offset=-1, held_bytes=15, over_limit=True)),
        ("u", 0, RetentionHold(group_id="archive", committed_offset=7, held_bytes=5, over_limit=False)),
    ]
    old = await ask(broker, None, 1)
    assert [p.retention_hold for topic in old.topics for p in topic.partitions] == [None] * 3


async def test_other_clients_pass_over_what_is_kept_for_a_group(broker: AdminBroker) -> None:
    broker.holds = {("t", 1): Hold("archive", 4, 15)}
    ours = DescribeLogDirsResponse(results=[await ask(broker, None)])
    read = Theirs.decode(encode_bytes(ours, 4), version=4)
    (topic, _) = read.results[0].topics
    assert [(p.partition_index, p.partition_size) for p in topic.partitions] == [(0, 10), (1, 20)]
