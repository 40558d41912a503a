from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.server.handlers import init_producer_id
from penstock.server.producer_ids import PREFETCH_BELOW, ProducerIds, producer_ids
from tests.server.admin_broker import AdminBroker


async def ask(broker: AdminBroker, version: int = 5, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**{"transactional_id": None, **fields})
    return await broker.ask(init_producer_id.handle, request, InitProducerIdResponse, version)


@pytest.mark.parametrize("version", range(7))
async def test_each_producer_gets_an_id_of_its_own(admin_broker: AdminBroker, version: int) -> None:
    answers = await asyncio.gather(*(ask(admin_broker, version) for _ in range(5)))
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(ErrorCode.NONE, 0)] * 5
    assert sorted(answer.producer_id for answer in answers) == [0, 1, 2, 3, 4]


async def test_a_producer_that_had_an_id_gets_a_new_one(admin_broker: AdminBroker) -> None:
    first = await ask(admin_broker)
    second = await ask(admin_broker, producer_id=first.producer_id, producer_epoch=0)
    assert second.producer_id != first.producer_id


@pytest.mark.parametrize("fields", [{"transactional_id": ""}, {"producer_id": 7}, {"producer_epoch": 0}])
async def test_what_makes_no_sense_is_refused_for_good(admin_broker: AdminBroker, fields: dict[str, Any]) -> None:
    answer = await ask(admin_broker, **fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_who_is_in_no_transaction_has_none_to_keep(admin_broker: AdminBroker) -> None:
    answer = await ask(admin_broker, 6, enable_2pc=True, keep_prepared_txn=True)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)


async def test_while_ids_can_not_be_had_producers_are_told_to_try_again(admin_broker: AdminBroker) -> None:
    admin_broker.cluster.store.fail_before = True
    assert (await ask(admin_broker)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    admin_broker.cluster.store.fail_before = False
    assert (await ask(admin_broker)).error_code == ErrorCode.NONE


def test_a_controller_has_one_allocator(admin_broker: AdminBroker) -> None:
    assert producer_ids(admin_broker.administration) is producer_ids(admin_broker.administration)


class FakeBlocks:
    """Hands out blocks of ids when it is allowed to."""

    def __init__(self) -> None:
        self.asked = 0
        self.failing = False
        self.open = asyncio.Event()
        self.open.set()

    async def next_block(self) -> range:
        self.asked += 1
        await self.open.wait()
        if self.failing:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return range(1000 * (self.asked - 1), 1000 * self.asked)


async def test_the_next_block_is_there_before_the_last_is_used_up() -> None:
    blocks = FakeBlocks()
    ids = ProducerIds(blocks.next_block)
    for _ in range(1000 - PREFETCH_BELOW):
        await ids.next()
    assert blocks.asked == 1
    await ids.next()
    await asyncio.sleep(0)
    assert blocks.asked == 2
    blocks.open.clear()  # the next fetch would hang, and must not be needed
    assert [await ids.next() for _ in range(PREFETCH_BELOW)] == list(range(901, 1001))


async def test_those_who_wait_share_one_fetch() -> None:
    blocks = FakeBlocks()
    ids = ProducerIds(blocks.next_block)
    assert sorted(await asyncio.gather(*(ids.next() for _ in range(50)))) == list(range(50))
    assert blocks.asked == 1


async def test_a_fetch_that_failed_ahead_of_time_hurts_nobody() -> None:
    blocks = FakeBlocks()
    ids = ProducerIds(blocks.next_block)
    await ids.next()
    blocks.failing = True
    for _ in range(999):
        await ids.next()
        await asyncio.sleep(0)
    with pytest.raises(ApiError):
        await ids.next()
    blocks.failing = False
    assert await ids.next() >= 1000
    await ids.close()
