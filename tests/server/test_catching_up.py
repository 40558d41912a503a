"""A follower that has much to catch up gets it bit by bit, and leaves room for others between the bits."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from penstock.server.catching_up import (
    AT_ONCE_BYTES,
    LOOK_S,
    REST_S_MAX,
    RESTS_AS_LONG,
    SENT_AT_ONCE_BYTES,
    CatchingUp,
)
from tests.fakes import until
from tests.server.rooms import Rooms, batch
from tests.server.test_replica_fetch import FOLLOWER, IN_SYNC, TOPIC, Follower, write
from tests.server.test_replica_fetch import rooms as rooms

OUT = replace(IN_SYNC, isr=(1,))


def round_of(catching_up: CatchingUp, began_s: float, took_s: float) -> None:
    catching_up.begin_answer()
    catching_up.give(catching_up.room, began_s)
    catching_up.asks(began_s + took_s)


def test_it_rests_longer_than_it_took_to_store_what_it_got() -> None:
    catching_up = CatchingUp()
    assert catching_up.rest_s(1.0) == 0
    round_of(catching_up, 1.0, 0.001)
    assert catching_up.rest_s(1.001) == pytest.approx(RESTS_AS_LONG * 0.001)
    assert catching_up.rest_s(1.002) == pytest.approx(RESTS_AS_LONG * 0.001 - 0.001)
    assert catching_up.rest_s(1.001 + RESTS_AS_LONG * 0.001 + 1e-6) == 0


def test_on_a_slow_way_it_rests_no_longer_than_a_moment() -> None:
    catching_up = CatchingUp()
    round_of(catching_up, 1.0, 0.5)
    assert catching_up.rest_s(1.5) == pytest.approx(REST_S_MAX)


def test_a_fetch_that_brings_nothing_back_is_no_reason_to_rest() -> None:
    catching_up = CatchingUp()
    round_of(catching_up, 1.0, 0.001)
    catching_up.asks(2.0)
    assert catching_up.rest_s(2.0) == 0


def test_it_rests_no_more_once_it_comes_no_nearer_and_does_so_again_the_next_time() -> None:
    catching_up = CatchingUp()
    catching_up.look(1000, 1.0)
    assert not catching_up.is_to_be_looked_at(1.0 + LOOK_S / 2)
    catching_up.look(900, 1.0 + LOOK_S)
    round_of(catching_up, 2.5, 0.001)
    assert catching_up.rest_s(2.501) > 0
    catching_up.look(900, 1.0 + 2 * LOOK_S)
    round_of(catching_up, 3.5, 0.001)
    assert catching_up.rest_s(3.501) == 0
    catching_up.look(500, 1.0 + 3 * LOOK_S)
    round_of(catching_up, 4.5, 0.001)
    assert catching_up.rest_s(4.501) == 0, "it is not in sync yet"
    catching_up.has_arrived()
    round_of(catching_up, 9.0, 0.001)
    assert catching_up.rest_s(9.001) > 0


def append_much(rooms: Rooms) -> None:
    """As much as a follower gets at once."""
    rooms.partition(TOPIC).append(memoryview(bytearray(batch(1, size=AT_ONCE_BYTES - 1000))), rooms.clock())
    rooms.turn.flush()


@pytest.fixture
async def behind(rooms: Rooms) -> Follower:
    """In sync in the second partition only, and without four large batches of the first one."""
    rooms.set_partition(TOPIC, OUT)
    for _ in range(4):
        append_much(rooms)
    return Follower(rooms)


async def test_what_is_missed_comes_in_bits_with_rests_between_them(
    behind: Follower, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.catching_up.REST_S_MAX", 0.05)
    monkeypatch.setattr("penstock.server.catching_up.RESTS_AS_LONG", 1000)
    assert len((await behind.fetch({0: 0, 1: 0}, wait_ms=0))[0].records) <= AT_ONCE_BYTES
    began_s = rooms.loop.time()
    for offset in (1, 2, 3):
        data = await behind.fetch({0: offset})
        assert bytes(data[0].records)[:8] == offset.to_bytes(8, "big")
    assert rooms.loop.time() - began_s >= 3 * 0.05 * 0.9


async def test_what_is_missed_is_sent_in_pieces_and_what_is_waited_for_whole(
    behind: Follower, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[int] = []
    send = os.sendfile

    def noted(to: int, file: int, position: int, size: int) -> int:
        offered.append(size)
        return send(to, file, position, size)

    monkeypatch.setattr(os, "sendfile", noted)
    await behind.fetch({0: 0, 1: 0}, wait_ms=0)
    assert offered[0] == SENT_AT_ONCE_BYTES
    rooms.set_partition(TOPIC, IN_SYNC)
    offered.clear()
    await behind.fetch({0: 1})
    assert offered[0] > SENT_AT_ONCE_BYTES


async def test_who_rests_in_one_partition_is_served_at_once_where_it_is_in_sync(
    behind: Follower, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.catching_up.REST_S_MAX", 3600.0)
    monkeypatch.setattr("penstock.server.catching_up.RESTS_AS_LONG", 10**9)
    producer = rooms.connect()
    await behind.fetch({0: 0, 1: 0}, wait_ms=0)
    await behind.send({0: 1})
    await until(lambda: bool(behind.client.connection.slots))
    await write(rooms, producer, 1)
    assert list(await behind.receive()) == [1]
    await behind.send({1: 1})
    assert (await producer.receive()).responses[0].partition_responses[0].error_code == 0


async def test_who_comes_no_nearer_is_found_out(
    behind: Follower, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many come to it as it gets, so it would rest for ever."""
    monkeypatch.setattr("penstock.server.catching_up.REST_S_MAX", 3600.0)
    monkeypatch.setattr("penstock.server.catching_up.RESTS_AS_LONG", 10**9)
    monkeypatch.setattr("penstock.server.catching_up.LOOK_S", 0.0)
    await behind.fetch({0: 0, 1: 0}, wait_ms=0)
    append_much(rooms)
    await behind.send({})
    await behind.send({0: 1})
    await behind.receive()
    assert list(await behind.receive()) == [0]
    in_sync = rooms.partition(TOPIC).in_sync
    assert in_sync is not None
    assert FOLLOWER not in in_sync.members
