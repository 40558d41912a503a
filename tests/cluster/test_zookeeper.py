"""What only ZooKeeper does: connections that break, sessions that expire, several clients, an ensemble."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from penstock.cli.cluster.zookeeper import LocalZooKeeper, Peer
from penstock.cluster.coordination import (
    DATA_BYTES_MAX,
    BadVersion,
    Check,
    CoordinationError,
    Create,
    DataTooLarge,
    Delete,
    Disconnected,
    NoNode,
    NotEmpty,
    Session,
    Set,
    Versioned,
    ensure_path,
)
from penstock.cluster.zookeeper import ZooKeeperStore
from tests.brokers import free_port
from tests.zookeepers import Followed, eventually, skip_without_java

SESSION_MS = 1_000

Opener = Callable[..., Awaitable[ZooKeeperStore]]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """Opens stores, and closes them behind the test."""
    stores: list[ZooKeeperStore] = []

    async def open_store(connect: str, session_timeout_ms: int = SESSION_MS) -> ZooKeeperStore:
        stores.append(await ZooKeeperStore.open(connect, session_timeout_ms))
        return stores[-1]

    yield open_store
    for store in stores:
        await store.close()


def sessions_of(store: ZooKeeperStore) -> list[Session]:
    told: list[Session] = []
    store.on_session(told.append)
    return told


# ---- opening and closing


async def test_the_path_of_the_address_is_made_and_everything_is_below_it(zookeeper_path: str, opened: Opener) -> None:
    store = await opened(f"{zookeeper_path}/eu/blue")
    assert await store.create("/a", b"one") == "/a"
    assert await store.create("/n-", sequence=True) == "/n-0000000001"
    outside = await opened(zookeeper_path)
    assert await outside.get("/eu/blue/a") == Versioned(b"one", 0)
    assert await (await opened(f"{zookeeper_path}/eu/green")).children("/") == []
    assert (await (await opened(f"{zookeeper_path}/eu/blue/")).get("/a")).data == b"one"


async def test_an_empty_root_can_not_be_deleted(zookeeper_path: str, opened: Opener) -> None:
    store = await opened(zookeeper_path)
    with pytest.raises(NotEmpty):
        await store.delete("/")
    await store.create("/a")


@pytest.mark.parametrize("connect", ["", "/path", "host:port", "h1:2181,,h2:2181", "h:2181/a//b", "h:2181/../b"])
async def test_what_is_no_address_is_refused(connect: str) -> None:
    with pytest.raises(ValueError, match="not an address of ZooKeeper"):
        await ZooKeeperStore.open(connect)


async def test_opening_gives_up_when_nobody_is_there() -> None:
    threads = threading.active_count()
    begin = time.monotonic()
    with pytest.raises(Disconnected, match="no ZooKeeper answers"):
        await ZooKeeperStore.open(f"127.0.0.1:{free_port()}/x", connect_timeout_ms=300)
    assert time.monotonic() - begin < 3
    await eventually(lambda: threading.active_count() <= threads)


async def test_opening_gives_up_when_it_is_not_zookeeper_that_answers() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Disconnected, match="no ZooKeeper answers"):
        await ZooKeeperStore.open(f"127.0.0.1:{port}", connect_timeout_ms=500)
    server.close()


async def test_a_client_that_closes_takes_its_ephemeral_nodes_with_it_at_once(
    zookeeper_path: str,
    opened: Opener,
) -> None:
    watcher, broker = await opened(zookeeper_path), await opened(zookeeper_path, 30_000)
    await watcher.create("/brokers")
    followed = await Followed().start(watcher, "/brokers")
    await broker.create("/brokers/1", b"here", ephemeral=True)
    await eventually(lambda: followed.data == {"1": b"here"})
    threads = threading.active_count()
    begin = time.monotonic()
    await broker.close()
    await eventually(lambda: followed.data == {})
    assert time.monotonic() - begin < 2
    assert threading.active_count() < threads


async def test_closing_does_not_wait_for_a_zookeeper_that_is_away(
    own_zookeeper: LocalZooKeeper,
    opened: Opener,
) -> None:
    paused = await opened(own_zookeeper.connect, 20_000)
    own_zookeeper.pause()
    begin = time.monotonic()
    await paused.close()
    assert time.monotonic() - begin < 3
    own_zookeeper.resume()
    gone = await opened(own_zookeeper.connect, 20_000)
    own_zookeeper.kill()
    await eventually(lambda: not gone.connected)
    begin = time.monotonic()
    await gone.close()
    assert time.monotonic() - begin < 3


# ---- several clients


async def test_what_one_client_writes_another_follows(zookeeper_path: str, opened: Opener) -> None:
    writer, reader = await opened(zookeeper_path), await opened(zookeeper_path)
    await writer.create("/topics")
    await writer.create("/topics/a", b"0")
    followed = await Followed().start(reader, "/topics")
    for n in range(50):
        await writer.multi([Set("/topics/a", b"%d" % n), Create(f"/topics/t{n}", b"new")])
        assert (await reader.get("/topics/a")).version == n + 1
    await eventually(lambda: len(followed.contents) == 51 and followed.data["a"] == b"49")
    for n in range(50):
        await writer.delete(f"/topics/t{n}")
    await eventually(lambda: followed.data == {"a": b"49"})


async def test_a_folder_that_is_gone_says_nothing_and_is_followed_again_when_it_is_back(
    zookeeper_path: str,
    opened: Opener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, reader = await opened(zookeeper_path), await opened(zookeeper_path)
    await ensure_path(writer, "/topics/a")
    followed = await Followed().start(reader, "/topics")
    await writer.multi([Delete("/topics/a"), Delete("/topics")])
    await eventually(lambda: "ZooKeeper has lost the nodes" in caplog.text)
    assert followed.data == {"a": b""}
    await writer.multi([Create("/topics"), Create("/topics/b", b"back")])
    await eventually(lambda: followed.data == {"b": b"back"})
    assert caplog.text.count("ZooKeeper has lost the nodes") == 1


@pytest.mark.parametrize("other", [None, b"another"], ids=["none", "another"])
async def test_nothing_is_gone_while_the_nodes_are_not_those_of_this_cluster(
    other: bytes | None,
    zookeeper_path: str,
    opened: Opener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, reader = await opened(zookeeper_path), await opened(zookeeper_path)
    await writer.create("/cluster", b"this one")
    await ensure_path(writer, "/topics/a")
    await writer.create("/topics/b")
    followed = await Followed().start(reader, "/topics")
    changed = [Delete("/cluster")] if other is None else [Set("/cluster", other)]
    await writer.multi([*changed, Delete("/topics/a")])
    await eventually(lambda: "ZooKeeper has lost the nodes" in caplog.text)
    assert followed.data == {"a": b"", "b": b""}
    again = [Create("/cluster", b"this one")] if other is None else [Set("/cluster", b"this one")]
    await writer.multi(again)
    await eventually(lambda: followed.data == {"b": b""})


async def test_a_follower_that_fails_is_told_the_next_change(
    zookeeper_path: str,
    opened: Opener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await opened(zookeeper_path)
    await store.create("/topics")
    told: list[str] = []

    def fails(name: str, content: Versioned | None) -> None:
        told.append(name)
        raise KeyError(name)

    with caplog.at_level(logging.ERROR):
        await store.follow("/topics", fails)
        await store.create("/topics/a")
        await eventually(lambda: told == ["a"])
        await store.create("/topics/b")
        await eventually(lambda: told == ["a", "b"])
    assert caplog.text.count("a follower failed") == 2


# ---- bounds


async def test_several_writes_together_have_a_bound_too(zookeeper_path: str, opened: Opener) -> None:
    store = await opened(zookeeper_path)
    await store.multi([Create("/a", bytes(DATA_BYTES_MAX // 2)), Create("/b", bytes(DATA_BYTES_MAX // 2))])
    sessions = sessions_of(store)
    with pytest.raises(DataTooLarge):
        await store.multi([Set("/a", bytes(DATA_BYTES_MAX // 2)), Set("/b", bytes(DATA_BYTES_MAX // 2 + 1024))])
    with pytest.raises(DataTooLarge):
        await store.multi([Check("/a", 0)] * 20_000)
    with pytest.raises(DataTooLarge):
        await store.create("/" + "long" * 1000, bytes(DATA_BYTES_MAX))
    await store.multi([Check("/a", 0)] * 5_000)
    assert sessions == []


async def test_what_zookeeper_does_not_like_is_an_error_of_ours(zookeeper_path: str, opened: Opener) -> None:
    store = await opened(zookeeper_path)
    with pytest.raises(CoordinationError):
        await store.create("/nul\0")
    await store.create("/still-works")


async def test_thousands_of_calls_at_once_do_not_make_the_loop_wait(
    own_zookeeper: LocalZooKeeper,
    opened: Opener,
) -> None:
    """Not even when nobody reads them, and there is more than the socket takes."""
    store = await opened(own_zookeeper.connect, 4_000)
    own_zookeeper.pause()
    begin = time.monotonic()
    calls = [asyncio.ensure_future(store.set("/", bytes(10_000))) for _ in range(2_000)]
    longest = await longest_turn(0.5)
    assert time.monotonic() - begin < 3
    assert longest < 1
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, Disconnected) for answer in answers)
    assert time.monotonic() - begin < 8
    own_zookeeper.resume()


async def longest_turn(duration_s: float) -> float:
    longest, begin = 0.0, time.monotonic()
    while (before := time.monotonic()) < begin + duration_s:
        await asyncio.sleep(0)
        longest = max(longest, time.monotonic() - before)
    return longest


# ---- connections and sessions


async def test_a_zookeeper_that_is_killed_and_started_again(own_zookeeper: LocalZooKeeper, opened: Opener) -> None:
    store = await opened(f"{own_zookeeper.connect}/x", 20_000)
    sessions = sessions_of(store)
    await ensure_path(store, "/topics/a")
    await store.create("/alive", ephemeral=True)
    followed = await Followed().start(store, "/topics")
    own_zookeeper.kill()
    with pytest.raises(Disconnected):
        await store.set("/topics/a", b"in flight, or too late")
    await eventually(lambda: not store.connected and sessions == [Session.SUSPENDED])
    begin = time.monotonic()
    for attempt in (store.get("/"), store.set("/topics/a", b"no"), store.follow("/topics", lambda *_: None)):
        with pytest.raises(Disconnected):
            await attempt
    assert time.monotonic() - begin < 0.2
    own_zookeeper.start()
    await eventually(lambda: store.connected)
    assert sessions == [Session.SUSPENDED, Session.RESUMED]
    assert await store.get("/alive") == Versioned(b"", 0)
    assert followed.contents == {"a": Versioned(b"", 0)}
    await store.set("/topics/a", b"back")
    await eventually(lambda: followed.data == {"a": b"back"})


async def test_what_changed_while_a_client_was_away_is_told_when_it_is_back(
    own_zookeeper: LocalZooKeeper,
    opened: Opener,
) -> None:
    """The client is held up, not ZooKeeper: another one goes on writing, until the session has expired and beyond."""
    gate = await Gate().start(own_zookeeper.port)
    away = await opened(gate.connect)
    here = await opened(own_zookeeper.connect)
    await here.multi([Create("/topics"), *(Create(f"/topics/{n}", b"old") for n in range(10))])
    followed = await Followed().start(away, "/topics")
    await away.create("/topics/ephemeral", ephemeral=True)
    await eventually(lambda: "ephemeral" in followed.contents)
    sessions = sessions_of(away)
    await gate.shut()
    await eventually(lambda: sessions == [Session.SUSPENDED])
    await here.multi([Set("/topics/1", b"new"), Delete("/topics/2"), Create("/topics/10", b"new")])
    await here.multi([Delete("/topics/3"), Create("/topics/3", b"old")])
    followed.told.clear()
    for _ in range(500):
        if "ephemeral" not in await here.children("/topics"):
            break
        await asyncio.sleep(0.02)
    await gate.start(own_zookeeper.port)
    await eventually(lambda: sessions == [Session.SUSPENDED, Session.RENEWED])
    expected = await here.children_with_data("/topics")
    await eventually(lambda: followed.contents == expected)
    assert {name for name, _ in followed.told} == {"1", "2", "3", "10", "ephemeral"}
    await gate.shut()


async def test_a_zookeeper_that_is_paused_for_longer_than_the_session(
    own_zookeeper: LocalZooKeeper,
    opened: Opener,
) -> None:
    store = await opened(own_zookeeper.connect)
    sessions = sessions_of(store)
    await store.create("/topics")
    followed = await Followed().start(store, "/topics")
    own_zookeeper.pause()
    with pytest.raises(Disconnected):
        await store.set("/topics", b"")
    await asyncio.sleep(3 * SESSION_MS / 1000)
    assert not store.connected
    assert sessions == [Session.SUSPENDED]
    own_zookeeper.resume()
    await eventually(lambda: store.connected and len(sessions) > 1)
    await store.create("/topics/a", b"after")
    await eventually(lambda: followed.data == {"a": b"after"})
    assert sessions[-1] in (Session.RESUMED, Session.RENEWED)  # whether it expired is ZooKeeper's to say: it slept too


async def test_a_session_that_expires_is_renewed_and_the_next_too(zookeeper_path: str, opened: Opener) -> None:
    store = await opened(zookeeper_path)
    sessions = sessions_of(store)
    await store.create("/brokers")
    followed = await Followed().start(store, "/brokers")
    for n in range(3):
        await store.create("/brokers/1", b"%d" % n, ephemeral=True)
        await eventually(lambda n=n: followed.data == {"1": b"%d" % n})
        await asyncio.to_thread(expire, store)
        await eventually(lambda n=n: len(sessions) == 2 * n + 2 and store.connected)
        assert sessions[-2:] == [Session.SUSPENDED, Session.RENEWED]
        await eventually(lambda: followed.data == {})
        assert await store.children("/brokers") == []


def expire(store: ZooKeeperStore) -> None:
    """As ZooKeeper's own tests do it: another client takes over the session, and closes it."""
    thief = KazooClient(store._client.hosts and ",".join(f"{h}:{p}" for h, p in store._client.hosts), 1.0)
    thief._session_id, thief._session_passwd = store._client.client_id
    thief.start()
    thief.stop()
    thief.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_kazoo_is_started_again_when_its_thread_dies(zookeeper_path: str, opened: Opener) -> None:
    store = await opened(zookeeper_path)
    sessions = sessions_of(store)
    await store.create("/topics")
    followed = await Followed().start(store, "/topics")
    poison: Any = object()  # no request: kazoo does not expect it
    store._client._call(poison, store._client.handler.async_result())
    await eventually(lambda: sessions == [Session.SUSPENDED, Session.RENEWED])
    await store.create("/topics/a")
    await eventually(lambda: "a" in followed.contents)


async def test_zookeeper_away_is_one_line_in_the_log(
    own_zookeeper: LocalZooKeeper,
    opened: Opener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        store = await opened(own_zookeeper.connect)
        own_zookeeper.kill()
        await eventually(lambda: not store.connected)
        await asyncio.sleep(1.5)
        own_zookeeper.start()
        await eventually(lambda: store.connected)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("penstock", "kazoo"))]
    assert ours == ["ZooKeeper can't be reached", "ZooKeeper is back"]


async def test_two_thousand_children_are_followed_through_broken_connections(
    own_zookeeper: LocalZooKeeper,
    opened: Opener,
) -> None:
    """A model that is written to ZooKeeper by one client must be what another, whose connection breaks, ends with."""
    chance = random.Random(5)
    gate = await Gate().start(own_zookeeper.port)
    writer, reader = await opened(own_zookeeper.connect, 10_000), await opened(gate.connect)
    await writer.create("/topics")
    model = {f"t{n}": b"%d" % n for n in range(2_000)}
    await writer.multi([Create(f"/topics/{name}", data) for name, data in model.items()])
    followed = await Followed().start(reader, "/topics")
    assert followed.data == model
    for turn in range(30):
        changes: dict[str, Create | Set | Delete] = {}
        for _ in range(40):
            name = f"t{chance.randrange(2_100)}"
            data = chance.randbytes(20)
            if name not in model:
                changes[name] = Create(f"/topics/{name}", data)
            elif chance.random() < 0.2:
                changes[name] = Delete(f"/topics/{name}")
            else:
                changes[name] = Set(f"/topics/{name}", data)
        for name, change in changes.items():
            if isinstance(change, Delete):
                del model[name]
            else:
                model[name] = change.data
        await writer.multi(list(changes.values()))
        if turn % 3 == 0:
            await gate.shut()
            await asyncio.sleep(chance.choice((0, 0, 0.05, 1.5)))
            await gate.start(own_zookeeper.port)
            await asyncio.sleep(chance.random() * 0.6)  # into the middle of reading again, or behind it
    await eventually(lambda: followed.data == model)
    assert followed.contents == await writer.children_with_data("/topics")
    await gate.shut()


async def test_an_ensemble_goes_on_without_one_of_its_members(tmp_path: Path, opened: Opener) -> None:
    skip_without_java()
    peers = [Peer(free_port(), free_port(), free_port()) for _ in range(3)]
    servers = LocalZooKeeper.ensemble(tmp_path, peers, force_sync=False)
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait()
        address = ",".join(server.connect for server in servers) + "/penstock"
        stores = [await opened(address, 10_000) for _ in range(3)]
        await stores[0].create("/topics")
        followed = [await Followed().start(store, "/topics") for store in stores]
        for n in range(20):  # what one has written the next can read, whichever servers they are at
            path = await stores[n % 3].create(f"/topics/{n}", b"new")
            assert (await stores[(n + 1) % 3].get(path)).data == b"new"
        servers[2].kill()
        deadline = time.monotonic() + 30
        while True:
            try:
                await stores[0].set("/topics/1", b"without")
                break
            except Disconnected:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        for each in followed:
            await eventually(lambda each=each: len(each.contents) == 20 and each.data["1"] == b"without")
        with pytest.raises(BadVersion):
            await stores[0].multi([Check("/topics/1", 0), Set("/topics/2", b"never")])
        with pytest.raises(NoNode):
            await stores[0].set("/nowhere", b"")
    finally:
        for server in servers:
            server.kill()


class Gate:
    """A way to ZooKeeper that can be shut: the sockets on both sides are closed."""

    def __init__(self) -> None:
        self._port = free_port()
        self.connect = f"127.0.0.1:{self._port}"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> Gate:
        async def pass_through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            self._writers |= {writer, far_writer}
            self._pumps |= {
                asyncio.create_task(pump(reader, far_writer)),
                asyncio.create_task(pump(far_reader, writer)),
            }

        self._server = await asyncio.start_server(pass_through, "127.0.0.1", self._port)
        return self

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self._writers.clear()
        self._pumps.clear()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()
