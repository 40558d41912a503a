"""What one hostile connection may cost in memory, each time of a broker that has done nothing else before.

A broker keeps what it freed for whoever needs it next, so one that has served another attack would hide this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.protocol.framing import request_frame
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.fetch import FetchPartition
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.wire import uvarint
from tests.brokers import BrokerProcess
from tests.hostile.clients import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawClient,
    answers_of,
    batch_of,
    fetch_request,
    header,
    produce_request,
    sized,
)
from tests.hostile.conftest import Hostile
from tests.hostile.honest import Honest
from tests.hostile.members import VERSION, join, sync

MESSAGE_TOO_LARGE = 10
MEGABYTE = 1_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, flush="os").start()
    yield broker
    broker.close()


@pytest.fixture
def honest(broker: BrokerProcess) -> Iterator[Honest]:
    honest = Honest(broker.port)
    yield honest
    honest.close()


def asking(partition: int) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)


@pytest.mark.parametrize("api_key", [0, 3])
def test_millions_of_tagged_fields_that_are_really_sent_are_refused(hostile: Hostile, api_key: int) -> None:
    """Fifteen million empty ones are what fits into 30 MB."""
    fields = b"\x21\0" * (15 * 1024 * 1024)
    client = hostile()
    client.send(sized(header(api_key, 12 if api_key else 11, tags=uvarint(20_000_000)) + fields))
    assert client.is_closed()


@pytest.mark.parametrize("options", [{}, {"session_id": 0, "session_epoch": 0}], ids=["no session", "a session"])
def test_a_hundred_thousand_partitions_in_a_fetch_are_answered_or_refused(
    hostile: Hostile, topic: str, options: dict[str, int]
) -> None:
    client = hostile(timeout_s=30)
    client.ask(fetch_request(topic, *map(asking, range(99_990)), max_wait_ms=500, **options), FETCH_VERSION)


def test_sessions_over_very_many_partitions_do_not_pile_up(hostile: Hostile, topic: str) -> None:
    client = hostile(timeout_s=30)
    asked = fetch_request(topic, *map(asking, range(20_000)), session_id=0, session_epoch=0)
    frame = request_frame(asked, FETCH_VERSION, 1, "hostile")
    for _ in range(10):
        client.send(frame)
        assert client.frame() is not None


def test_many_small_pieces_in_one_answer_are_not_gathered(hostile: Hostile, unique: Callable[[str], str]) -> None:
    """Four hundred partitions, each with less than is sent from the page cache."""
    client = hostile(timeout_s=30)
    topic = client.create_topic(unique("wide"), partitions=400)
    batch = batch_of(b"x" * 55_000)
    for index in range(400):
        assert client.produce(topic, batch, partition=index, acks=1).error_code == 0
    asked = fetch_request(topic, *map(asking, range(400)), max_bytes=2**31 - 1)
    for _ in range(2):
        client.send(request_frame(asked, FETCH_VERSION, 1, "hostile"))
        answer = client.frame()
        assert answer is not None
        assert len(answer) > 20 * MEGABYTE


# ---- batches that must be opened


@pytest.fixture
def opened(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    config = {"compression_type": "lz4", "record_validation": "full"}
    return RawClient(broker.port).create_topic(unique("opened"), **config)


def test_a_batch_too_large_for_the_topic_is_not_opened_at_all(hostile: Hostile, opened: str) -> None:
    """Thirty megabytes: more than the broker may spend twice."""
    client = hostile(timeout_s=30)
    assert client.produce(opened, batch_of(b"x" * 30 * MEGABYTE)).error_code == MESSAGE_TOO_LARGE


def test_many_batches_in_one_request_take_no_more_room_than_the_request(hostile: Hostile, opened: str) -> None:
    client = hostile(timeout_s=30)
    response = client.ask(produce_request(opened, *[batch_of(b"x" * 900_000)] * 30), PRODUCE_VERSION)
    assert [answer.base_offset for answer in answers_of(response)] == list(range(30))


# ---- groups


@pytest.mark.parametrize("size", [900_000, 8 * MEGABYTE])
def test_members_with_enormous_metadata_do_not_pile_up(hostile: Hostile, group: str, size: int) -> None:
    """Whether they are let in or not."""
    client = hostile()
    for number in range(6):
        join(client, f"{group}-{number}", b"m" * size)


@pytest.mark.parametrize("size", [1_500_000, 8 * MEGABYTE])
def test_enormous_assignments_do_not_pile_up_and_harm_no_other_group(
    hostile: Hostile, broker: BrokerProcess, group: str, size: int
) -> None:
    neighbour, client = RawClient(broker.port), hostile()
    member = join(neighbour, f"{group}-neighbour")
    assert member is not None
    assert sync(neighbour, f"{group}-neighbour", member, b"mine").error_code == 0
    for number in range(8):
        joined = join(client, f"{group}-{number}")
        assert joined is not None
        sync(client, f"{group}-{number}", joined, b"a" * size)
    identity = {"generation_id": member.generation_id, "member_id": member.member_id}
    assert neighbour.ask(HeartbeatRequest(group_id=f"{group}-neighbour", **identity), VERSION).error_code == 0


def test_describing_one_group_thousands_of_times_does_not_repeat_it(hostile: Hostile, group: str) -> None:
    client = hostile()
    joined = join(client, group, b"m" * 500_000)
    assert joined is not None
    sync(client, group, joined, b"")
    assert client.ask(DescribeGroupsRequest(groups=[group] * 5_000), 5) is not None
