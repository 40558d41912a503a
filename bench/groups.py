"""What groups cost: a large group settles and lives, and a broker that restarts reads many committed offsets.

The members are as many connections that speak the protocol of consumer groups (KIP-848), each doing what a client does:
it takes what it is given, lets go of what it must, says so at once, and else sends a heartbeat when it is time.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.loader import LoadFailed
from bench.peers import Peer, penstock
from bench.results import Measure
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.protocol.schema import Message

MEMBERS, PARTITIONS = 1_000, 2_000
SETTLED_LIMIT_S = 5.0
HEARTBEAT_LIMIT = 5.0  # percent of one core
RELOAD_LIMIT_S = 2.0
OFFSETS = 100_000
OFFSETS_A_COMMIT = 1_000
GIVE_UP_S = 60.0
TOPIC, GROUP = "large-group", "large"

Held = dict[bytes, set[int]]


class Member:
    """One member on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked = 0
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.held: Held = {}
        self.interval_s = 5.0

    async def ask(self, request: Message, version: int, answer: type[Message]) -> Message:
        self._asked += 1
        self._writer.write(request_frame(request, version, self._asked, "bench"))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return read_response(answer, await self._reader.readexactly(size), version)[1]

    async def heartbeat(self) -> bool:
        """Whether anything has changed: then the broker wants to know at once that it is done."""
        full = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if full else -1, subscribed_topic_names=[TOPIC] if full else None,
            topic_partitions=[TopicPartitions(topic_id=t, partitions=sorted(p)) for t, p in self.held.items()],
        )  # fmt: skip
        answer = await self.ask(request, 1, ConsumerGroupHeartbeatResponse)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            raise LoadFailed(f"a heartbeat was refused: {answer.error_code} {answer.error_message}")
        self.epoch, self.interval_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        if answer.assignment is None:
            return False
        held = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}
        changed, self.held = held != self.held, held
        return changed

    async def live(self) -> None:
        while True:
            if not await self.heartbeat():
                await asyncio.sleep(self.interval_s)

    def close(self) -> None:
        self._writer.close()


async def _connect(port: int) -> Member:
    return Member(*await asyncio.open_connection("127.0.0.1", port))


def _settled(members: list[Member]) -> bool:
    """Everyone has a fair share, and nothing is missing or held twice."""
    shares = [sum(map(len, member.held.values())) for member in members]
    if sum(shares) != PARTITIONS or max(shares) - min(shares) > 1:
        return False
    return len({(topic, p) for member in members for topic, held in member.held.items() for p in held}) == PARTITIONS


async def _large_group(peer: Peer, seconds: float) -> tuple[float, float]:
    """Seconds until it has settled, and percent of a core from then on."""
    first = await _connect(peer.port)
    await first.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4, FindCoordinatorResponse)
    members = [first, *[await _connect(peer.port) for _ in range(MEMBERS - 1)]]
    began = time.monotonic()
    lives = [asyncio.ensure_future(member.live()) for member in members]
    try:
        while not _settled(members):
            if time.monotonic() - began > GIVE_UP_S:
                raise LoadFailed(f"a group of {MEMBERS} had not settled after {GIVE_UP_S:.0f} s")
            await asyncio.sleep(0.05)
            for life in lives:
                if life.done():
                    life.result()
        settled_s = time.monotonic() - began
        await asyncio.sleep(max(member.interval_s for member in members))  # everyone has said so
        before, at = peer.cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        return settled_s, 100 * (peer.cpu_s() - before) / (time.monotonic() - at)
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        for member in members:
            member.close()


def large_group(work: Path, seconds: float) -> Iterator[Measure]:
    with penstock(work / "large-group") as peer:
        peer.create_topics([TOPIC], PARTITIONS)
        settled_s, busy = asyncio.run(_large_group(peer, max(seconds, 10.0)))
    title = f"a group of {MEMBERS:,} members over {PARTITIONS:,} partitions"
    yield Measure("group-settles", f"{title} settles", settled_s, "s", SETTLED_LIMIT_S, "all join at once")
    yield Measure("group-heartbeats", f"{title}: its heartbeats", busy, "% of a core", HEARTBEAT_LIMIT)


def committed_offsets(work: Path) -> Iterator[Measure]:
    """From the command until the last group of many knows its offset again."""
    folder = work / "offsets"
    with penstock(folder, {"flush": "os"}, keep=True) as peer:
        peer.create_topics(["offsets"], OFFSETS_A_COMMIT)
        groups = [f"group-{n}" for n in range(OFFSETS // OFFSETS_A_COMMIT)]
        for group in groups:
            _commit(peer, group)
    began = time.monotonic()
    with penstock(folder, keep=True) as peer:
        asyncio.run(_fetch_offsets(peer, groups))
        reloaded_s = time.monotonic() - began
    title = f"{OFFSETS:,} committed offsets are there again"
    note = f"{len(groups)} groups; from the command to the answer for all of them"
    yield Measure("offsets-reload", title, reloaded_s, "s", RELOAD_LIMIT_S, note)


async def _fetch_offsets(peer: Peer, groups: list[str]) -> None:
    """Of all groups in one request."""
    member = await _connect(peer.port)
    last = OffsetFetchRequestTopics(name="offsets", partition_indexes=[OFFSETS_A_COMMIT - 1])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=[last]) for each in groups])
    answer = await member.ask(request, 8, OffsetFetchResponse)
    member.close()
    assert isinstance(answer, OffsetFetchResponse)
    found = [group.topics[0].partitions[0].committed_offset for group in answer.groups]
    if found != [OFFSETS_A_COMMIT - 1] * len(groups):
        raise LoadFailed("groups have lost their offsets")


def _commit(peer: Peer, group: str) -> None:
    writer = Consumer({"bootstrap.servers": peer.address, "group.id": group, "log_level": 0})
    places = [TopicPartition("offsets", n, n) for n in range(OFFSETS_A_COMMIT)]
    writer.commit(offsets=places, asynchronous=False)
    writer.close()
