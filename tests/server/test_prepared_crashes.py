"""A prepared transaction (KIP-939), cut off at every write from the moment that it is kept: it ends as was decided."""

from __future__ import annotations

from pathlib import Path

from penstock.protocol.errors import ErrorCode
from tests.fakes import eventually
from tests.server.rooms import Client, Rooms
from tests.server.test_transactions_crashes import (
    TIMEOUT_MS,
    Make,
    PhotographingDisk,
    _states,
    both_versions,
    both_ways,
    committed,
    is_stable,
    offset,
    open_transaction,
    settled,
    start_again,
    state,
)
from tests.storage.logs import NOW_MS
from tests.transactions.engine import CLASSIC
from tests.transactions.raw import RawProducer, error_of

DAY_MS = 24 * 3600 * 1000


def pass_time(rooms: Rooms, ms: int) -> None:
    rooms.clock.now += ms
    for shard in list(rooms.transactions._shards.values()):
        shard.tick()


async def keep(client: Client, producer: RawProducer) -> tuple[RawProducer, tuple[int, int]]:
    """Who takes over, and the identity of what it found open."""
    response = await client.ask(*producer.initialize(two_phase=True, keeps=True))
    taker = producer.as_it_was().heard(response)
    return taker, (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)


@both_versions
@both_ways
async def test_a_broker_that_dies_anywhere_ends_it_as_was_decided(
    make: Make, tmp_path: Path, version: int, commit: bool
) -> None:
    disk = PhotographingDisk(tmp_path / "data")
    rooms = make(disk=disk)
    rooms.create_topic("t", 2)
    client, producer = await open_transaction(rooms, version, two_phase=True)
    disk.album = tmp_path / "album"
    disk.take_picture()
    taker, found = await keep(client, producer)
    assert found == producer.stamp
    assert error_of(await client.ask(*taker.end(commit))) is ErrorCode.NONE
    await settled(rooms)
    await eventually(lambda: _states(rooms)[0].startswith("COMPLETE"))
    disk.album = None
    # Before it, kept, the decision, two markers, the group's marker, and that it is complete.
    assert len(disk.pictures) >= 5

    waited = 0
    for number, picture in enumerate(disk.pictures):
        again = start_again(make, rooms, picture, f"again-{number}")
        asking = again.connect()
        await state(asking)
        pass_time(again, 100 * TIMEOUT_MS)
        if await state(asking) == "Ongoing":
            waited += 1
            assert not is_stable(again, 0)
            another, found = await keep(asking, producer)
            assert found == producer.stamp, "what is stored with the decision names it"
            assert error_of(await asking.ask(*another.end(commit))) is ErrorCode.NONE
        await settled(again)
        expected = [b"value"] if commit else []
        assert [await committed(asking, 0), await committed(asking, 1)] == [expected, expected]
        assert await offset(asking) == (5 if commit else -1)
        await again.close()
    assert waited >= 2, "open, and kept"


@both_versions
@both_ways
async def test_what_comes_next_is_written_to_the_same_partitions(make: Make, version: int, commit: bool) -> None:
    """By who has taken over, whose sequences begin with 0; nothing of the producer before is taken any more."""
    rooms = make()
    rooms.create_topic("t", 2)
    client, zombie = await open_transaction(rooms, version, two_phase=True)
    for _ in range(3):
        taker, _ = await keep(client, zombie)
    taker.heard(await client.ask(*taker.end(commit)))
    await settled(rooms)
    assert error_of(await client.ask(*zombie.produce("t", b"late"))) is ErrorCode.INVALID_PRODUCER_EPOCH
    for value in (b"one", b"two"):
        if version == CLASSIC:
            assert error_of(await client.ask(*taker.add("t", 0))) is ErrorCode.NONE
        assert error_of(await client.ask(*taker.produce("t", value))) is ErrorCode.NONE
        taker.heard(await client.ask(*taker.end(True)))
        await settled(rooms)
    assert error_of(await client.ask(*zombie.produce("t", b"late"))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await committed(client, 0) == [*([b"value"] if commit else []), b"one", b"two"]


@both_versions
async def test_it_is_open_after_weeks_and_another_is_not(make: Make, version: int) -> None:
    rooms = make()
    rooms.create_topic("t", 2)
    client, _ = await open_transaction(rooms, version, two_phase=True)
    other = RawProducer("other", version, now_ms=NOW_MS)
    other.heard(await client.ask(*other.initialize(timeout_ms=TIMEOUT_MS)))
    if version == CLASSIC:
        assert error_of(await client.ask(*other.add("t", 1))) is ErrorCode.NONE
    assert error_of(await client.ask(*other.produce("t", b"other", partition=1))) is ErrorCode.NONE
    pass_time(rooms, 30 * DAY_MS)
    await eventually(lambda: sorted(_states(rooms)) == ["COMPLETE_ABORT", "ONGOING"])
    for partition in (0, 1):
        assert rooms.partition("t", partition).last_stable_offset == 0
