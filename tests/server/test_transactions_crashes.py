"""A transaction's end, cut off at every write, and on disks that fail and heal: all of it counts, or nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.storage.disk import Buffer, Disk, File
from tests.fakes import TIMEOUT_S, eventually, turns, until
from tests.server.rooms import Client, Rooms, fetch
from tests.storage.disks import FailingDisk
from tests.storage.logs import NOW_MS
from tests.transactions.engine import BUMPING, CLASSIC
from tests.transactions.raw import RawProducer, committed_values, error_of

GROUP = "group"
TIMEOUT_MS = 60_000

both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])
both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


class PhotographedFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: PhotographingDisk, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._disk = disk

    def append(self, parts: Sequence[Buffer], total: int) -> None:
        super().append(parts, total)
        self._disk.take_picture()


class PhotographingDisk(Disk):
    """While `album` is a folder, it holds a copy of everything as it was behind each write: what a kill leaves."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.album: Path | None = None
        self.pictures: list[Path] = []

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return PhotographedFile(path, self, create=create, writable=writable)

    def take_picture(self) -> None:
        if self.album is not None:
            self.pictures.append(self.album / str(len(self.pictures)))
            shutil.copytree(self._root, self.pictures[-1])


class PickyDisk(FailingDisk):
    """Fails for files below folders of a name."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name

    def count_write(self, path: Path) -> None:
        if self.name and self.name in str(path):
            raise OSError(28, "No space left on device", str(path))

    def heal(self) -> None:
        self.name = ""


Make = Callable[..., Rooms]


async def open_transaction(rooms: Rooms, version: int, *, two_phase: bool = False) -> tuple[Client, RawProducer]:
    """In two partitions of a topic and in a group's offsets."""
    client, producer = rooms.connect(), RawProducer("payments", version, now_ms=NOW_MS)
    producer.heard(await client.ask(*producer.initialize(timeout_ms=TIMEOUT_MS, two_phase=two_phase)))
    if version == CLASSIC:
        assert error_of(await client.ask(*producer.add("t", 0, 1))) is ErrorCode.NONE
        assert error_of(await client.ask(*producer.add_offsets(GROUP))) is ErrorCode.NONE
    for partition in (0, 1):
        assert error_of(await client.ask(*producer.produce("t", b"value", partition=partition))) is ErrorCode.NONE
    assert error_of(await client.ask(*producer.commit_offsets(GROUP, "t", 5))) is ErrorCode.NONE
    return client, producer


def is_stable(rooms: Rooms, partition: int) -> bool:
    found = rooms.partition("t", partition)
    return found.last_stable_offset == found.high_watermark == found.log.next_offset


async def settled(rooms: Rooms) -> None:
    await eventually(lambda: is_stable(rooms, 0) and is_stable(rooms, 1))


async def committed(client: Client, partition: int) -> list[bytes | None]:
    response = await client.ask(fetch("t", 0, partition, isolation=1), 12)
    return committed_values(response.responses[0].partitions[0])


async def offset(client: Client) -> int:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=True)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            (found,) = (await client.ask(asked, 8)).groups[0].topics[0].partitions
            if found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert found.error_code == 0
                return int(found.committed_offset)
            await asyncio.sleep(0.005)


async def state(client: Client) -> str:
    response = await client.ask(DescribeTransactionsRequest(transactional_ids=["payments"]), 0)
    return str(response.transaction_states[0].transaction_state)


def start_again(make: Make, before: Rooms, picture: Path, folder: str) -> Rooms:
    """A broker that finds what the picture shows."""
    rooms = make(folder)
    shutil.copytree(picture, rooms.folder, dirs_exist_ok=True)
    for topic in before.image.topics.values():
        rooms.image.put_topic(topic)
    rooms.partitions.load()
    rooms.groups.load_all(5)
    rooms.transactions.load_all(5)
    return rooms


# ---- killed at every write


@both_versions
@both_ways
async def test_a_broker_that_dies_anywhere_between_a_decision_and_its_markers_carries_it_out_whole(
    make: Make, tmp_path: Path, version: int, commit: bool
) -> None:
    disk = PhotographingDisk(tmp_path / "data")
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, version)
    disk.album = tmp_path / "album"
    disk.take_picture()
    repeated = producer.end(commit)
    assert error_of(await client.ask(*repeated)) is ErrorCode.NONE
    await settled(rooms)
    await eventually(lambda: _states(rooms)[0].startswith("COMPLETE"))
    disk.album = None
    # Before it, the decision, two markers, the group's marker, and that it is complete.
    assert len(disk.pictures) >= 4

    for number, picture in enumerate(disk.pictures):
        again = start_again(make, rooms, picture, f"again-{number}")
        asking = again.connect()
        if number == 0:
            assert await state(asking) == "Ongoing"
            assert error_of(await asking.ask(*repeated)) is ErrorCode.NONE
        await settled(again)
        expected = [b"value"] if commit else []
        assert [await committed(asking, 0), await committed(asking, 1)] == [expected, expected]
        assert await offset(asking) == (5 if commit else -1)
        response = await asking.ask(*repeated)
        assert error_of(response) is ErrorCode.NONE, "the answer may have been lost"
        following = producer.as_it_was().heard(response)
        if version == CLASSIC:
            assert error_of(await asking.ask(*following.add("t", 0))) is ErrorCode.NONE
        assert error_of(await asking.ask(*following.produce("t", b"next"))) is ErrorCode.NONE
        assert error_of(await asking.ask(*following.end(True))) is ErrorCode.NONE
        await settled(again)
        assert await committed(asking, 0) == [*expected, b"next"]
        await again.close()


@both_versions
async def test_a_broker_that_dies_before_the_decision_aborts_in_time(make: Make, tmp_path: Path, version: int) -> None:
    disk = PhotographingDisk(tmp_path / "data")
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    _, producer = await open_transaction(rooms, version)
    disk.album = tmp_path / "album"
    disk.take_picture()
    disk.album = None
    again = start_again(make, rooms, disk.pictures[0], "again")
    again.clock.now += TIMEOUT_MS
    client = again.connect()
    await state(client)
    for shard in list(again.transactions._shards.values()):
        shard.tick()
    await settled(again)
    assert [await committed(client, 0), await committed(client, 1)] == [[], []]
    assert await offset(client) == -1
    late = await client.ask(*producer.produce("t", b"late"))
    assert error_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH


# ---- disks that fail and heal


@both_versions
@both_ways
async def test_a_full_disk_at_a_marker_heals_and_the_transaction_completes(
    make: Make, version: int, commit: bool
) -> None:
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, version)
    disk.name = "/t-1/"
    assert error_of(await client.ask(*producer.end(commit))) is ErrorCode.NONE
    await eventually(lambda: is_stable(rooms, 0))
    assert (await state(client)).startswith("Prepare")
    assert rooms.partition("t", 1).last_stable_offset == 0
    disk.heal()
    await settled(rooms)
    expected = [b"value"] if commit else []
    assert [await committed(client, 0), await committed(client, 1)] == [expected, expected]
    assert await offset(client) == (5 if commit else -1)
    await asyncio.sleep(0.01)
    assert (await state(client)).startswith("Complete")


async def test_a_full_disk_at_a_groups_marker_heals_and_the_offsets_count(make: Make) -> None:
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, BUMPING)
    disk.name = f"/{OFFSETS_TOPIC}-"
    assert error_of(await client.ask(*producer.end())) is ErrorCode.NONE
    await settled(rooms)
    await asyncio.sleep(0.05)
    assert await state(client) == "PrepareCommit"
    disk.heal()
    assert await offset(client) == 5


@both_versions
async def test_a_decision_that_could_not_be_stored_was_not_made_and_may_be_asked_for_again(
    make: Make, version: int
) -> None:
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, version)
    disk.name = f"/{TRANSACTIONS_TOPIC}-"
    assert error_of(await client.ask(*producer.end())) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert await state(client) == "Ongoing"
    assert not is_stable(rooms, 0)
    assert error_of(await client.ask(*producer.end())) is ErrorCode.NONE
    await settled(rooms)
    assert [await committed(client, 0), await committed(client, 1)] == [[b"value"], [b"value"]]


async def test_behind_a_full_disk_transactions_still_run_out_of_time(make: Make) -> None:
    """Nobody asks for them any more: their producer is gone."""
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = rooms.connect(), RawProducer("payments", CLASSIC, now_ms=NOW_MS)
    producer.heard(await client.ask(*producer.initialize(timeout_ms=100)))
    assert error_of(await client.ask(*producer.add("t", 0))) is ErrorCode.NONE
    assert error_of(await client.ask(*producer.produce("t", b"value"))) is ErrorCode.NONE
    disk.name = f"/{TRANSACTIONS_TOPIC}-"
    assert error_of(await client.ask(*producer.add("t", 1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    rooms.clock.now += 1_000
    await eventually(lambda: is_stable(rooms, 0))
    assert await committed(client, 0) == []


async def test_when_its_completion_could_not_be_stored_a_transaction_is_completed_later(make: Make) -> None:
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, BUMPING)
    disk.name = "/t-1/"
    assert error_of(await client.ask(*producer.end())) is ErrorCode.NONE
    await eventually(lambda: is_stable(rooms, 0))
    disk.name = f"/{TRANSACTIONS_TOPIC}-"
    await eventually(lambda: is_stable(rooms, 1))
    await asyncio.sleep(0.05)
    disk.heal()
    await eventually(lambda: "COMPLETE_COMMIT" in _states(rooms))


def _states(rooms: Rooms) -> list[str]:
    """Of the ids that are in memory, without asking anyone."""
    return [
        transaction.state.name
        for shard in rooms.transactions._shards.values()
        for transaction in getattr(shard.machine, "transactions", {}).values()
    ]


# ---- an error that was none


async def test_a_commit_that_was_answered_with_an_error_may_have_taken_effect(make: Make) -> None:
    """Its repetition waits for a marker that does not come, and is told to come again; it was decided all the same."""
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, BUMPING)
    disk.name = "/t-1/"
    again = producer.end()
    assert error_of(await client.ask(*again)) is ErrorCode.NONE
    await eventually(lambda: is_stable(rooms, 0))
    await client.send(*again)
    await turns()
    rooms.clock.now += 1_000
    assert error_of(await client.receive()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await committed(client, 0) == [b"value"]
    assert error_of(await client.ask(*producer.end(False))) is ErrorCode.INVALID_TXN_STATE
    disk.heal()
    await settled(rooms)
    assert await committed(client, 1) == [b"value"]
    assert error_of(await client.ask(*again)) is ErrorCode.NONE


# ---- markers of a decision that is over


async def test_a_writer_that_was_replaced_does_not_end_the_next_transaction(make: Make) -> None:
    """A classic producer has one epoch for both, so only the writer itself can know that it is late."""
    disk = PickyDisk()
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, CLASSIC)
    disk.name = "/t-1/"
    assert error_of(await client.ask(*producer.end())) is ErrorCode.NONE
    await eventually(lambda: is_stable(rooms, 0))
    await asyncio.sleep(0.35)  # it has tried a few times, and sleeps a while by now
    (shard,) = rooms.transactions._shards.values()
    shard.drop()
    disk.heal()
    assert (await state(client)).endswith("Commit")
    await settled(rooms)
    assert error_of(await client.ask(*producer.add("t", 0, 1))) is ErrorCode.NONE
    for partition in (0, 1):
        assert error_of(await client.ask(*producer.produce("t", b"open", partition=partition))) is ErrorCode.NONE
    await asyncio.sleep(0.5)  # longer than the first writer sleeps
    assert not is_stable(rooms, 0)
    assert not is_stable(rooms, 1)
    assert await state(client) == "Ongoing"


async def test_a_decision_without_partitions_completes_at_once(make: Make) -> None:
    rooms = make()
    client, producer = rooms.connect(), RawProducer("payments", now_ms=NOW_MS)
    producer.heard(await client.ask(*producer.initialize()))
    assert error_of(await client.ask(*producer.end(False))) is ErrorCode.NONE
    await until(lambda: _states(rooms) == ["COMPLETE_ABORT"])


async def test_a_partition_that_is_gone_needs_no_marker(make: Make) -> None:
    rooms = make()
    rooms.create_topic("t", 2)
    rooms.create_topic("gone")
    client, producer = await open_transaction(rooms, BUMPING)
    assert error_of(await client.ask(*producer.produce("gone", b"value"))) is ErrorCode.NONE
    rooms.delete_topic("gone")
    assert error_of(await client.ask(*producer.end())) is ErrorCode.NONE
    await eventually(lambda: _states(rooms) == ["COMPLETE_COMMIT"])
    assert await committed(client, 0) == [b"value"]


# ---- readers that wait


@both_ways
async def test_a_reader_that_waits_is_answered_when_the_transaction_ends(make: Make, commit: bool) -> None:
    rooms = make()
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, BUMPING)
    reader, impatient = rooms.connect(), rooms.connect()
    await reader.send(fetch("t", isolation=1, wait_ms=60_000, min_bytes=1), 12)
    await impatient.send(fetch("t", isolation=0, wait_ms=60_000, min_bytes=1), 12)
    assert (await impatient.receive()).responses[0].partitions[0].records
    await asyncio.sleep(0.02)
    assert not reader.has_answer()
    assert error_of(await client.ask(*producer.end(commit))) is ErrorCode.NONE
    found = (await reader.receive()).responses[0].partitions[0]
    assert committed_values(found) == ([b"value"] if commit else [])


async def test_a_reader_that_wants_much_is_answered_when_a_small_marker_decides_much(make: Make) -> None:
    rooms = make()
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, BUMPING)
    big = b"x" * 10_000
    assert error_of(await client.ask(*producer.produce("t", big))) is ErrorCode.NONE
    reader = rooms.connect()
    await reader.send(fetch("t", isolation=1, wait_ms=60_000, min_bytes=10_000), 12)
    await asyncio.sleep(0.02)
    assert not reader.has_answer()
    assert error_of(await client.ask(*producer.end())) is ErrorCode.NONE
    assert committed_values((await reader.receive()).responses[0].partitions[0]) == [b"value", big]
