"""Real connections, peers and listeners over the simulated network; the router behind them is real too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.produce import ProduceResponse
from penstock.transport.connection_limit import ConnectionLimit
from penstock.transport.memory import MemoryBudget
from penstock.transport.peer import Address
from penstock.transport.peers import Peers
from penstock.transport.turn import Turn
from tests.server.rooms import Rooms, batch, fetch, produce
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import SimulatedListener, SimulatedNetwork
from tests.simulation.process import Process
from tests.simulation.sockets import BUFFER_BYTES, SimulatedSocket

PORT = 9092


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


class World:
    """One broker's rooms on host `b`, and a peer on host `a` that asks it."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.loop = the_loop()
        self.network = SimulatedNetwork(self.loop, seed)
        self.rooms = Rooms(folder, loop=self.loop)
        self.broker = Process(self.loop, "b")
        turn = Turn(self.loop, self.loop.wall_ns)
        self.peers = Peers(self.network.host("a", turn), lambda node_id: Address("b", PORT))

    async def start(self) -> World:
        await self.broker.start(self._listen())
        return self

    async def _listen(self) -> None:
        rooms = self.rooms
        self.listener = SimulatedListener(
            self.network, self.loop, name="PLAINTEXT", turn=rooms.turn, memory=MemoryBudget(1 << 26),
            cold_reads=rooms.cold_reads, dispatch=rooms.router.dispatch, frame_max=1 << 26,
            limit=ConnectionLimit(lambda: 100), idle_ms_max=600_000,
        )  # fmt: skip
        assert self.listener.start("b", PORT) == ("b", PORT)

    async def ask(self, request: Any, version: int, response: Any, timeout_s: float = 5.0) -> Any:
        return await self.peers.ask(2, request, version, response, timeout_s)

    async def hello(self, timeout_s: float = 5.0) -> bool:
        """Whether the broker answers."""
        return await self.ask(ApiVersionsRequest(), 3, ApiVersionsResponse, timeout_s) is not None

    async def close(self) -> None:
        self.peers.close()
        self.listener.close()
        await self.rooms.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = await World(tmp_path / "data").start()
    yield world
    world.network.heal_all()
    await world.close()


async def test_a_request_is_answered_after_a_while(world: World) -> None:
    before = world.loop.time()
    assert await world.hello()
    assert 0.0 < world.loop.time() - before < 0.1


async def test_what_is_produced_is_fetched_as_ranges_of_files(world: World) -> None:
    """More than fits into the stream at once, so that both sides wait for each other on the way."""
    topic = world.rooms.create_topic("t")
    sent = [batch(1, size=100_000) for _ in range(10)]
    for each in sent:
        answer = await world.ask(produce("t", each), 11, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
    request = fetch(topic.topic_id, max_bytes=1 << 22, partition_max_bytes=1 << 22)
    answer = await world.ask(request, 13, FetchResponse)
    records = bytes(answer.responses[0].partitions[0].records)
    assert len(records) == sum(map(len, sent)) > 3 * BUFFER_BYTES
    assert records == world.rooms.partition("t").log.segments[0].file.read(1 << 22, 0)


async def test_requests_are_answered_in_their_order(world: World) -> None:
    world.rooms.create_topic("t")
    answers = await asyncio.gather(
        *(world.ask(produce("t", batch()), 11, ProduceResponse) for _ in range(50)),
        world.ask(fetch("t"), 12, FetchResponse),
    )
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers[:-1]]
    assert offsets == list(range(50))


async def test_a_cut_link_answers_nothing_and_one_that_is_healed_in_time_loses_nothing(world: World) -> None:
    assert await world.hello()
    world.network.cut("a", "b")
    asked = asyncio.ensure_future(world.hello(timeout_s=10))
    await asyncio.sleep(3)
    assert not asked.done()
    world.network.heal("a", "b")
    assert await asked
    world.network.cut("a", "b")
    assert not await world.hello(timeout_s=2)
    assert not await world.hello(timeout_s=5), "no connection can be made"
    world.network.heal("a", "b")
    assert await world.hello()


@pytest.mark.parametrize(("one", "other", "written"), [("a", "b", False), ("b", "a", True)])
async def test_a_link_that_is_cut_one_way_loses_the_request_or_the_answer(
    world: World, one: str, other: str, written: bool
) -> None:
    world.rooms.create_topic("t")
    assert await world.hello()
    world.network.cut(one, other, both_ways=False)
    assert await world.ask(produce("t", batch()), 11, ProduceResponse, 2.0) is None
    assert (world.rooms.partition("t").log.end_offset == 1) == written
    world.network.heal(one, other)
    await asyncio.sleep(1)
    assert (world.rooms.partition("t").log.end_offset == 1) == written, "what was given up does not arrive later"


async def test_who_asks_learns_at_once_that_the_other_was_killed(world: World) -> None:
    assert await world.hello()
    world.rooms.create_topic("t")
    asked = asyncio.ensure_future(world.ask(fetch("t", wait_ms=60_000), 12, FetchResponse, 60.0))
    await asyncio.sleep(0.1)
    before = world.loop.time()
    world.broker.kill()
    assert await asked is None
    assert world.loop.time() - before < 0.01
    assert not await world.hello(), "nobody listens"
    assert world.loop.time() - before < 0.1


async def test_a_broker_that_is_paused_answers_when_it_goes_on(world: World) -> None:
    assert await world.hello()
    world.broker.pause()
    asked = asyncio.ensure_future(world.hello(timeout_s=30))
    await asyncio.sleep(10)
    assert not asked.done()
    world.broker.resume()
    assert await asked


async def test_connections_can_be_torn_and_made_again(world: World) -> None:
    assert await world.hello()
    asked = asyncio.ensure_future(world.hello())
    await asyncio.sleep(0)
    world.network.tear("a", "b")
    assert not await asked
    assert await world.hello()


async def test_a_slow_link_takes_longer(world: World) -> None:
    assert await world.hello()
    world.network.slow_down("a", "b", 1.0)
    before = world.loop.time()
    assert await world.hello()
    assert world.loop.time() - before > 2.0


async def test_what_a_peer_does_not_read_is_bounded() -> None:
    loop = the_loop()
    network = SimulatedNetwork(loop)
    server, address = network.listen("b", 0)
    ours = await network.connect("a", address)
    theirs, (host, _) = server.accept()
    assert host == "a"
    sent = 0
    while ours.is_writable:
        sent += ours.send(bytes(10_000))
    assert sent == BUFFER_BYTES
    with pytest.raises(BlockingIOError):
        ours.send(b"more")
    received = await drain(theirs, sent)
    assert received == sent
    assert ours.is_writable
    theirs.close()
    await asyncio.sleep(1)
    assert ours.recv_into(memoryview(bytearray(10))) == 0
    ours.close()
    server.close()


async def drain(sock: SimulatedSocket, size: int) -> int:
    received = 0
    buffer = memoryview(bytearray(7_000))
    while received < size:
        try:
            received += sock.recv_into(buffer)
        except BlockingIOError:
            await asyncio.sleep(0.001)
    return received
