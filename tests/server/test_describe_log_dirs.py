from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from penstock.server.handlers import describe_log_dirs
from tests.server.admin_broker import AdminBroker


async def ask(
    broker: AdminBroker, topics: list[DescribableLogDirTopic] | None, version: int = 4
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


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_partition_has_its_size(broker: AdminBroker, version: int) -> None:
    result = await ask(broker, None, version)
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(broker.partitions.data_dir))
    assert shown(result) == {"t": [(0, 10), (1, 20)], "u": [(0, 5)]}
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0


async def test_only_what_is_asked_for_is_described(broker: AdminBroker) -> None:
    asked = [DescribableLogDirTopic(topic="t", partitions=[1, 7]), DescribableLogDirTopic(topic="x", partitions=[0])]
    assert shown(await ask(broker, asked)) == {"t": [(1, 20)]}
    assert shown(await ask(broker, [])) == {}


async def test_a_folder_that_is_gone_is_a_storage_error(broker: AdminBroker) -> None:
    broker.partitions.data_dir /= "gone"
    assert (await ask(broker, None)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
