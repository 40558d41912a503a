"""What is not in the page cache comes from the device in threads: nobody but whoever asked for it waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.disk import Disk, File
from penstock.storage.log import FileRange
from penstock.transport import connection as connections
from tests.fakes import TIMEOUT_S, turns, until
from tests.transport.conftest import Wires

SIZE = 1_200_000
CONTENT = bytes(range(256)) * (SIZE // 256 + 1)


class ColdFile(File):
    """None of it is in memory until a thread has brought it, which takes as long as the test wants."""

    __slots__ = ("asked", "fails", "gate", "warm_to")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.warm_to = 0
        self.asked: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.fails = False

    def is_at_hand(self, position: int, size: int) -> bool:
        return position + size <= self.warm_to

    def bring(self, position: int, size: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.asked.append((position, size))
        assert self.gate.wait(TIMEOUT_S)
        if self.fails:
            raise OSError("the device fails")
        self.warm_to = position + size


@pytest.fixture
def cold_file(tmp_path: Path) -> Iterator[ColdFile]:
    path = tmp_path / "log"
    path.write_bytes(CONTENT[:SIZE])
    file = ColdFile(path)
    yield file
    file.gate.set()


async def test_others_are_answered_while_one_waits_for_the_device(wires: Wires, cold_file: ColdFile) -> None:
    (reader, its), (other, others) = wires.connect(), wires.connect()
    reader.send_parts([b"head", FileRange(cold_file, 0, SIZE)])
    await until(lambda: bool(cold_file.asked))
    other.send_parts([b"answer"])
    assert await others.receive(6) == b"answer"
    assert await its.receive(4) == b"head"
    await turns()
    assert not its.has_data()
    assert reader.unsent == SIZE
    cold_file.gate.set()
    assert await its.receive(SIZE) == CONTENT[:SIZE]
    await until(lambda: reader.unsent == 0)


async def test_as_much_is_brought_as_is_sent_before_others_have_their_turn(wires: Wires, cold_file: ColdFile) -> None:
    connection, peer = wires.connect()
    cold_file.gate.set()
    connection.send_parts([b"head", FileRange(cold_file, 100, SIZE - 100), b"tail"])
    assert await peer.receive(SIZE - 100 + 8) == b"head" + CONTENT[100:SIZE] + b"tail"
    assert cold_file.asked[0] == (100, connections.FILES_AT_ONCE)
    assert sum(size for _, size in cold_file.asked) >= SIZE - 100


async def test_what_is_answered_meanwhile_follows_in_order(wires: Wires, cold_file: ColdFile) -> None:
    connection, peer = wires.connect()
    connection.send_parts([b"head", FileRange(cold_file, 0, 1000)])
    await until(lambda: bool(cold_file.asked))
    connection.send_parts([b"next"])
    connection.send_parts([FileRange(cold_file, 5, 10), b"last"])
    await turns()
    cold_file.gate.set()
    wanted = b"head" + CONTENT[:1000] + b"next" + CONTENT[5:15] + b"last"
    assert await peer.receive(len(wanted)) == wanted


async def test_memory_that_is_gone_again_when_its_time_comes_is_not_brought_for_ever(
    wires: Wires, cold_file: ColdFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ColdFile, "is_at_hand", lambda *_: False)
    connection, peer = wires.connect()
    cold_file.gate.set()
    connection.send_parts([FileRange(cold_file, 0, SIZE), b"tail"])
    assert await peer.receive(SIZE + 4) == CONTENT[:SIZE] + b"tail"


async def test_who_waits_for_the_device_may_go(wires: Wires, cold_file: ColdFile) -> None:
    connection, peer = wires.connect()
    connection.send_parts([b"head", FileRange(cold_file, 0, SIZE)])
    await until(lambda: bool(cold_file.asked))
    peer.close()
    connection.close()
    cold_file.gate.set()
    await asyncio.get_running_loop().run_in_executor(None, wires.cold_reads.close)
    await turns()
    assert wires.closed == [connection]


async def test_whoever_ends_gets_what_is_still_to_come_from_the_device(wires: Wires, cold_file: ColdFile) -> None:
    connection, peer = wires.connect()
    connection.send_parts([b"head", FileRange(cold_file, 0, 1000)])
    connection.end()
    await until(lambda: bool(cold_file.asked))
    cold_file.gate.set()
    assert await peer.receive(1004) == b"head" + CONTENT[:1000]
    assert await peer.closed()


async def test_a_device_that_fails_is_met_by_who_sends(wires: Wires, cold_file: ColdFile) -> None:
    connection, peer = wires.connect()
    cold_file.fails = True
    cold_file.gate.set()
    connection.send_parts([FileRange(cold_file, 0, 1000), FileRange(cold_file, SIZE, 1000)])  # behind the end
    assert await peer.receive(1000) == CONTENT[:1000]
    assert await peer.closed()


def test_a_file_knows_what_of_it_is_in_memory(tmp_path: Path) -> None:
    file = Disk().open(tmp_path / "log", create=True)
    file.append([CONTENT[:SIZE]], SIZE)
    assert file.is_at_hand(0, SIZE)
    file.sync()
    file.forget(0, SIZE)
    if file.is_at_hand(0, SIZE):
        pytest.skip("this file system keeps everything in memory")
    file.bring(0, 500_000)
    assert file.is_at_hand(0, 500_000)
    file.bring(500_000, SIZE - 500_000)
    assert file.is_at_hand(0, SIZE)
    assert file.read(SIZE, 0) == CONTENT[:SIZE]
