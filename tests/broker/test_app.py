"""A broker from its start to its stop, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.app import Broker, StartError
from penstock.broker.endpoints import host_and_port
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.record_batch import read_batches
from penstock.storage.disk import Disk, File
from tests.broker.conftest import Brokers, Caller, Held, settings
from tests.fakes import until
from tests.server.rooms import batch, fetch, produce
from tests.storage.disks import CountingDisk, FailingDisk


async def create(caller: Caller, name: str, partitions: int = 1, **config: str) -> None:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    response = await caller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    assert response.topics[0].error_code == 0


async def write(caller: Caller, topic: str, index: int = 0, count: int = 1, acks: int = -1) -> int:
    response = await caller.ask(produce(topic, batch(count), index, acks=acks), 9)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 0, answer.error_message
    assert isinstance(answer.base_offset, int)
    return answer.base_offset


async def end_of(caller: Caller, topic: str, index: int = 0) -> int:
    response: FetchResponse = await caller.ask(fetch(topic, 0, index), 11)
    data = response.responses[0].partitions[0]
    assert data.error_code == 0
    last = max((header.last_offset for header, _ in read_batches(data.records)), default=-1)
    assert last + 1 == data.high_watermark
    return data.high_watermark


# ---- starting, stopping, starting again


async def test_what_was_written_is_there_after_a_restart_however_often(brokers: Brokers) -> None:
    cluster_ids = set()
    for run in range(3):
        broker = await brokers.start()
        caller = await brokers.call(broker)
        if run == 0:
            await create(caller, "t", 2)
        assert await end_of(caller, "t") == 3 * run
        assert await write(caller, "t", count=3) == 3 * run
        metadata = await caller.ask(MetadataRequest(topics=None), 12)
        cluster_ids.add(metadata.cluster_id)
        assert [(b.node_id, b.host, b.port) for b in metadata.brokers] == [(1, "127.0.0.1", broker.port)]
        await brokers.stop(broker)
    assert len(cluster_ids) == 1


async def test_groups_go_on_after_a_restart(brokers: Brokers) -> None:
    broker = await brokers.start()
    caller = await brokers.call(broker)
    await create(caller, "t")
    assert (await caller.ask(FindCoordinatorRequest(key="g"), 2)).port == broker.port
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    response = await caller.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    assert response.topics[0].partitions[0].error_code == 0
    await brokers.stop(broker)
    caller = await brokers.call(await brokers.start())
    found = await caller.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert found.topics[0].partitions[0].committed_offset == 42


async def test_a_stop_closes_every_connection_whatever_it_waits_for(brokers: Brokers) -> None:
    broker = await brokers.start()
    idle, polling, joining, writing = [await brokers.call(broker) for _ in range(4)]
    await create(idle, "t")
    await idle.ask(FindCoordinatorRequest(key="g"), 2)
    polling.send(fetch("t", wait_ms=60_000), 11)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    joining.send(
        JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
            protocol_type="consumer", protocols=[protocol],
        ), 3,
    )  # fmt: skip
    asked = [writing.send(produce("t", batch()), 9) for _ in range(100)]
    await asyncio.sleep(0.01)
    await brokers.stop(broker)
    acknowledged = 0
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        for each in asked:
            await writing.receive(*each)
            acknowledged += 1
    for caller in (idle, polling, joining, writing):
        async with asyncio.timeout(5):
            await caller.reader.read()  # to the end
    caller = await brokers.call(await brokers.start())
    assert await end_of(caller, "t") >= acknowledged


async def test_what_was_acknowledged_at_the_very_end_is_there(brokers: Brokers) -> None:
    broker = await brokers.start()
    caller = await brokers.call(broker)
    await create(caller, "t")
    acknowledged = 0

    async def pour() -> None:
        nonlocal acknowledged
        while True:
            acknowledged = await write(caller, "t") + 1

    pouring = asyncio.ensure_future(pour())
    await until(lambda: acknowledged > 20)
    await brokers.stop(broker)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await pouring
    caller = await brokers.call(await brokers.start())
    assert await end_of(caller, "t") >= acknowledged


async def test_a_broker_on_every_address_tells_clients_one_that_they_can_dial(brokers: Brokers) -> None:
    broker = await brokers.start(listen="0.0.0.0:0")
    broker.host = "127.0.0.1"
    caller = await brokers.call(broker)
    metadata = await caller.ask(MetadataRequest(topics=None), 12)
    assert [(b.host, b.port) for b in metadata.brokers] == [("127.0.0.1", broker.port)]


async def test_a_broker_tells_clients_what_it_was_told_to(brokers: Brokers) -> None:
    broker = await brokers.start(advertised="kafka.example:1234", broker_rack="r1", node_id="7")
    caller = await brokers.call(broker)
    metadata = await caller.ask(MetadataRequest(topics=None), 12)
    assert [(b.node_id, b.host, b.port, b.rack) for b in metadata.brokers] == [(7, "kafka.example", 1234, "r1")]


# ---- a start that is refused


async def refused(data: Path, **more: str) -> str:
    broker = Broker(settings(data, **more))
    with pytest.raises(StartError) as error:
        await broker.start()
    return str(error.value)


async def test_a_port_that_is_taken(brokers: Brokers, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        message = await refused(tmp_path / "other", listen=listen)
    assert listen in message
    assert "--listen" in message


async def test_an_address_that_is_not_of_this_machine(tmp_path: Path) -> None:
    assert "192.0.2.1:0" in await refused(tmp_path / "data", listen="192.0.2.1:0")


async def test_a_folder_that_another_broker_uses(brokers: Brokers) -> None:
    await brokers.start()
    message = await refused(brokers.data)
    assert str(brokers.data) in message
    assert "--data" in message


async def test_a_folder_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert str(tmp_path / "file") in await refused(tmp_path / "file")


@pytest.mark.parametrize("listen", ["9092", "here", "here:", ":9092", "here:port", "here:99999", "here:-1", ""])
async def test_what_is_not_an_address(tmp_path: Path, listen: str) -> None:
    assert "HOST:PORT" in await refused(tmp_path / "data", listen=listen)


@pytest.mark.parametrize(
    ("text", "host", "port"), [("a:1", "a", 1), ("[::1]:9092", "::1", 9092), ("0.0.0.0:0", "0.0.0.0", 0)]
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert host_and_port(text) == (host, port)


@pytest.mark.parametrize("listen", ["taken", "not an address"])
async def test_a_start_that_was_refused_leaves_nothing_behind(brokers: Brokers, listen: str) -> None:
    broker = await brokers.start()
    caller = await brokers.call(broker)
    await create(caller, "t")
    await write(caller, "t")
    await caller.close()
    await brokers.stop(broker)
    before = Held()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}" if listen == "taken" else listen
        await refused(brokers.data, listen=address)
    await asyncio.sleep(0.01)
    assert Held().since(before) == {"descriptors": [], "threads": [], "tasks": []}
    assert (brokers.data / "clean-shutdown").exists(), "the next start would have to recover every log"
    caller = await brokers.call(await brokers.start())
    assert await end_of(caller, "t") == 1


# ---- what is left


async def test_nothing_is_left_after_a_stop(brokers: Brokers) -> None:
    await brokers.stop(await brokers.start())
    process = await asyncio.create_subprocess_exec("true", stdin=PIPE, stdout=PIPE)
    await process.communicate()
    before = Held()  # what Python and uvloop keep open is open by now
    broker = await brokers.start()
    callers = [await brokers.call(broker) for _ in range(5)]
    await create(callers[0], "t", 8, file_delete_delay_ms="0")
    await create(callers[0], "packed", compression_type="gzip")
    await create(callers[0], "doomed")
    for index in range(8):
        await write(callers[1], "t", index)
    await write(callers[1], "packed")  # starts the worker process
    await write(callers[1], "doomed")
    for name in ("t", "doomed"):
        await callers[0].ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
    await callers[2].ask(FindCoordinatorRequest(key="g"), 2)
    callers[3].send(fetch("packed", 1, wait_ms=60_000), 11)
    await asyncio.sleep(0.05)
    for caller in callers[:3]:
        await caller.close()
    await brokers.stop(broker)
    for caller in callers[3:]:
        await caller.close()
    await asyncio.get_running_loop().shutdown_default_executor()  # the loop's own
    await asyncio.sleep(0.01)
    assert Held().since(before) == {"descriptors": [], "threads": [], "tasks": []}


async def test_after_a_clean_stop_a_start_looks_at_few_files_however_many_partitions_there_are(
    brokers: Brokers,
) -> None:
    broker = await brokers.start(flush="os")
    caller = await brokers.call(broker)
    await create(caller, "t", 100)
    for index in range(100):
        await write(caller, "t", index)
    await brokers.stop(broker)
    disk = CountingDisk()
    broker = await brokers.start(disk, flush="os")
    assert disk.calls <= 5
    assert disk.bytes_read == {}
    caller = await brokers.call(broker)
    assert await end_of(caller, "t", 57) == 1
    assert await write(caller, "t", 57) == 1
    assert await write(caller, "t", 58) == 1


async def test_after_a_stop_without_warning_logs_are_recovered(brokers: Brokers) -> None:
    broker = await brokers.start()
    caller = await brokers.call(broker)
    await create(caller, "t")
    await write(caller, "t", count=3)
    await caller.close()
    await brokers.stop(broker)
    (brokers.data / "clean-shutdown").unlink()
    with (brokers.data / "t-0" / f"{0:020d}.log").open("ab") as log:
        log.write(b"torn")
    caller = await brokers.call(await brokers.start())
    assert await end_of(caller, "t") == 3
    assert await write(caller, "t") == 3


# ---- disks


class StumblingFile(File):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: StumblingDisk, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._disk = disk

    def sync(self) -> None:
        if self._disk.stumbles and self.path.suffix == ".log":
            self._disk.stumbles = False
            self._disk.stumbled.set()
            self._disk.go_on.wait(10)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        super().sync()


class StumblingDisk(Disk):
    """One sync fails, after a while; the next one says that all is well, as the kernel does."""

    def __init__(self) -> None:
        self.stumbles = False
        self.stumbled = threading.Event()
        self.go_on = threading.Event()

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        return StumblingFile(path, self, create=create, writable=writable)


async def test_a_sync_that_fails_while_the_broker_stops_is_not_overlooked(brokers: Brokers) -> None:
    disk = StumblingDisk()
    broker = await brokers.start(disk)
    caller = await brokers.call(broker)
    await create(caller, "t")
    await write(caller, "t")
    disk.stumbles = True
    caller.send(produce("t", batch()), 9)
    await until(disk.stumbled.is_set)
    asyncio.get_running_loop().call_later(0.01, disk.go_on.set)
    threading.Timer(0.05, disk.go_on.set).start()
    await brokers.stop(broker)
    assert not (brokers.data / "clean-shutdown").exists()


async def test_a_broker_whose_disk_fails_stops_and_says_so(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk()
    broker = await brokers.start(disk)
    caller = await brokers.call(broker)
    await create(caller, "good")
    await create(caller, "bad")
    await write(caller, "good")
    await write(caller, "bad")
    disk.fail_sync = 0
    response: Any = await caller.ask(produce("bad", batch()), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert await write(caller, "good") == 1, "other partitions go on"
    await brokers.stop(broker)
    assert "no clean stop" in caplog.text
    caller = await brokers.call(await brokers.start())
    assert await end_of(caller, "good") == 2
