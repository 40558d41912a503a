"""The short ways through Produce and Fetch give, byte for byte, the answers of the ordinary way, and the same logs.

Every request goes to two brokers: one that remembers its clients' requests, and one that does not.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.protocol.compression import Compression
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.schema import Message
from penstock.server.fast_fetch import FetchMemo
from penstock.server.fast_produce import ProduceMemo
from penstock.transport.connection import Connection
from tests.server.rooms import Client, Rooms, batch, fetch, produce
from tests.storage.disks import FailingDisk

PRODUCE_VERSIONS = range(8, 14)
FETCH_VERSIONS = range(9, 19)
TOPICS = {"plain": 3, "stamped": 1, "tiny": 1, "packed": 1, "careful": 1, "__internal": 1}


class Pair:
    """Two brokers with the same topics, and connections in pairs. What differs is told at once."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop, **settings: str) -> None:
        self.disks = (FailingDisk(), FailingDisk())
        self.fast = Rooms(folder / "fast", loop=loop, disk=self.disks[0], **settings)
        self.slow = Rooms(folder / "slow", loop=loop, disk=self.disks[1], with_memos=False, **settings)
        self.shortcuts = 0
        self.number = 0
        self.connections: list[tuple[Client, Client]] = []
        for name in TOPICS:
            self.create(name)

    def both(self, do: Callable[[Rooms], Any]) -> None:
        do(self.fast)
        do(self.slow)

    def create(self, name: str) -> None:
        config: dict[str, dict[str, str]] = {
            "stamped": {"message_timestamp_type": "LogAppendTime"},
            "tiny": {"max_message_bytes": "200"},
            "packed": {"compression_type": "gzip"},
            "careful": {"min_insync_replicas": "2"},
        }
        self.both(
            lambda rooms: rooms.create_topic(name, TOPICS[name], internal=name.startswith("__"), **config.get(name, {}))
        )

    def topic_id(self, name: str) -> bytes:
        topic = self.fast.image.topics.get(name)
        return topic.topic_id if topic is not None else b"\xee" * 16

    def connect(self) -> int:
        pair = (self.fast.connect(), self.slow.connect())
        self._count_shortcuts(pair[0].connection)
        self.connections.append(pair)
        return len(self.connections) - 1

    def _count_shortcuts(self, connection: Connection) -> None:
        dispatch = connection.dispatch

        def counted(*arguments: Any) -> bool:
            self.shortcuts -= 1
            return dispatch(*arguments)

        connection.dispatch = counted

    async def send(self, slot: int, *requests: tuple[Message, int]) -> list[bytes]:
        """In one piece to both; the answers, which are the same."""
        frames = []
        for request, version in requests:
            self.number += 1
            frames.append(request_frame(request, version, self.number, "client"))
        return await self.send_frames(slot, *frames)

    async def send_frames(self, slot: int, *frames: bytes) -> list[bytes]:
        self.shortcuts += len(frames)
        answers: list[list[bytes]] = []
        for client in self.connections[slot]:
            await client.send_bytes(b"".join(frames))
        for client in self.connections[slot]:
            answers.append([])
            try:
                for _ in frames:
                    # A message of the operating system may name a file.
                    answers[-1].append((await client.receive_frame()).replace(b"/slow/", b"/fast/"))
            except ConnectionResetError:
                answers[-1].append(b"closed")
        assert answers[0] == answers[1]
        for rooms in (self.fast, self.slow):
            await rooms.idle()
        return answers[0]

    def compare_logs(self) -> None:
        folders = [self._files(rooms.folder) for rooms in (self.fast, self.slow)]
        assert folders[0].keys() == folders[1].keys()
        for name, content in folders[0].items():
            assert content == folders[1][name], name
        for topic in self.fast.image.topics:
            for index in range(TOPICS[topic]):
                states = [
                    (p.high_watermark, p.log.end_offset, p.log.start_offset, p.log.producers.dump())
                    for p in (self.fast.partition(topic, index), self.slow.partition(topic, index))
                ]
                assert states[0] == states[1]

    def _files(self, folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    async def close(self) -> None:
        await self.fast.close()
        await self.slow.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path, asyncio.get_running_loop())
    yield pair
    await pair.close()
    pair.compare_logs()


def place(pair: Pair, topic: str, version: int, *, first_with_id: int = 13) -> str | bytes:
    return pair.topic_id(topic) if version >= first_with_id else topic


def with_bad_crc(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def with_attributes(data: bytes, attributes: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">h", changed, 21, attributes)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


# ---- by example


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("flush", ["commit", "os", "interval"])
async def test_produce_after_produce(pair: Pair, version: int, acks: int, flush: str) -> None:
    pair.both(lambda rooms: rooms.change_topic("plain", flush=flush))
    slot, topic = pair.connect(), place(pair, "plain", version)
    sizes = (10, 50, 100, 1000, 15_000, 20_000, 100_000, 500_000, 10)
    for size in sizes:
        for index in (0, 1, 2):
            await pair.send(slot, (produce(topic, batch(size=size), index, acks=acks), version))
    requests = [(produce(topic, batch(2), n % 3, acks=acks), version) for n in range(50)]
    answers = await pair.send(slot, *requests)
    assert len(answers) == 50
    assert pair.shortcuts == len(sizes) * 3 + 50 - 2


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("topic", TOPICS)
async def test_every_kind_of_topic(pair: Pair, version: int, topic: str) -> None:
    slot = pair.connect()
    for _ in range(5):
        await pair.send(slot, (produce(place(pair, topic, version), batch(size=50)), version))
    await pair.send(slot, *[(produce(place(pair, topic, version), batch(size=50)), version)] * 3)
    assert (pair.shortcuts > 0) == (topic in ("plain", "stamped", "tiny", "careful"))


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize("acks", [1, -1])
async def test_errors_between_what_succeeds(pair: Pair, version: int, acks: int) -> None:
    slot, topic = pair.connect(), place(pair, "tiny", version)
    good = batch(size=50)
    bad: list[bytes | None] = [
        None, b"", good[:60], good[:-1], good + good, with_bad_crc(good), batch(size=300), with_attributes(good, 0x20),
        with_attributes(good, 0x10), with_attributes(good, 7), with_attributes(good, -1),
        batch(timestamps=[2**62]), batch(producer=(7, 0, -1)), good[:16] + b"\1" + good[17:],
    ]  # fmt: skip
    for data in (good, good, good):
        await pair.send(slot, (produce(topic, data, acks=acks), version))
    for data in bad:
        await pair.send(slot, (produce(topic, data, acks=acks), version))
        await pair.send(
            slot, *((produce(topic, each, acks=acks), version) for each in (good, data, good, data, data, good))
        )
    assert pair.shortcuts > 6 * len(bad)
    for index in (1, -1, 2**31 - 1):
        await pair.send(slot, *((produce(topic, good, i, acks=acks), version) for i in (0, index, 0)))


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("flush", ["commit", "os"])
async def test_an_idempotent_producer(pair: Pair, version: int, flush: str) -> None:
    pair.both(lambda rooms: rooms.change_topic("plain", flush=flush))
    slot, topic = pair.connect(), place(pair, "plain", version)

    def of(sequence: int, epoch: int = 0, count: int = 1) -> tuple[Message, int]:
        return produce(topic, batch(count, producer=(7, epoch, sequence))), version

    for sequence in range(4):
        await pair.send(slot, of(sequence))
    await pair.send(slot, of(4), of(4), of(3), of(5), of(9), of(5, 1), of(0, 1), of(6, 0), of(1, 1), of(1, 1))
    await pair.send(slot, *(of(n, 1) for n in range(2, 12)))
    await pair.send(slot, of(6, 1), of(7, 1), of(12, 1, 5), of(12, 1, 5), of(12, 1, 4), of(17, 1))
    assert pair.shortcuts > 20


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
async def test_fetch_after_fetch(pair: Pair, version: int, isolation: int) -> None:
    slot = pair.connect()
    for size in (10, 1000, 70_000, 50, 200_000, 10):
        for index in (0, 1):
            await pair.send(slot, (produce("plain", batch(2, size=size), index), 9))
    topic = place(pair, "plain", version)
    pair.shortcuts = 0
    for offset in range(12):
        for index in (0, 1):
            await pair.send(slot, (fetch(topic, offset, index, isolation=isolation), version))
    assert pair.shortcuts == 24 - 2
    await pair.send(slot, *((fetch(topic, n % 12, n % 2, isolation=isolation), version) for n in range(30)))
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"partition_max_bytes": 3000}, {"min_bytes": 10**6}):
        await pair.send(slot, *((fetch(topic, n, 0, isolation=isolation, **limits), version) for n in range(12)))


@pytest.mark.parametrize("version", [9, 11, 12, 13, 18])
async def test_what_a_fetch_may_ask_for_in_vain(pair: Pair, version: int) -> None:
    slot, topic = pair.connect(), place(pair, "plain", version)
    await pair.send(slot, (produce("plain", batch(3)), 9))
    good = (fetch(topic), version)
    for request in (
        fetch(topic, 3), fetch(topic, 4), fetch(topic, -1), fetch(topic, 0, 1), fetch(topic, 0, 9), fetch(topic, 0, -1),
        fetch(topic, epoch=0), fetch(topic, epoch=1), fetch(topic, 2, last_epoch=0), fetch(topic, 3, last_epoch=5),
        fetch("nowhere" if version < 13 else b"\1" * 16), fetch(topic, min_bytes=0), fetch(topic, 3, min_bytes=0),
        fetch(topic, session=(0, 0)), fetch(topic, session=(5, 1)), fetch(topic, 3, wait_ms=5), fetch(topic, wait_ms=5),
        fetch(topic, max_bytes=-1), fetch(topic, partition_max_bytes=-1),
    ):  # fmt: skip
        await pair.send(slot, good, good, good, (request, version), (request, version), (request, version), good)


async def test_a_topic_deleted_and_made_again_is_another_topic(pair: Pair) -> None:
    slots = {version: pair.connect() for version in (9, 12, 13)}
    for _ in range(3):
        for version, slot in slots.items():
            for _ in range(4):
                topic = place(pair, "plain", version)
                await pair.send(slot, (produce(topic, batch()), version))
                answers = await pair.send(slot, *((fetch(topic, 0), version) for _ in range(4)))
                assert answers[0]
        former = pair.topic_id("plain")
        pair.both(lambda rooms: rooms.delete_topic("plain"))
        for version, slot in slots.items():
            await pair.send(slot, (produce("plain" if version < 13 else former, batch()), version))
            await pair.send(slot, (fetch("plain" if version < 13 else former), version))
        pair.create("plain")
        for version, slot in slots.items():
            await pair.send(slot, (produce("plain" if version < 13 else former, batch()), version))
            await pair.send(slot, (fetch("plain" if version < 13 else former), version))


@pytest.mark.parametrize(
    "change",
    [
        {"max_message_bytes": "100"}, {"min_insync_replicas": "2"}, {"compression_type": "zstd"}, {"flush": "os"},
        {"message_timestamp_type": "LogAppendTime"}, {"cleanup_policy": "compact"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
async def test_a_change_of_settings_counts_from_the_next_request_on(pair: Pair, change: dict[str, str]) -> None:
    slot = pair.connect()
    request = (produce("plain", batch(size=60)), 9)
    for config in ({}, change, {}):
        pair.both(lambda rooms, config=config: rooms.change_topic("plain", **config))
        for _ in range(4):
            await pair.send(slot, request)
        await pair.send(slot, request, request, request)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("flush", ["commit", "os"])
async def test_a_disk_that_fails_and_heals(pair: Pair, acks: int, flush: str) -> None:
    pair.both(lambda rooms: rooms.change_topic("plain", flush=flush))
    slot = pair.connect()
    request = (produce("plain", batch(2), acks=acks), 9)
    for _ in range(3):
        await pair.send(slot, request)
    for _ in range(3):
        for disk in pair.disks:
            disk.fail_write = 0
        await pair.send(slot, request)
        await pair.send(slot, request, request, request)
        for disk in pair.disks:
            disk.heal()
        await pair.send(slot, request, request)
    assert pair.shortcuts > 10


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_sync_that_fails(pair: Pair, acks: int) -> None:
    slot = pair.connect()
    request = (produce("plain", batch(2), acks=acks), 9)
    for _ in range(4):
        await pair.send(slot, request)
    for disk in pair.disks:
        disk.fail_sync = 0
    for _ in range(3):
        await pair.send(slot, request)
    await pair.send(slot, request, request)
    for _ in range(3):
        await pair.send(slot, (fetch("plain"), 11))


async def test_bytes_behind_the_end_of_a_request_and_tags_in_it(pair: Pair) -> None:
    slot = pair.connect()
    for version in (8, 9, 12):
        frame = request_frame(produce("plain", batch(size=20)), version, 7, "client")
        for _ in range(4):
            await pair.send_frames(slot, frame)
        longer = struct.pack(">i", len(frame) - 4 + 6) + frame[4:] + b"behind"
        for _ in range(4):
            await pair.send_frames(slot, longer)
            await pair.send_frames(slot, frame, longer, frame)
        if version >= 9:
            tagged = struct.pack(">i", len(frame)) + frame[4:-1] + b"\1\x63\2xy"
            await pair.send_frames(slot, frame, tagged, frame, tagged)


async def test_clients_of_other_names_and_versions_on_one_connection(pair: Pair) -> None:
    slot = pair.connect()
    for name in ("a", "bb", None, ""):
        for version in (8, 9, 10):
            frame = request_frame(produce("plain", batch()), version, 1, name)
            await pair.send_frames(slot, *[frame] * 5)
        other = request_frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, 9, name)
        await pair.send_frames(slot, frame, other, frame, frame, other, other)


async def test_what_is_remembered_is_what_the_answers_say(pair: Pair) -> None:
    """Not only are they equal: they are right."""
    slot = pair.connect()
    for number in range(6):
        client = pair.connections[slot][0]
        response: ProduceResponse = await client.ask(produce("plain", batch(2), acks=1), 9)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 2 * number, 0)
        fetched: FetchResponse = await client.ask(fetch("plain", 2 * number), 11)
        data = fetched.responses[0].partitions[0]
        assert (data.error_code, data.high_watermark) == (0, 2 * number + 2)
        assert len(data.records) > 0
        await pair.connections[slot][1].ask(produce("plain", batch(2), acks=1), 9)
    await pair.slow.idle()


async def test_a_memo_is_made_by_the_second_request_of_a_kind(pair: Pair) -> None:
    slot = pair.connect()
    connection = pair.connections[slot][0].connection
    for make, memo, version in ((produce("plain", batch()), ProduceMemo, 9), (fetch("plain"), FetchMemo, 11)):
        await pair.send(slot, (make, version))
        assert type(connection.memo) is not memo
        await pair.send(slot, (make, version))
        assert type(connection.memo) is memo
    assert pair.connections[slot][1].connection.memo is None


async def test_errors_of_both_ways_carry_their_codes(pair: Pair) -> None:
    slot = pair.connect()
    client = pair.connections[slot][0]
    for data, code in (
        (with_bad_crc(batch()), ErrorCode.CORRUPT_MESSAGE),
        (batch(size=300), ErrorCode.MESSAGE_TOO_LARGE),
        (with_attributes(batch(), 0x20), ErrorCode.INVALID_RECORD),
    ):
        for _ in range(4):
            response = await client.ask(produce("tiny", data), 9)
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)


# ---- at random

indexes = st.sampled_from([0, 0, 0, 1, 1, 2, 3, -1])
topics = st.sampled_from([*TOPICS, "plain", "plain", "plain", "nowhere"])
batches = st.one_of(
    st.builds(lambda count, size: batch(count, size=size), st.integers(1, 3), st.sampled_from([1, 40, 120, 3000])),
    st.builds(lambda count, size: batch(count, size=size), st.integers(1, 3), st.sampled_from([1, 40, 120])),
    st.builds(
        lambda producer, epoch, sequence, count: batch(count, producer=(producer, epoch, sequence)),
        st.integers(1, 2), st.integers(0, 1), st.integers(0, 6), st.integers(1, 2),
    ),
    st.builds(lambda codec: batch(3, size=30, compression=codec), st.sampled_from(Compression)),
    st.just(with_bad_crc(batch())),
    st.just(with_attributes(batch(), 0x20)),
    st.sampled_from([b"", None, batch()[:50]]),
)  # fmt: skip
stretches = st.one_of(
    st.tuples(
        st.just("produce"), st.sampled_from(PRODUCE_VERSIONS), topics, st.sampled_from([1, -1]),
        st.lists(st.tuples(indexes, batches), min_size=1, max_size=8),
    ),
    st.tuples(
        st.just("fetch"), st.sampled_from(FETCH_VERSIONS), topics,
        st.tuples(st.sampled_from([1, 150, 1 << 20]), st.sampled_from([0, 1, 500]), st.sampled_from([0, 1])),
        st.lists(st.tuples(indexes, st.integers(-1, 12)), min_size=1, max_size=8),
    ),
    st.tuples(st.just("again"), st.sampled_from(["plain", "stamped"])),
    st.tuples(st.just("flush"), st.sampled_from(["commit", "os", "interval"])),
)  # fmt: skip


@given(script=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8), stretches), max_size=14))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_requests_over_several_connections(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[int, int, Any]]
) -> None:
    """A stretch is requests of one kind on one connection, sent so many at once."""

    async def run() -> None:
        pair = Pair(tmp_path_factory.mktemp("pair"), asyncio.get_running_loop())
        for _ in range(3):
            pair.connect()
        for slot, at_once, (kind, *rest) in script:
            if kind == "again":
                pair.both(lambda rooms, name=rest[0]: rooms.delete_topic(name))
                pair.create(rest[0])
                continue
            if kind == "flush":
                pair.both(lambda rooms, flush=rest[0]: rooms.change_topic("plain", flush=flush))
                continue
            version, topic, options, each = rest
            name = place(pair, topic, version)
            requests = []
            for index, what in each:
                if kind == "produce":
                    requests.append((produce(name, what, index, acks=options), version))
                else:
                    limit, least, isolation = options
                    requests.append(
                        (fetch(name, what, index, partition_max_bytes=limit, min_bytes=least, isolation=isolation),
                         version)
                    )  # fmt: skip
            for start in range(0, len(requests), at_once):
                await pair.send(slot, *requests[start : start + at_once])
        await pair.close()
        pair.compare_logs()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
